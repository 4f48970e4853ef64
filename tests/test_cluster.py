"""Two replicas of the real engine under Ray Serve on this machine: what is lost when one of them dies, hangs or is replaced. Nothing."""

from __future__ import annotations

import os
import signal
import socket
import time
from dataclasses import replace

import pytest
from machines import same_but_times, until

from specdec import remote, remote_run, wire
from specdec.engine import BusyError, Lease, RunRequest
from specdec.remote import RemoteEngine
from specdec.trace import Settings

ray = pytest.importorskip("ray", reason="Ray is not installed (requirements-cluster.txt)")
pytestmark = pytest.mark.cluster

PATIENCE = 120.0  # seconds; a replica that is started again loads the models first
SAMPLED = Settings(temperature=0.8, seed=11, max_new_tokens=48)
LONG = SAMPLED.replace(max_new_tokens=400)
SKY = "Why is the sky blue?"


@pytest.fixture(scope="module")
def plan():
    from specdec.cluster import Plan

    return Plan(replicas=(2, 2), pairs=("embedded",), device="cpu", threads=1)


@pytest.fixture(scope="module")
def address(plan, embedded_folder):
    """Of a cluster of two replicas with the embedded pair; ended, whatever happens."""
    from specdec import cluster

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    try:
        yield cluster.start(plan, port=port, cpus=8)
    finally:
        cluster.stop()


@pytest.fixture
def engine(address):
    made = RemoteEngine(address)
    yield made
    made.close()


def ended(job, seconds: float = PATIENCE):
    until(lambda: not job.active, seconds=seconds)
    return job


def machines(engine, *, count: int = 2, seconds: float = PATIENCE) -> dict[str, dict]:
    """What each replica says of itself, by its name; waits until there are `count` of them."""
    found: dict[str, dict] = {}
    end = time.monotonic() + seconds
    while len(found) < count:
        assert time.monotonic() < end, f"found {list(found)}"
        status, said = engine.place.ask("GET", "/status")
        if status == 200:
            found[said["machine"]] = said
    return found


def serving(engine) -> int:
    """Process id of a replica that serves a run."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        for name, said in machines(engine).items():
            if said["serving"]:
                return int(name.rpartition(":")[2])
    raise AssertionError("no replica serves a run")


def same(a, b) -> bool:
    """Texts, verdicts and draws; replicas choose their kernels by measuring, and another kernel rounds differently."""
    near = same_but_times(shown(a), shown(b), most=1e-3)
    return near and all(map(wire.same_round, a.rounds, b.rounds))


def shown(trace):
    """Without the rows of the most probable tokens, whose order may change where two are alike."""
    bare = [replace(r, drafts=tuple(replace(d, top_p=(), top_q=()) for d in r.drafts)) for r in trace.rounds]
    return replace(trace, rounds=tuple(replace(r, outcome=replace(r.outcome, distribution=())) for r in bare))


@pytest.fixture(scope="module")
def whole(address):
    """The run that is disturbed below, undisturbed."""
    engine = RemoteEngine(address)
    job = ended(engine.submit(RunRequest(prompt=SKY, settings=SAMPLED), owner="whole"))
    engine.close()
    assert job.state == "done", job.message
    return job.trace


def test_runs_are_spread_over_the_replicas_and_the_same_on_each(engine, whole):
    jobs = [engine.submit(RunRequest(prompt=SKY, settings=SAMPLED), owner=str(i)) for i in range(2)]
    until(lambda: all(job.rounds for job in jobs), seconds=PATIENCE)
    assert all(job.active for job in jobs)  # rounds come while the run goes on
    assert sorted(said["serving"] for said in machines(engine).values()) == [1, 1]
    for job in jobs:
        assert ended(job).state == "done" and job.trace.rounds == tuple(job.rounds)
        assert job.trace.output_ids == whole.output_ids and same(job.trace, whole)


def test_a_client_that_leaves_frees_its_slot_within_two_seconds(engine):
    lease = Lease(engine, grace=0.1)
    job = lease.run(RunRequest(prompt=SKY, settings=LONG))
    until(lambda: job.rounds, seconds=PATIENCE)
    left = time.monotonic()
    lease.released()
    while any(said["serving"] for said in machines(engine).values()):
        assert time.monotonic() - left < 5
    assert job.state == "stopped" and job.trace.rounds == tuple(job.rounds)


def test_a_run_whose_replica_is_killed_goes_on_at_the_round_where_the_viewer_was(engine, whole):
    job = engine.submit(RunRequest(prompt=SKY, settings=SAMPLED), owner="a")
    until(lambda: len(job.rounds) >= 4, seconds=PATIENCE)
    os.kill(serving(engine), signal.SIGKILL)
    seen, fewest = list(job.rounds), len(job.rounds)
    assert job.active
    while job.active:
        assert len(job.rounds) >= fewest
        fewest = len(job.rounds)
        time.sleep(0.01)
    assert (job.state, job.message) == ("done", "")
    assert all(wire.same_round(a, b) for a, b in zip(seen, job.rounds, strict=False))
    assert same(job.trace, whole) and job.trace.rounds == tuple(job.rounds)


def test_a_run_whose_replica_hangs_goes_on_elsewhere_within_the_time_limit(engine, whole, monkeypatch):
    monkeypatch.setattr(remote_run, "SILENCE", 4.0)
    machines(engine)  # the killed one has been replaced
    job = engine.submit(RunRequest(prompt=SKY, settings=SAMPLED), owner="a")
    until(lambda: len(job.rounds) >= 4, seconds=PATIENCE)
    hung = serving(engine)
    os.kill(hung, signal.SIGSTOP)
    try:
        assert ended(job).state == "done", job.message
        assert same(job.trace, whole)
    finally:
        os.kill(hung, signal.SIGCONT)


@pytest.mark.slow  # two replicas load the models again
def test_a_rolling_restart_loses_no_run(engine, plan, address):
    from specdec import cluster

    before = set(machines(engine))
    jobs = [engine.submit(RunRequest(prompt=SKY, settings=SAMPLED), owner=str(i)) for i in range(2)]
    until(lambda: all(job.rounds for job in jobs), seconds=PATIENCE)
    cluster.start(plan, port=int(address.rpartition(":")[2]))  # returns when the new ones are there
    assert {ended(job).state for job in jobs} == {"done"}
    until(lambda: not before & set(machines(engine)), seconds=PATIENCE)


@pytest.mark.slow
def test_the_head_goes_and_comes_back(engine, plan, address, monkeypatch):
    from ray import serve

    from specdec import cluster

    monkeypatch.setattr(remote, "ASK", 0.3)
    monkeypatch.setattr(remote, "ASK_AGAIN", 0.3)
    until(lambda: engine.preload("") or engine.state == "ready", seconds=PATIENCE)
    serve.shutdown()
    until(lambda: engine.away, seconds=PATIENCE)
    with pytest.raises(BusyError, match="recordings play"):
        engine.submit(RunRequest(prompt=SKY, settings=SAMPLED), owner="a")
    cluster.start(replace(plan, replicas=(1, 1)), port=int(address.rpartition(":")[2]))
    until(lambda: engine.state == "ready", seconds=PATIENCE)
    assert ended(engine.submit(RunRequest(prompt=SKY, settings=SAMPLED), owner="a")).state == "done"
