"""Many runs on one engine: turns of one round each, passes that are shared, runs that are alone, and one person's crash."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from test_engine import WAIT, Bench, a_round, until

from specdec.decoding import generate, plain
from specdec.engine import Engine, Limits, RunRequest
from specdec.errors import SettingsError
from specdec.jobs import Job
from specdec.service import Pace, Served, Turns
from specdec.trace import Settings, Trace


@pytest.fixture
def bench():
    made: list[Bench] = []

    def make(**limits) -> Bench:
        made.append(Bench(limits=Limits(**limits)))
        return made[-1]

    yield make
    for one in made:
        one.engine.close()


def begin(b: Bench, count: int) -> list[Job]:
    """Runs of three rounds each that all wait for permits."""
    b.permits = threading.Semaphore(0)
    jobs = [b.submit(f"prompt {number}", owner=str(number)) for number in range(count)]
    until(lambda: len(b.runs) == count)
    return jobs


def test_everybody_gets_a_round_before_anybody_gets_a_second(bench):
    b = bench(at_once=5, batch=2)
    jobs = begin(b, 5)
    for permits in range(1, 16):
        b.permits.release()
        until(lambda permits=permits: sum(len(job.rounds) for job in jobs) >= permits - 1)  # a turn of two ends with its second
        counts = [len(job.rounds) for job in jobs]
        assert max(counts) - min(counts) <= 1, counts
    until(lambda: all(job.state == "done" for job in jobs))
    assert all(len(job.rounds) == 3 for job in jobs)


def test_a_newcomer_is_next(bench):
    b = bench(at_once=9, batch=1)
    jobs = begin(b, 4)
    b.permits.release(4)
    until(lambda: all(len(job.rounds) == 1 for job in jobs))
    late = b.submit("late", owner="late")
    b.permits.release()  # ends the turn that has begun
    until(lambda: late.state == "running")
    b.permits.release()
    until(lambda: len(late.rounds) == 1)
    assert sum(len(job.rounds) for job in jobs) == 5
    b.permits.release(99)


def test_those_beyond_the_limit_wait_and_are_told_where(bench):
    b = bench(at_once=2, batch=2)
    b.permits = threading.Semaphore(0)
    jobs = [b.submit(owner=str(number)) for number in range(4)]
    until(lambda: len(b.runs) == 2 and jobs[3].position == 2)
    assert [(job.state, job.position) for job in jobs] == [("running", 0), ("running", 0), ("queued", 1), ("queued", 2)]
    assert b.engine.serving == 2 and b.engine.queue_length == 2 and b.engine.running
    b.permits.release(99)
    until(lambda: all(job.state == "done" for job in jobs))


def test_a_timed_run_has_the_machine_for_itself_and_the_others_go_on_behind_it(bench):
    b = bench(at_once=4, batch=2)
    jobs = begin(b, 2)
    alone = b.engine.submit(RunRequest(prompt="timed", record=False), owner="timed")
    b.permits.release(2)  # the turn that has begun
    until(lambda: alone.state == "running")
    assert [len(job.rounds) for job in jobs] == [1, 1]
    b.engine.stop(jobs[1])
    b.permits.release(1)
    until(lambda: jobs[1].state == "stopped")  # and not when the other one has ended
    assert alone.state == "running"
    b.permits.release(2)
    until(lambda: alone.state == "done")
    assert [len(job.rounds) for job in jobs] == [1, 1] and len(alone.rounds) == 3
    b.permits.release(99)
    until(lambda: jobs[0].state == "done")


def test_a_crash_is_the_message_of_one_and_a_stop_is_the_end_of_one(bench):
    b = bench(at_once=3, batch=3)
    b.crash_at = {"prompt 1": 1}
    jobs = begin(b, 3)
    b.permits.release(3)
    until(lambda: all(len(job.rounds) == 1 for job in jobs))
    b.engine.stop(jobs[2])
    b.permits.release(99)
    until(lambda: not any(job.active for job in jobs))
    assert [job.state for job in jobs] == ["done", "failed", "stopped"]
    assert "others are not affected" in jobs[1].message and jobs[1].trace is not None
    assert b.submit("after").id and b.engine.state == "ready"


def test_another_pair_is_loaded_when_all_turns_are_over(bench):
    b = bench(at_once=3, batch=3)
    jobs = begin(b, 2)
    other = b.engine.submit(RunRequest(prompt="x", pair="other"), owner="other")
    third = b.submit("behind it", owner="third")
    b.permits.release(99)
    until(lambda: not third.active)
    assert [job.state for job in (*jobs, other, third)] == ["done"] * 4
    assert b.loads == ["embedded", "other", "embedded"]


def test_on_a_real_loop_everybody_gets_the_text_of_a_run_alone(tiny_pair):
    pair = tiny_pair("llama", layers=3, measure=True)
    engine = Engine(lambda name, progress: pair, limits=Limits(at_once=6, batch=4))
    settings = Settings(raw=True, draft_length=3, max_new_tokens=20)
    requests = [RunRequest(prompt=p, settings=settings.replace(seed=i, temperature=0.7 * (i % 2))) for i, p in enumerate("abcdef")]
    requests.append(RunRequest(prompt="g", settings=settings, method="plain"))
    gate = threading.Event()
    engine._loader = lambda name, progress: gate.wait(5) and pair
    jobs = [engine.submit(request, owner=str(number)) for number, request in enumerate(requests)]
    gate.set()
    until(lambda: not any(job.active for job in jobs), seconds=60)
    try:
        for job, request in zip(jobs, requests, strict=True):
            begin_ = plain if request.method == "plain" else generate
            assert job.state == "done" and job.trace.output_ids == begin_(pair, request.prompt, request.settings).output_ids
        shared = [job.trace.shared for job in jobs]
        assert max(s or 0 for s in shared) == 4 and all(job.trace.plain_step_seconds is None for job in jobs if job.trace.shared)
        assert Trace.from_json(jobs[0].trace.to_json()).shared == jobs[0].trace.shared
        last = engine.submit(requests[0], owner="alone")
        until(lambda: not last.active, seconds=60)
        assert last.trace.shared is None and last.trace.plain_step_seconds == pair.plain_step_seconds
    finally:
        engine.close()


def test_an_error_inside_one_real_run_leaves_the_others_their_round(tiny_pair, monkeypatch):
    from specdec.batch import advance
    from specdec.decoding import stream

    pair = tiny_pair("llama", layers=3)
    runs = [stream(pair, prompt, Settings(raw=True, draft_length=2, max_new_tokens=9)) for prompt in ("abc", "d", "e")]
    monkeypatch.setattr(runs[1].drafter, "settle", lambda kept: 1 / 0)
    first, broken, third = advance(runs)
    assert first is runs[0].rounds[0] and third is runs[2].rounds[0] and isinstance(broken, ZeroDivisionError)
    assert runs[0].shared == 3 and runs[0].seconds > 0


def test_who_reads_beside_a_run_shares_its_turn(tiny_pair, monkeypatch):
    """The reading of another prompt took a part of its time: it is no run of its own any more, and teaches nobody how fast a round is."""
    from specdec.batch import READING, advance
    from specdec.decoding import stream

    pair = tiny_pair("llama", layers=3)
    going, reads = (stream(pair, prompt, Settings(raw=True, drafter="lookup", max_new_tokens=9)) for prompt in ("abc", "d e f g h i"))
    advance([going])
    assert going.shared == 1
    monkeypatch.setattr(pair.target, "piece", 2, raising=False)
    assert advance([going, reads])[1] is READING
    assert going.shared == 2


def test_limits_from_the_environment():
    found = Limits.from_environment({"SPECDEC_QUEUE": "7", "SPECDEC_RUN_SECONDS": "1.5", "SPECDEC_BATCH": " ", "PATH": "x"})
    assert found == Limits(queue=7, run_seconds=1.5)
    for bad in ("many", "0", "-1", "1.5"):
        with pytest.raises(SettingsError, match=f"SPECDEC_AT_ONCE is '{bad}': give a whole number above 0"):
            Limits.from_environment({"SPECDEC_AT_ONCE": bad})


def test_prompts_of_one_turn_are_read_up_to_a_length_and_there_is_always_one():
    reads = [300, 300, 0, 200, 0, 900]
    turns = Turns(4)
    for tokens in reads:
        turns.add(served(tokens))
    assert [one.run.reader.next_tokens for one in turns._next()] == [300, 0, 200, 0]  # 300 more are too many
    lone = Turns(4)
    lone.add(served(900))
    assert len(lone._next()) == 1


def served(to_read=0, *, rounds=0, tokens=100) -> Served:
    """One whose rounds have made a token each."""
    job = Job(request=RunRequest(prompt="x", settings=Settings(max_new_tokens=tokens)), rounds=[a_round(i) for i in range(rounds)])
    reader = SimpleNamespace(next_tokens=to_read)
    return Served(job, type("Run", (), {"reader": reader, "__iter__": lambda self: iter(())})())


def test_the_expected_wait_comes_from_the_pace_of_the_last_turns():
    pace = Pace()
    assert pace.first_round(0, size=8, newcomers=3) is None and pace.free_place(0, []) is None
    pace.learn(1.6, runs=8, new=8)
    assert pace.new == pytest.approx(0.2)
    assert [pace.first_round(place, size=8, newcomers=20) for place in (0, 7, 8, 19)] == pytest.approx([1.6, 1.6, 3.2, 4.0])
    assert pace.free_place(0, [served(rounds=1)]) is None  # nobody has measured a turn without newcomers yet
    pace.learn(0.8, runs=8, new=0)
    assert pace.old == pytest.approx(0.1)
    running = [served(rounds=4, tokens=10), served(rounds=4, tokens=6)]  # 6 and 2 rounds left, and each takes 2 · 0.1 s
    assert pace.free_place(0, running) == pytest.approx(0.4) and pace.free_place(1, running) == pytest.approx(1.2)
    assert pace.free_place(2, running) is None and pace.free_place(0, [*running, served(rounds=0)]) is None


def test_those_who_wait_are_told_their_place_and_their_time_where_it_can_be_told(bench):
    b = bench(at_once=3, batch=1)
    jobs = begin(b, 3)
    late = b.submit("late", owner="late")
    assert [job.due for job in (*jobs, late)] == [None] * 4  # no turn has been measured yet
    b.permits.release()
    until(lambda: len(jobs[0].rounds) == 1)
    until(lambda: jobs[2].due is not None)
    assert [jobs[1].ahead, jobs[2].ahead, late.position, late.due] == [0, 1, 1, None]
    assert 0 < jobs[1].due - jobs[1].created <= jobs[2].due - jobs[1].created < 2 * WAIT
    b.engine.submit(RunRequest(prompt="timed", record=False), owner="timed")
    assert [job.due for job in (*jobs[1:], late)] == [None] * 3  # how long it will have the machine for itself nobody knows
    b.permits.release(99)


def test_a_stopped_run_leaves_before_the_next_turn_and_not_with_its_own(bench):
    b = bench(at_once=9, batch=1)
    jobs = begin(b, 4)
    b.permits.release(4)
    until(lambda: all(len(job.rounds) == 1 for job in jobs))
    b.engine.stop(jobs[3])  # the turns of three others come first
    b.permits.release()  # ends the turn that has begun
    until(lambda: not jobs[3].active)
    assert jobs[3].state == "stopped" and sum(len(job.rounds) for job in jobs) == 5 and b.engine.serving == 3
    b.permits.release(99)


def test_a_shared_pass_that_fails_ends_its_runs_and_not_the_worker(tiny_pair, monkeypatch):
    import specdec.batch

    pair = tiny_pair("llama", layers=3)
    engine = Engine(lambda name, progress: pair, limits=Limits(at_once=4, batch=4))
    real, calls = specdec.batch.advance, []

    def breaks_once(runs):
        calls.append(len(runs))
        if len(calls) == 1:
            raise MemoryError("no room")
        return real(runs)

    monkeypatch.setattr(specdec.batch, "advance", breaks_once)
    request = RunRequest(prompt="abc", settings=Settings(raw=True, max_new_tokens=3))
    try:
        first = engine.submit(request, owner="a")
        until(lambda: not first.active, seconds=60)
        second = engine.submit(request, owner="b")
        until(lambda: not second.active, seconds=60)
    finally:
        engine.close()
    assert first.state == "failed" and "MemoryError" in first.message and second.state == "done"
