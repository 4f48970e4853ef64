"""The engine serves many people with one worker: nobody waits for a stopped run, and nobody pays for somebody else's crash."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from waiting import WAIT, until

from specdec.engine import BusyError, Engine, Lease, Limits, RunRequest
from specdec.errors import ModelError, SettingsError
from specdec.trace import Outcome, Round, Seconds, Settings


def a_round(index: int) -> Round:
    outcome = Outcome(kind="bonus", id=7, text=" x", p=0.5, u=None, distribution=(), residual_mass=None)
    return Round(index=index, start=3 + index, drafts=(), outcome=outcome, seconds=Seconds(draft=(), verify=0.0, judge=0.0))


class FakeRun:
    """A run of `count` rounds. Each waits for a permit, then asks `stop` as the real loop does before a model pass."""

    def __init__(self, request: RunRequest, stop, *, count=3, permits: threading.Semaphore | None = None, crash_at=-1):
        self.prompt_ids = [1, 2, 3]
        self.request, self.stop, self.count, self.permits, self.crash_at = request, stop, count, permits, crash_at
        self.made, self.stopped = 0, False

    def __iter__(self):
        for index in range(self.count):
            while self.permits is not None and not self.permits.acquire(timeout=0.01):
                if self.stop():
                    break
            if self.stop():
                self.stopped = True
                return
            if index == self.crash_at:
                raise RuntimeError(f"boom in {self.request.prompt}")
            self.made += 1
            yield a_round(index)

    def trace(self):
        return SimpleNamespace(finish_reason="stopped" if self.stopped else "length", rounds=tuple(range(self.made)))


class Bench:
    """An engine over fake models, with handles on what it does."""

    def __init__(self, **kwargs):
        self.loads: list[str] = []
        self.runs: list[FakeRun] = []
        self.permits: threading.Semaphore | None = None
        self.crash_at: dict[str, int] = {}
        self.load_gate: threading.Event | None = None
        self.load_errors: list[Exception] = []
        kwargs.setdefault("limits", Limits(at_once=1))
        self.engine = Engine(self.load, start=self.start, **kwargs)

    def load(self, name, progress):
        self.loads.append(name)
        for step in range(1, 4):
            progress("Fetching the model", step * 10, 30)
        if self.load_gate is not None:
            assert self.load_gate.wait(WAIT)
        if self.load_errors:
            raise self.load_errors.pop(0)
        return f"pair {name}"

    def start(self, pair, request, stop):
        run = FakeRun(request, stop, permits=self.permits, crash_at=self.crash_at.get(request.prompt, -1))
        self.runs.append(run)
        return run

    def submit(self, prompt="hello", owner="a", **settings):
        return self.engine.submit(RunRequest(prompt=prompt, settings=Settings(**settings)), owner=owner)


@pytest.fixture
def bench():
    made: list[Bench] = []

    def make(**kwargs) -> Bench:
        made.append(Bench(**kwargs))
        return made[-1]

    yield make
    for one in made:
        if one.load_gate is not None:
            one.load_gate.set()
        one.engine.close()


def test_a_run_appends_its_rounds_and_ends_with_a_trace(bench):
    b = bench()
    job = b.submit()
    until(lambda: not job.active)
    assert (job.state, job.message, [r.index for r in job.rounds]) == ("done", "", [0, 1, 2])
    assert job.prompt_ids == (1, 2, 3) and job.trace.finish_reason == "length"
    assert job.created <= job.started <= job.first_round <= job.finished


def test_rounds_can_be_seen_while_the_run_goes_on(bench):
    b = bench()
    b.permits = threading.Semaphore(2)
    job = b.submit()
    until(lambda: len(job.rounds) == 2)
    assert job.state == "running" and len(job.trace.rounds) >= 1
    b.permits.release()
    until(lambda: job.state == "done")
    assert len(job.rounds) == 3


def test_stop_ends_a_run_before_its_next_pass_and_keeps_what_was_made(bench):
    b = bench()
    b.permits = threading.Semaphore(1)
    job = b.submit()
    until(lambda: len(job.rounds) == 1)
    b.engine.stop(job)
    until(lambda: not job.active)
    assert job.state == "stopped" and len(job.rounds) == 1 and job.trace.finish_reason == "stopped" and b.runs[0].made == 1


def test_stop_after_the_end_changes_nothing(bench):
    b = bench()
    job = b.submit()
    until(lambda: job.state == "done")
    b.engine.stop(job)
    assert job.state == "done" and not b.engine._stopping


def test_the_queue_is_first_come_first_served_and_tells_everybody_their_place(bench):
    b = bench()
    b.permits = threading.Semaphore(1)
    first = b.submit(prompt="one", owner="a")
    until(lambda: len(first.rounds) == 1)
    second, third = b.submit(prompt="two", owner="b"), b.submit(prompt="three", owner="c")
    assert [j.position for j in (first, second, third)] == [0, 1, 2] and b.engine.queue_length == 2
    b.engine.stop(second)
    assert second.state == "stopped" and third.position == 1
    b.permits.release(10)
    until(lambda: third.state == "done")
    assert [r.request.prompt for r in b.runs] == ["one", "three"]


def test_a_new_run_stops_the_older_one_of_the_same_owner_only(bench):
    b = bench()
    b.permits = threading.Semaphore(0)
    mine, other = b.submit(owner="me"), b.submit(owner="you")
    until(lambda: mine.state == "running")
    again = b.submit(owner="me")
    until(lambda: not mine.active)
    assert mine.state == "stopped" and other.active and again.active
    b.permits.release(20)
    until(lambda: again.state == "done")
    assert other.state == "done"


def test_a_crash_is_the_message_of_its_run_and_the_next_run_is_served(bench):
    b = bench()
    b.crash_at["bad"] = 1
    bad, good = b.submit(prompt="bad", owner="a"), b.submit(prompt="good", owner="b")
    until(lambda: good.state == "done")
    assert bad.state == "failed" and "RuntimeError: boom" in bad.message and "others are not affected" in bad.message
    assert len(bad.rounds) == 1 and bad.trace is not None  # what was decoded before is kept
    assert good.message == ""


def test_a_message_of_ours_reaches_the_person_as_it_is(bench):
    b = bench()
    b.engine._start = lambda *_: (_ for _ in ()).throw(SettingsError("top-k is -1: take a whole number."))
    job = b.submit()
    until(lambda: not job.active)
    assert job.message == "top-k is -1: take a whole number."


def test_the_log_does_not_quote_the_prompt(bench, caplog):
    b = bench()
    b.crash_at["my secret"] = 0
    job = b.submit(prompt="my secret")
    until(lambda: not job.active)
    assert "RuntimeError" in caplog.text and "my secret" not in caplog.text


def test_the_pair_is_loaded_once_however_many_arrive(bench):
    b = bench()
    b.load_gate = threading.Event()
    b.engine.preload("embedded")
    jobs = [b.submit(owner=str(i)) for i in range(10)]
    until(lambda: b.engine.state == "loading")
    b.load_gate.set()
    until(lambda: all(j.state == "done" for j in jobs))
    assert b.loads == ["embedded"] and b.engine.state == "ready"


def test_loading_shows_its_progress_to_those_who_wait(bench):
    b = bench()
    b.load_gate = threading.Event()
    job = b.submit()
    until(lambda: job.progress is not None and job.progress.done == 30)
    assert (job.state, job.progress.stage, job.progress.fraction) == ("queued", "Fetching the model", 1.0)
    assert json.loads(json.dumps(job.to_dict()))["progress"]["total"] == 30
    b.load_gate.set()
    until(lambda: job.state == "done")
    assert job.progress is None and b.engine.progress is None


def test_a_run_can_be_stopped_while_the_pair_is_loading(bench):
    b = bench()
    b.load_gate = threading.Event()
    job = b.submit()
    until(lambda: b.engine.state == "loading")
    b.engine.stop(job)
    assert job.state == "stopped"
    b.load_gate.set()
    until(lambda: b.engine.state == "ready")
    assert b.runs == []


def test_a_failed_load_fails_those_who_wait_and_is_tried_again_later(bench):
    b = bench()
    b.load_gate = threading.Event()
    b.load_errors = [ModelError("The disk is full: free 300 MB.")]
    first, second = b.submit(owner="a"), b.submit(owner="b")
    b.load_gate.set()
    until(lambda: not first.active and not second.active)
    assert first.message == second.message == b.engine.message == "The disk is full: free 300 MB."
    assert b.loads == ["embedded"] and b.engine.state == "failed"
    third = b.submit()
    until(lambda: third.state == "done")
    assert b.loads == ["embedded", "embedded"] and b.engine.state == "ready"


def test_a_load_that_fails_without_a_sentence_of_ours_gets_a_second_chance(bench):
    b = bench()
    b.load_errors = [ImportError("a partially initialized module")]
    job = b.submit(owner="a")
    until(lambda: job.state == "done")
    assert b.loads == ["embedded", "embedded"] and b.engine.state == "ready"


def test_only_one_pair_is_held_at_a_time(bench):
    b = bench()
    first = b.submit(owner="a")
    second = b.engine.submit(RunRequest(prompt="x", pair="other"), owner="b")
    until(lambda: first.state == second.state == "done")
    assert b.loads == ["embedded", "other"] and (b.engine.pair_name, b.engine.pair) == ("other", "pair other")


def test_a_full_queue_refuses_with_a_sentence_and_the_owner_may_still_replace_his_own(bench):
    b = bench(limits=Limits(queue=2, at_once=1))
    b.permits = threading.Semaphore(0)
    running = b.submit(owner="a")
    until(lambda: running.state == "running")
    b.submit(owner="b"), b.submit(owner="c")
    with pytest.raises(BusyError, match="All 2 places"):
        b.submit(owner="d")
    assert b.submit(owner="c").active and b.engine.queue_length == 2


@pytest.mark.parametrize(
    ("prompt", "settings", "words"),
    [("  \n ", {}, "empty"), ("x" * 101, {}, "101 characters"), ("hi", {"max_new_tokens": 51}, "51 new tokens")],
)
def test_what_is_beyond_the_limits_is_refused_at_once(bench, prompt, settings, words):
    b = bench(limits=Limits(prompt_characters=100, new_tokens=50))
    with pytest.raises(SettingsError, match=words):
        b.submit(prompt=prompt, **settings)
    assert b.loads == []


def test_a_run_that_takes_too_long_is_ended_and_says_so(bench):
    b = bench(limits=Limits(run_seconds=0.05, at_once=1))
    b.permits = threading.Semaphore(1)
    job = b.submit()
    until(lambda: not job.active)
    assert job.state == "stopped" and "longest allowed" in job.message and len(job.rounds) == 1


def test_nothing_of_a_run_is_kept_once_it_has_ended(bench):
    b = bench()
    for owner in range(20):
        b.submit(owner=str(owner))
    until(lambda: b.engine.queue_length == 0 and b.engine._current is None)
    assert b.engine._owners == {} and b.engine._stopping == set()


def test_a_session_that_leaves_frees_the_engine(bench):
    b = bench()
    b.permits = threading.Semaphore(1)
    lease = Lease(b.engine)
    job = lease.run(RunRequest(prompt="hello"))
    until(lambda: len(job.rounds) == 1)
    lease.released()
    until(lambda: not job.active)
    assert job.state == "stopped" and "connection" in job.message


def test_a_session_that_comes_back_in_time_keeps_its_run(bench):
    b = bench()
    b.permits = threading.Semaphore(1)
    lease = Lease(b.engine, grace=0.1)
    job = lease.run(RunRequest(prompt="hello"))
    until(lambda: len(job.rounds) == 1)
    lease.released()
    lease.renew()
    time.sleep(0.2)
    assert job.state == "running"


def test_tabs_are_counted_while_they_are_there(bench):
    b = bench()
    here, away, closed = Lease(b.engine), Lease(b.engine, grace=0.01), Lease(b.engine)
    assert b.engine.tabs == 3
    away.released()
    until(lambda: away.gone)
    del closed  # its session has been forgotten
    gc.collect()
    assert b.engine.tabs == 1
    away.renew()
    assert b.engine.tabs == 2 and not here.gone


def test_tabs_can_be_counted_while_others_come(bench):
    engine, before, kept = bench().engine, sys.getswitchinterval(), []
    sys.setswitchinterval(1e-6)
    try:
        coming = threading.Thread(target=lambda: kept.append([Lease(engine) for _ in range(2000)]))
        coming.start()
        while coming.is_alive():
            assert engine.tabs >= 0  # a set that grows while it is gone through raises
        coming.join()
    finally:
        sys.setswitchinterval(before)
    assert engine.tabs == 2000 == len(kept[0])


def test_closing_stops_what_runs_and_what_waits(bench):
    b = bench()
    b.permits = threading.Semaphore(0)
    first, second = b.submit(owner="a"), b.submit(owner="b")
    until(lambda: first.state == "running")
    b.engine.close()
    assert (first.state, second.state, b.engine.state) == ("stopped", "stopped", "closed")
    with pytest.raises(BusyError):
        b.submit()


def test_importing_the_engine_imports_neither_torch_nor_streamlit():
    code = "import sys, specdec.engine; print([m for m in ('torch', 'transformers', 'streamlit', 'plotly') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


# --- a race: two runs in one job ---


def race(b, owner="a", **settings):
    return b.engine.submit(RunRequest(prompt="hello", settings=Settings(**settings), race=True), owner=owner)


def test_a_race_is_one_job_plain_first_and_nobody_comes_between(bench):
    b = bench()
    b.permits = threading.Semaphore(2)
    job = race(b)
    until(lambda: len(job.plain_rounds) == 2)
    other = b.submit("from somebody else", owner="b")
    assert (job.state, job.rounds, other.position) == ("running", [], 1)
    b.permits.release(100)
    until(lambda: not other.active)
    assert [(r.request.prompt, r.request.method) for r in b.runs] == [
        ("hello", "plain"),
        ("hello", "speculative"),
        ("from somebody else", "speculative"),
    ]
    assert job.state == "done" and len(job.plain_rounds) == len(job.rounds) == 3
    assert job.plain_trace.finish_reason == job.trace.finish_reason == "length"
    assert json.dumps(job.to_dict()) and "plain_rounds" not in job.to_dict()


def test_a_race_stopped_in_its_first_half_keeps_that_and_never_begins_the_second(bench):
    b = bench()
    b.permits = threading.Semaphore(1)
    job = race(b)
    until(lambda: job.plain_rounds)
    b.engine.stop(job)
    b.permits.release(100)
    until(lambda: not job.active)
    assert (job.state, len(b.runs), job.rounds, job.trace) == ("stopped", 1, [], None)
    assert job.plain_trace is not None and len(job.plain_trace.rounds) == len(job.plain_rounds) >= 1


def test_a_race_stopped_in_its_second_half_keeps_the_whole_first(bench):
    b = bench()
    b.permits = threading.Semaphore(4)
    job = race(b)
    until(lambda: job.rounds)
    b.engine.stop(job)
    b.permits.release(100)
    until(lambda: not job.active)
    assert (job.state, len(job.plain_rounds), job.plain_trace.finish_reason) == ("stopped", 3, "length")
    assert job.trace.finish_reason == "stopped"


def test_a_crash_in_the_second_half_keeps_both_and_the_next_run_works(bench):
    b = bench()
    starts = []

    def start(pair, request, stop):
        starts.append(request.method)
        return FakeRun(request, stop, crash_at=1 if request.method == "speculative" and request.race else -1)

    b.engine._start = start
    job = race(b)
    until(lambda: not job.active)
    assert job.state == "failed" and "boom" in job.message and starts == ["plain", "speculative"]
    assert len(job.plain_trace.rounds) == 3 and len(job.trace.rounds) == 1
    later = b.submit()
    until(lambda: not later.active)
    assert later.state == "done"
