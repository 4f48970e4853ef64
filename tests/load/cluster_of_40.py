"""A class on a cluster of this machine: many sessions that run at the same moment against 1 and 2 replicas, and what they got.

    python -m tests.load.cluster_of_40 --replicas 1 2 --sessions 40 --waves 2

What an app does for each tab is done here without its pages: a lease on the remote engine, a request, its rounds as they come.
Every replica has one thread. Two replicas on the cores of one machine cannot be twice as fast where other work has those cores, so
what is compared is what the runs cost: tokens for each second of a processor that the replicas used. Prints a report as JSON for
each number of replicas. To load the whole app as well, set SPECDEC_ENGINE and use `class_of_40`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from dataclasses import dataclass, field

import psutil

from specdec import cluster
from specdec.engine import Lease, RunRequest
from specdec.jobs import Job
from specdec.remote import RemoteEngine
from specdec.trace import Settings

WORDS = ("Explain why the sky is blue.", "Write a short poem about rain.", "Count from one to twenty.", "What is a prime number?")
LOOK = 0.02  # seconds between two looks at the jobs
PATIENCE = 600.0  # seconds for one wave
PORT = 8731


@dataclass
class Report:
    """Waits in seconds from the request to the first round. share: of the runs that each replica made, the largest one's.

    used: seconds of a processor that the replicas used; front: the same of Serve's own front door.
    """

    replicas: int
    sessions: int
    tokens: int
    completed: int = 0
    lost: list[str] = field(default_factory=list)
    seconds: float = 0.0
    new_tokens: int = 0
    rounds: int = 0
    waits: list[float] = field(default_factory=list)
    spans: list[float] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)
    made: dict[str, int] = field(default_factory=dict)
    used: float = 0.0
    front: float = 0.0
    load: tuple[float, ...] = ()

    def to_dict(self) -> dict:
        at = statistics.quantiles(self.waits, n=20, method="inclusive") if len(self.waits) > 1 else [0.0] * 19
        one = statistics.median(self.alone or [0.0])
        numbers = {
            "runs_per_minute": 60 * self.completed / self.seconds if self.seconds else 0.0,
            "wait_p50": at[9],
            "wait_p95": at[18],
            "wait_most": max(self.waits, default=0.0),
            "wait_alone": one,
            "most_fair_shares": max(self.waits, default=0.0) / (self.sessions * one) if one else 0.0,
            "run_p50": statistics.median(self.spans or [0.0]),
            "largest_share": max(self.made.values(), default=0) / max(1, sum(self.made.values())),
            "replica_cpu_seconds": self.used,
            "front_cpu_seconds": self.front,
            "cores_used": self.used / self.seconds if self.seconds else 0.0,
            "rounds_per_second": self.rounds / self.seconds if self.seconds else 0.0,
            "tokens_per_cpu_second": self.new_tokens / self.used if self.used else 0.0,
        }
        plain = {"replicas": self.replicas, "sessions": self.sessions, "tokens": self.tokens, "completed": self.completed}
        plain |= {name: round(value, 3) for name, value in numbers.items()}
        return plain | {"lost": self.lost, "machine_load": self.load, "cores": os.cpu_count()}


def processes(words: str) -> list[psutil.Process]:
    """Of Ray, by what they call themselves."""
    return [p for p in psutil.process_iter() if words in "".join(_line(p))]


def _line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def cpu(found: list[psutil.Process]) -> float:
    return sum(sum(p.cpu_times()[:2]) for p in found)


def request(number: int, tokens: int) -> RunRequest:
    return RunRequest(prompt=f"{WORDS[number % len(WORDS)]} ({number})", settings=Settings(max_new_tokens=tokens, seed=number))


def alone(engine: RemoteEngine, tokens: int) -> float:
    """Seconds to the first round of one who has the cluster for itself."""
    job = Lease(engine).run(request(0, tokens))
    _follow(engine, [job], Report(0, 1, tokens))
    return job.first_round - job.created


def _follow(engine: RemoteEngine, jobs: list[Job], report: Report) -> None:
    """Until all have ended."""
    end = time.monotonic() + PATIENCE
    while any(job.active for job in jobs) and time.monotonic() < end:
        for job in jobs:
            if job.active and (following := engine._following.get(job.id)) is not None and following.machine:
                report.made[job.id] = following.machine
        time.sleep(LOOK)


def wave(engine: RemoteEngine, report: Report, number: int) -> None:
    """All sessions press Run at the same moment."""
    replicas, front = processes("ray::ServeReplica"), processes("ProxyActor")
    before, front_before, begun = cpu(replicas), cpu(front), time.monotonic()
    leases = [Lease(engine) for _ in range(report.sessions)]
    jobs = [lease.run(request(number * report.sessions + i, report.tokens)) for i, lease in enumerate(leases)]
    made = Report(0, 0, 0)
    _follow(engine, jobs, made)
    report.seconds += time.monotonic() - begun
    report.used += cpu(replicas) - before
    report.front += cpu(front) - front_before
    for job in jobs:
        if job.state != "done":
            report.lost.append(f"{job.state}: {job.message}")
            continue
        report.completed += 1
        report.new_tokens += len(job.trace.output_ids)
        report.rounds += len(job.rounds)
        report.waits.append(job.first_round - job.created)
        report.spans.append(job.finished - job.created)
        machine = made.made.get(job.id, "")
        report.made[machine] = report.made.get(machine, 0) + 1


def hold(*, replicas: int, sessions: int, waves: int, tokens: int) -> Report:
    """The test against one number of replicas, whose cluster is started and ended here."""
    report = Report(replicas, sessions, tokens)
    plan = cluster.Plan(replicas=(replicas, replicas), pairs=("embedded",), device="cpu", threads=1)
    try:
        engine = RemoteEngine(cluster.start(plan, port=PORT, cpus=8))
        for _ in range(2 * replicas):  # warms each of them up
            alone(engine, tokens)
        for number in range(waves):
            report.alone.append(alone(engine, tokens))
            wave(engine, report, number)
            print(f"{replicas} replicas, wave {number + 1}: {report.completed} done", file=sys.stderr, flush=True)
        engine.close()
        report.load = tuple(round(one, 1) for one in os.getloadavg())
    finally:
        cluster.stop()
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--sessions", type=int, default=40)
    parser.add_argument("--waves", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=8)
    asked = parser.parse_args()
    found = []
    for count in asked.replicas:
        report = hold(replicas=count, sessions=asked.sessions, waves=asked.waves, tokens=asked.tokens)
        found.append(report.to_dict())
        print(json.dumps(found[-1], indent=1), flush=True)
    if len(found) > 1 and found[0]["tokens_per_cpu_second"]:
        ratio = found[-1]["tokens_per_cpu_second"] / found[0]["tokens_per_cpu_second"]
        print(f"tokens for a second of a processor, last against first: {ratio:.2f}", flush=True)
    return 1 if any(one["lost"] for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
