"""Two replicas of the real engine under Ray Serve on this machine: nothing is lost when one of them dies, hangs or is replaced."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from dataclasses import replace

import pytest
from machines import same_but_times
from waiting import until

from specdec import remote, remote_run, wire
from specdec.engine import BusyError, RunRequest
from specdec.errors import ModelError
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


def test_a_front_door_that_opens_late_is_waited_for(plan, monkeypatch):
    """Serve gives up after a minute, and goes on opening it."""
    from ray import serve

    from specdec import cluster

    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = door.getsockname()[1]
        done = []

        def starts(http_options):
            done.append("start")
            if len(done) == 1:
                raise TimeoutError("HTTP proxies not available after 60s.")

        def runs(*_, **__):
            done.append("run")
            threading.Timer(0.5, lambda: (done.append("open"), door.listen())).start()

        monkeypatch.setattr(ray, "is_initialized", lambda: True)
        monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 8.0})
        monkeypatch.setattr(cluster, "_require_free", lambda *_: None)
        monkeypatch.setattr(serve, "start", starts)
        monkeypatch.setattr(serve, "run", runs)
        assert cluster.start(plan, port=port) == f"http://127.0.0.1:{port}"
        assert done == ["start", "start", "run", "open"]
    monkeypatch.setattr(cluster, "DOOR_SECONDS", 0.3)
    with pytest.raises(ModelError, match=f"Nobody answers at 127.0.0.1:{port} after 0 s"):
        cluster._wait_for("127.0.0.1", port)


@pytest.fixture
def engine(address):
    made = RemoteEngine(address)
    yield made
    made.close()


def ended(job, seconds: float = PATIENCE):
    until(lambda: not job.active, seconds=seconds)
    return job


def machine(engine, job) -> int:
    """Process id of the replica that makes a run."""
    return int(engine._following[job.id].machine.rpartition(":")[2])


def replicas() -> int:
    """How many are there and well."""
    from ray import serve

    return serve.status().applications["specdec"].deployments["specdec"].replica_states.get("RUNNING", 0)


def until_idle(engine, *, count: int = 2, seconds: float = PATIENCE) -> None:
    """Until so many replicas have said that they serve nobody. Whoever has least to do answers, so a busy one is not overlooked."""
    found: set[str] = set()
    end = time.monotonic() + seconds
    while len(found) < count:
        assert time.monotonic() < end, f"only {found} are idle"
        said = engine.place.ask("GET", "/status")[1]
        (found.discard if said["serving"] else found.add)(said["machine"])


def one_each(engine, settings: Settings) -> list:
    """A run on each of the two replicas, both begun."""
    jobs = []
    for owner in ("a", "b"):
        jobs.append(engine.submit(RunRequest(prompt=SKY, settings=settings), owner=owner))
        until(lambda: jobs[-1].rounds, seconds=PATIENCE)
    assert all(job.active for job in jobs)  # rounds come while the run goes on
    assert len({machine(engine, job) for job in jobs}) == 2
    return jobs


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
    for job in one_each(engine, SAMPLED):
        assert ended(job).state == "done" and job.trace.rounds == tuple(job.rounds)
        assert job.trace.output_ids == whole.output_ids and same(job.trace, whole)


def test_clients_that_leave_free_their_slots(engine):
    jobs = one_each(engine, LONG)
    left = time.monotonic()
    for job in jobs:
        engine.stop(job)
    until_idle(engine)
    print(f"free after {time.monotonic() - left:.2f} s at most")  # 2 s are promised, but not of a machine that does other work
    assert all(job.state == "stopped" and job.trace.rounds == tuple(job.rounds) for job in jobs)


def test_a_run_whose_replica_is_killed_goes_on_at_the_round_where_the_viewer_was(engine, whole):
    job = engine.submit(RunRequest(prompt=SKY, settings=SAMPLED), owner="a")
    until(lambda: len(job.rounds) >= 4, seconds=PATIENCE)
    os.kill(machine(engine, job), signal.SIGKILL)
    seen, fewest = list(job.rounds), len(job.rounds)
    assert job.active
    while job.active:
        assert len(job.rounds) >= fewest
        fewest = len(job.rounds)
        time.sleep(0.01)
    assert (job.state, job.message) == ("done", "")
    assert all(wire.same_round(a, b) for a, b in zip(seen, job.rounds, strict=False))
    assert same(job.trace, whole) and job.trace.rounds == tuple(job.rounds)


@pytest.mark.slow  # the killed replica has to be replaced first
def test_a_run_whose_replica_hangs_goes_on_elsewhere_within_the_time_limit(engine, whole, monkeypatch):
    monkeypatch.setattr(remote_run, "SILENCE", 4.0)
    until(lambda: replicas() == 2, seconds=PATIENCE)  # the killed one has been replaced
    job = engine.submit(RunRequest(prompt=SKY, settings=SAMPLED), owner="a")
    until(lambda: len(job.rounds) >= 4, seconds=PATIENCE)
    hung = machine(engine, job)
    os.kill(hung, signal.SIGSTOP)
    try:
        assert ended(job).state == "done", job.message
        assert same(job.trace, whole)
    finally:
        os.kill(hung, signal.SIGCONT)


@pytest.mark.slow  # two replicas load the models again
def test_a_rolling_restart_loses_no_run(engine, plan, address):
    from specdec import cluster

    until(lambda: replicas() == 2, seconds=PATIENCE)
    jobs = [engine.submit(RunRequest(prompt=SKY, settings=SAMPLED), owner=str(i)) for i in range(2)]
    until(lambda: all(job.rounds for job in jobs), seconds=PATIENCE)
    before = {machine(engine, job) for job in jobs}
    cluster.start(plan, port=int(address.rpartition(":")[2]))  # returns when the new ones are there
    assert {ended(job).state for job in jobs} == {"done"}
    again = [engine.submit(RunRequest(prompt=SKY, settings=SAMPLED), owner=str(i)) for i in range(2)]
    until(lambda: all(job.rounds for job in again), seconds=PATIENCE)
    assert not before & {machine(engine, job) for job in again}


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
