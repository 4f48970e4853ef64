"""Runs on other machines look like runs on this one, and a machine that is lost costs nobody a run that can be made again."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time

import pytest
from machines import Machines, alone, same_but_times
from waiting import until

from specdec import endpoint, remote, remote_run, wire
from specdec import engine as engine_module
from specdec.engine import BusyError, Lease, Limits, RunRequest
from specdec.errors import SettingsError
from specdec.experiments import Guesses
from specdec.law import Law, LawFinding
from specdec.remote import Place, RemoteEngine
from specdec.trace import Settings

SAMPLED = Settings(temperature=1.0, seed=7, max_new_tokens=24, draft_length=3, drafter="early-exit")


@pytest.fixture
def machines():
    """machines(pair, …) -> (Machines, RemoteEngine); both are closed in the end."""
    made: list = []

    def make(*pairs, limits: Limits | None = None, token: str = "", shown: str = "") -> tuple[Machines, RemoteEngine]:
        there = Machines(*pairs, limits=limits, token=token)
        made.append(there)
        engine = RemoteEngine(there.address, token=shown or token)
        made.insert(0, engine)
        return there, engine

    yield make
    for one in made:
        one.close()


def ended(job, seconds: float = 20.0):
    until(lambda: not job.active, seconds=seconds)
    return job


# --- the same as here ---


@pytest.mark.parametrize("settings", [Settings(max_new_tokens=24), SAMPLED, SAMPLED.replace(top_k=20, top_p=0.9, raw=True)])
def test_a_run_over_there_leaves_the_trace_of_a_run_here(machines, tiny_pair, settings):
    _, engine = machines(tiny_pair())
    request = RunRequest(prompt="Hello there", settings=settings)
    job = ended(engine.submit(request, owner="a"))
    assert (job.state, job.message) == ("done", "")
    assert same_but_times(job.trace, alone(tiny_pair(), request)) and job.trace.rounds == tuple(job.rounds)
    assert job.prompt_ids == job.trace.prompt_ids and job.created <= job.started <= job.first_round <= job.finished


def test_a_race_brings_both_halves(machines, tiny_pair):
    there, engine = machines(tiny_pair())
    there.each[0].permits = threading.Semaphore(6)
    job = engine.submit(RunRequest(prompt="Hello", settings=SAMPLED, race=True), owner="a")
    until(lambda: len(job.plain_rounds) == 6)
    assert job.state == "running" and job.rounds == []
    there.each[0].permits.release(1000)
    ended(job)
    assert job.plain_trace.method == "plain" and len(job.plain_trace.rounds) == len(job.plain_rounds) > 6
    assert job.trace.method == "speculative" and job.trace.rounds == tuple(job.rounds)


def test_an_experiment_brings_its_finding(machines, tiny_pair):
    _, engine = machines(tiny_pair())
    wanted = Law(count=8, tokens=2, at_once=4)
    job = ended(engine.submit(RunRequest(prompt="Hello", experiment=wanted), owner="a"))
    assert isinstance(job.trace, LawFinding) and job.trace.counts == (8, 8) and len(job.rounds) == wanted.total
    guesses = ended(engine.submit(RunRequest(prompt="Hello", settings=SAMPLED, experiment=Guesses()), owner="a"))
    assert guesses.state == "done" and guesses.trace.rounds == tuple(guesses.rounds)


def test_rounds_are_seen_while_they_are_made_and_stop_keeps_them(machines, tiny_pair):
    there, engine = machines(tiny_pair())
    there.each[0].permits = threading.Semaphore(5)
    job = engine.submit(RunRequest(prompt="Hello there", settings=SAMPLED), owner="a")
    until(lambda: len(job.rounds) == 5)
    assert job.state == "running" and engine.serving == 1
    engine.stop(job)
    ended(job)
    assert (job.state, job.message, len(job.rounds)) == ("stopped", "", 5)
    assert job.trace.finish_reason == "stopped" and job.trace.rounds == tuple(job.rounds)
    until(lambda: not there.each[0].engine.running)
    assert engine.serving == 0 and not engine._following and not engine._owners


def test_a_trace_put_together_here_is_the_one_that_the_machine_would_have_made(tiny_pair):
    pair = tiny_pair()
    whole = alone(pair, RunRequest(prompt="ðŸ™‚ Hello", settings=SAMPLED))
    from specdec.decoding import stream

    run, heads = stream(pair, whole.prompt, SAMPLED), []
    for _ in run:
        heads.append(run.trace())
    head, last = heads[2], heads[-2]
    seconds = last.totals.seconds - head.totals.seconds
    made = wire.complete(wire.made_so_far(head, 3, list(last.rounds), seconds=seconds), last.rounds)
    assert made.output_ids == last.output_ids and made.finish_reason == "stopped"
    for name, value in vars(last.totals).items():
        assert getattr(made.totals, name) == pytest.approx(value, abs=1e-5), name


def test_a_new_run_of_one_session_ends_its_older_one_only(machines, tiny_pair):
    there, engine = machines(tiny_pair())
    there.each[0].permits = threading.Semaphore(0)
    mine, other = (engine.submit(RunRequest(prompt="Hello", settings=SAMPLED), owner=who) for who in ("me", "you"))
    again = engine.submit(RunRequest(prompt="Hello again", settings=SAMPLED), owner="me")
    ended(mine)
    assert mine.state == "stopped" and other.active and again.active
    there.each[0].permits.release(1000)
    assert ended(other).state == ended(again).state == "done"


def test_a_session_that_leaves_frees_the_machine(machines, tiny_pair):
    there, engine = machines(tiny_pair())
    there.each[0].permits = threading.Semaphore(1)
    lease = Lease(engine, grace=0.1)
    job = lease.run(RunRequest(prompt="Hello", settings=SAMPLED))
    until(lambda: len(job.rounds) == 1)
    lease.released()
    until(lambda: not there.each[0].engine.running)
    until(lambda: not job.active and "connection to the page was lost" in job.message)


def test_what_is_loaded_over_there_is_known_here(machines, tiny_pair):
    _, engine = machines(tiny_pair())
    assert engine.state == "empty" and engine.pair is None
    engine.preload("embedded")
    until(lambda: engine.state == "ready")
    pair = tiny_pair()
    assert (engine.pair_name, engine.pair.title, engine.pair.drafters) == ("embedded", pair.title, pair.drafters)
    ids = engine.pair.encode("the cat", raw=True)
    assert ids == pair.encode("the cat", raw=True) and "".join(engine.pair.texts.text(i) for i in ids) == "the cat"


# --- when a machine is lost ---


def test_a_run_whose_machine_dies_goes_on_at_the_same_round_on_another_one(machines, tiny_pair):
    there, engine = machines(tiny_pair(), tiny_pair())
    first, second = there.each
    first.permits, second.permits = threading.Semaphore(4), threading.Semaphore(2)
    request = RunRequest(prompt="Hello there", settings=SAMPLED)
    job = engine.submit(request, owner="a")
    until(lambda: len(job.rounds) == 4)
    seen = list(job.rounds)
    first.dead.set()
    until(lambda: second.requests)
    assert job.active and job.state == "running" and len(job.rounds) == 4  # the viewer keeps what it has,
    second.permits.release(1000)
    ended(job)
    assert (job.state, job.message) == ("done", "")
    assert all(wire.same_round(a, b) for a, b in zip(seen, job.rounds, strict=False))  # and sees the same go on
    assert same_but_times(job.trace, alone(tiny_pair(), request)) and job.trace.rounds == tuple(job.rounds)
    assert first.requests == second.requests == [request]


def test_the_stage_says_that_a_machine_was_lost_until_another_one_speaks(machines, tiny_pair):
    there, engine = machines(tiny_pair(), tiny_pair())
    for one in there.each:
        one.permits = threading.Semaphore(3)
    job = engine.submit(RunRequest(prompt="Hello", settings=SAMPLED), owner="a")
    until(lambda: len(job.rounds) == 3)
    there.each[1].permits = threading.Semaphore(0)
    there.each[0].dead.set()
    until(lambda: "another one is asked" in job.message)
    there.each[1].permits.release(1000)
    assert ended(job).message == "" and job.state == "done"


def test_a_race_whose_machine_dies_in_its_second_half_keeps_the_plain_one(machines, tiny_pair):
    there, engine = machines(tiny_pair(), tiny_pair())
    there.each[0].permits = threading.Semaphore(26)
    job = engine.submit(RunRequest(prompt="Hello", settings=SAMPLED, race=True), owner="a")
    until(lambda: job.rounds)
    before = list(job.plain_rounds)
    there.each[0].dead.set()
    ended(job)
    assert job.state == "done" and [r.new_ids for r in job.plain_rounds] == [r.new_ids for r in before]
    assert job.plain_trace.rounds == tuple(job.plain_rounds) and job.trace.rounds == tuple(job.rounds)


def test_another_machine_that_decodes_something_else_ends_the_run_with_what_was_seen(machines, tiny_pair):
    there, engine = machines(tiny_pair(), tiny_pair(seed=5))
    there.each[0].permits = threading.Semaphore(4)
    job = engine.submit(RunRequest(prompt="Hello there", settings=SAMPLED), owner="a")
    until(lambda: len(job.rounds) == 4)
    seen = list(job.rounds)
    there.each[0].dead.set()
    ended(job)
    assert job.state == "failed" and "decodes round 1 differently" in job.message and "press Run again" in job.message
    assert job.rounds == seen and job.trace.rounds == tuple(seen)


def test_a_machine_that_falls_silent_is_given_up(machines, tiny_pair, monkeypatch):
    monkeypatch.setattr(endpoint, "SIGN", 0.1)
    monkeypatch.setattr(remote_run, "SILENCE", 0.8)
    monkeypatch.setattr(remote_run, "PAUSES", (0.1, 0.1, 0.1))
    there, engine = machines(tiny_pair(), tiny_pair())
    there.each[0].permits = threading.Semaphore(3)
    job = engine.submit(RunRequest(prompt="Hello", settings=SAMPLED), owner="a")
    until(lambda: len(job.rounds) == 3)
    there.each[0].silent.set()
    assert ended(job).state == "done" and there.each[1].requests
    there.each[0].silent.clear()


def test_a_machine_whose_worker_hangs_says_so_and_another_one_goes_on(machines, tiny_pair):
    there, engine = machines(tiny_pair(), tiny_pair())
    first, second = there.each
    first.permits = threading.Semaphore(3)
    first.stuck.set()
    job = engine.submit(RunRequest(prompt="Hello", settings=SAMPLED), owner="a")
    until(lambda: len(job.rounds) == 3)
    first.engine.limits = Limits(round_seconds=0.3)
    assert ended(job).state == "done" and len(second.requests) == 1
    assert first.endpoint.hung == "no round was made for 0.3 s"  # and it stays so: what looks after machines sees it


def test_a_run_that_waits_long_in_a_queue_is_not_lost(machines, tiny_pair, monkeypatch):
    monkeypatch.setattr(endpoint, "SIGN", 0.1)  # seconds between signs of life
    monkeypatch.setattr(remote_run, "SILENCE", 0.8)
    there, engine = machines(tiny_pair(), limits=Limits(at_once=1))
    there.each[0].permits = threading.Semaphore(1)
    first = engine.submit(RunRequest(prompt="Hello", settings=SAMPLED), owner="a")
    until(lambda: first.rounds)
    second = engine.submit(RunRequest(prompt="Hello", settings=SAMPLED), owner="b")
    until(lambda: second.position == 1)
    time.sleep(1.2)
    assert second.state == "queued" and second.position == 1 and engine.queue_length == 1
    there.each[0].permits.release(1000)
    assert ended(first).state == ended(second).state == "done"
    assert len(there.each[0].requests) == 2


def test_a_request_that_kills_machines_does_not_go_through_all_of_them(machines, tiny_pair, monkeypatch):
    monkeypatch.setattr(remote_run, "PAUSES", (0.01,) * 3)
    there, engine = machines(*[tiny_pair()] * 6)
    for one in there.each:
        one.engine._start = lambda pair, request, stop, one=one: one.dead.set() or time.sleep(0.3)
    job = ended(engine.submit(RunRequest(prompt="Hello", settings=SAMPLED), owner="a"))
    assert job.state == "failed" and "machines in a row were lost" in job.message
    assert sum(one.dead.is_set() for one in there.each) == 1 + remote_run.LOSSES


def test_nobody_answers_and_then_they_come_back(machines, tiny_pair, monkeypatch):
    monkeypatch.setattr(remote, "ASK_AGAIN", 0.05)
    monkeypatch.setattr(remote, "ASK", 0.05)
    there, engine = machines(tiny_pair())
    engine.preload("embedded")
    until(lambda: engine.state == "ready")
    there.shut()
    until(lambda: engine.away)
    assert engine.state == "failed" and there.address in engine.away and "recordings play" in engine.away
    with pytest.raises(BusyError, match="do not answer"):
        engine.submit(RunRequest(prompt="Hello", settings=SAMPLED), owner="a")
    there.open()
    until(lambda: not engine.away)
    assert ended(engine.submit(RunRequest(prompt="Hello", settings=SAMPLED), owner="a")).state == "done"


def test_a_run_survives_a_short_absence_of_everybody(machines, tiny_pair):
    there, engine = machines(tiny_pair())
    there.each[0].permits = threading.Semaphore(3)
    job = engine.submit(RunRequest(prompt="Hello", settings=SAMPLED), owner="a")
    until(lambda: len(job.rounds) == 3)
    there.each[0].permits = None
    there.shut()
    until(lambda: job.message)
    there.open()
    assert ended(job).state == "done" and job.trace.rounds == tuple(job.rounds)


def test_where_nobody_is_for_long_the_run_ends_and_keeps_its_rounds(machines, tiny_pair, monkeypatch):
    monkeypatch.setattr(remote_run, "DELAYS", (0.01, 0.01))
    there, engine = machines(tiny_pair())
    there.each[0].permits = threading.Semaphore(3)
    job = engine.submit(RunRequest(prompt="Hello", settings=SAMPLED), owner="a")
    until(lambda: len(job.rounds) == 3)
    there.shut()
    ended(job)
    assert job.state == "failed" and "do not answer" in job.message and len(job.trace.rounds) == 3


# --- what is refused ---


def test_the_machine_s_own_sentence_reaches_the_person(machines, tiny_pair):
    _, engine = machines(tiny_pair(), limits=Limits(new_tokens=10))
    job = ended(engine.submit(RunRequest(prompt="Hello", settings=SAMPLED), owner="a"))
    assert (job.state, job.message) == ("failed", "24 new tokens were asked for, 10 are allowed: ask for fewer.")


def test_a_full_queue_over_there_is_a_sentence_here(machines, tiny_pair):
    there, engine = machines(tiny_pair(), limits=Limits(at_once=1, queue=1))
    there.each[0].permits = threading.Semaphore(1)
    first = engine.submit(RunRequest(prompt="Hello", settings=SAMPLED), owner="a")
    until(lambda: first.rounds)
    second = engine.submit(RunRequest(prompt="Hello", settings=SAMPLED), owner="b")
    until(lambda: there.each[0].engine.queue_length == 1)
    third = ended(engine.submit(RunRequest(prompt="Hello", settings=SAMPLED), owner="c"))
    assert third.state == "failed" and "places in the queue are taken" in third.message and second.active


def test_measurements_in_batches_are_for_one_machine(machines, tiny_pair):
    _, engine = machines(tiny_pair())
    with pytest.raises(SettingsError, match="python -m specdec measure"):
        engine.submit(RunRequest(prompt="Hello", together=("a", "b"), at_once=2), owner="a")


def test_a_token_is_asked_for(machines, tiny_pair, monkeypatch):
    monkeypatch.setattr(remote, "ASK_AGAIN", 0.05)
    there, engine = machines(tiny_pair(), token="secret")
    assert ended(engine.submit(RunRequest(prompt="Hello", settings=SAMPLED), owner="a")).state == "done"
    for token in ("", "wrong"):
        stranger = RemoteEngine(there.address, token=token)
        stranger.preload("")
        until(lambda: stranger.away)  # noqa: B023
        assert "wants a token" in stranger.away
        stranger.close()
    assert "secret" not in repr(engine.place)


def post(there: Machines, path: str, body: bytes, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", there.port, timeout=10)
    try:
        connection.request("POST", path, body=body, headers={"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())["message"]
    finally:
        connection.close()


def test_strangers_get_one_sentence_and_reach_no_model(machines, tiny_pair):
    there, _ = machines(tiny_pair())
    good = json.dumps(wire.request_to_dict(RunRequest(prompt="x"))).encode()
    assert post(there, "/runs", b"x" * (wire.MAX_BODY + 1))[0] == 413
    assert post(there, "/runs", b"{")[0] == post(there, "/runs", b"[" * 100_000)[0] == 422
    assert "application/json" in post(there, "/runs", good, **{"Content-Type": "text/plain"})[1]
    assert post(there, "/elsewhere", good)[0] == 404
    assert post(there, "/pieces", json.dumps({"text": "x" * 5000}).encode())[0] == 422
    assert post(there, "/pieces", b'{"text": "\\ud800"}')[0] == post(there, "/pieces", b'{"text": 3}')[0] == 422
    assert there.each[0].requests == []


def test_a_client_that_leaves_by_itself_frees_the_machine(machines, tiny_pair):
    there, _ = machines(tiny_pair())
    machine = there.each[0]
    machine.permits = threading.Semaphore(1)
    connection = http.client.HTTPConnection("127.0.0.1", there.port)
    body = json.dumps(wire.request_to_dict(RunRequest(prompt="Hello", settings=SAMPLED)))
    connection.request("POST", "/runs", body=body, headers={"Content-Type": "application/json"})
    connection.getresponse().readline()
    until(lambda: machine.engine.running)
    connection.close()
    until(lambda: not machine.engine.running)


@pytest.mark.parametrize("address", ["ray://host:10001", "host:8000", "ftp://host", "http://", "http://host:0", "http://a/?b"])
def test_an_address_that_is_none_gets_one_sentence(address):
    with pytest.raises(SettingsError, match="http://HOST:8000") as refused:
        Place(address=address)
    assert repr(address) in str(refused.value)


def test_the_environment_chooses_the_engine_of_this_process(monkeypatch):
    monkeypatch.setattr(engine_module, "_shared", None)
    monkeypatch.setenv("SPECDEC_ENGINE", "http://127.0.0.1:9/")
    monkeypatch.setenv("SPECDEC_ENGINE_TOKEN", "secret")
    engine = engine_module.shared()
    assert isinstance(engine, RemoteEngine) and engine.place == Place(address="http://127.0.0.1:9/", token="secret")
    engine.close()


def test_an_app_in_front_of_other_machines_needs_neither_torch_nor_ray():
    code = "import sys, specdec.remote; print([m for m in ('torch', 'transformers', 'streamlit', 'ray') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
