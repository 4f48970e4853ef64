"""A class on one server: the real app on loopback, many tabs that run and watch, and what they got.

    python -m tests.load.class_of_40 --pupils 40 --runs 200

Every tab opens the page, starts a run of a few tokens and watches it to its end; some press Stop, one in ten is killed in mid-run.
In waves: all tabs of a wave press Run at the same moment, the worst that a class can do. Prints a report as JSON; the exit code is
1 if a run was lost, something failed, somebody waited for more than twice a fair share, or memory grew.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from .pupil import Lost, Pupil

ROOT = Path(__file__).resolve().parents[2]
STOPS, KILLS = 7, 10  # one pupil in so many presses Stop, is killed
FORGET = 3  # seconds that the server keeps a session without connection here, so that memory settles within minutes
FREED = 2.0  # seconds after which a killed session holds nothing any more
WORDS = ("Explain why the sky is blue.", "Write a short poem about rain.", "Count from one to twenty.", "What is a prime number?")


@dataclass
class Report:
    """Waits in seconds from pressing Run to the first round on the stage."""

    pupils: int
    tokens: int
    waves: int = 0
    completed: int = 0
    stopped: int = 0
    killed: int = 0
    refused: int = 0
    lost: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)  # the wait of one who has the server for itself, before each wave
    waits: list[list[float]] = field(default_factory=list)  # of each wave
    spans: list[float] = field(default_factory=list)
    freed: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)  # MB after each wave, its sessions forgotten
    cpu: list[float] = field(default_factory=list)  # share of one core during each wave
    megabytes: float = 0.0
    load: tuple[float, ...] = ()

    @property
    def shares(self) -> list[float]:
        """Each wait in fair shares of its wave: 1 if the machine were handed from one to the next, each for a first round alone."""
        return [wait / (self.pupils * one) for waits, one in zip(self.waits, self.alone, strict=True) for wait in waits]

    @property
    def growth(self) -> float:
        """Of memory over the second half of the waves, the first half being the warm-up: least squares, as a share."""
        settled = self.memory[len(self.memory) // 2 :]
        if len(settled) < 3:
            return 0.0
        slope = statistics.linear_regression(range(len(settled)), settled).slope
        return slope * (len(settled) - 1) / statistics.fmean(settled)

    @property
    def good(self) -> bool:
        late = [f for f in self.freed if f > FREED]
        return not (self.lost or self.errors or late or self.growth > 0.05 or max(self.shares, default=0.0) > 2)

    def to_dict(self) -> dict:
        waits = [wait for wave in self.waits for wait in wave]
        at = statistics.quantiles(waits, n=20, method="inclusive") if len(waits) > 1 else [0.0] * 19
        numbers = {
            "wait_p50": at[9],
            "wait_p95": at[18],
            "wait_most": max(waits, default=0.0),
            "wait_alone": statistics.median(self.alone),
            "most_fair_shares": max(self.shares, default=0.0),
            "run_p50": statistics.median(self.spans or [0.0]),
            "freed_most": max(self.freed, default=0.0),
            "cpu_p50": statistics.median(self.cpu),
            "memory_growth": self.growth,
            "received_mb_per_run": self.megabytes / max(1, len(self.spans)),
        }
        plain = {n: getattr(self, n) for n in ("pupils", "tokens", "waves", "completed", "stopped", "killed", "refused")}
        plain |= {name: round(value, 3) for name, value in numbers.items()}
        plain |= {"memory_mb": [round(m) for m in self.memory], "machine_load": self.load, "cores": os.cpu_count()}
        return plain | {"lost": self.lost, "errors": self.errors, "good": self.good}


@contextmanager
def served(*, log: Path):
    """The app as people start it, on a free port of loopback. Yields its address and its process."""
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.headless", "true", "--server.port", "0"]
    command += ["--server.address", "127.0.0.1", "--browser.serverAddress", "127.0.0.1"]
    command += ["--server.disconnectedSessionTTL", str(FORGET)]
    with log.open("w") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)
    try:
        end = time.monotonic() + 120
        while (found := re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text())) is None:
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the server did not start:\n{log.read_text()}")
            time.sleep(0.1)
        address = f"http://127.0.0.1:{found[1]}"
        end = time.monotonic() + 300
        while ready(address)["state"] != "ready":
            if time.monotonic() > end:
                raise RuntimeError("the pair was not loaded within 300 s")
            time.sleep(0.3)
        yield address, psutil.Process(process.pid)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def ready(address: str) -> dict:
    """What the server says of its engine."""
    try:
        with urllib.request.urlopen(address + "/readyz", timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)


async def until_idle(address: str, seconds: float) -> float | None:
    """Seconds until no run is served and none waits; None if that does not come."""
    begun = time.monotonic()
    while (now := await asyncio.to_thread(ready, address))["running"] or now["queue"]:
        if time.monotonic() - begun > seconds:
            return None
        await asyncio.sleep(0.05)
    return time.monotonic() - begun


async def lesson(number: int, wave: int, address: str, report: Report, gate: asyncio.Barrier, patience: float) -> None:
    """One pupil of one wave."""
    killed, stops = number % KILLS == KILLS - 1, number % STOPS == STOPS - 1
    prompt = f"{WORDS[number % len(WORDS)]} ({wave}, {number})"
    tokens = 256 if killed else report.tokens  # so that there is a midst
    pupil = Pupil(address, prompt=prompt, max_new_tokens=tokens, seed=number)
    who = f"pupil {number} of wave {wave}"
    waiting = True
    try:
        async with pupil:
            await pupil.opened(patience)
            waiting = False
            await gate.wait()
            await pupil.press("run")
            await pupil.saw_round(patience)
            if killed:
                await pupil.kill()
                report.killed += 1
            else:
                if stops:
                    await pupil.press("stop")
                await _watch(pupil, report, who, patience)
    except Lost as lost:
        report.lost.append(f"{who}: {lost}")
    except Exception as error:  # noqa: BLE001 - counted, and the others go on
        report.errors.append(f"{who}: {type(error).__name__}: {error}")
    if waiting:  # one who does not come lets the others begin
        await gate.wait()
    report.errors += [f"{who}: {message}" for message in pupil.errors]
    report.megabytes += pupil.bytes / 1e6
    if pupil.first_round is not None:
        report.waits[wave].append(pupil.first_round - pupil.pressed)


async def _watch(pupil: Pupil, report: Report, who: str, patience: float) -> None:
    state = await pupil.saw_end(patience)
    if state == "done":
        report.completed += 1
        report.spans.append(pupil.ended - pupil.pressed)
        if not pupil.stage["rounds"] or not pupil.stage["finish_reason"]:
            report.errors.append(f"{who}: a run without rounds or without an end: {pupil.stage['finish_reason']!r}")
    elif state == "stopped":
        report.stopped += 1
    elif state == "refused":
        report.refused += 1
    else:
        report.errors.append(f"{who}: the run {state}: {pupil.stage['message']}")


async def alone(address: str, tokens: int, patience: float) -> float:
    """Seconds to the first round of a pupil that has the server for itself."""
    async with Pupil(address, prompt=WORDS[0], max_new_tokens=tokens) as pupil:
        await pupil.opened(patience)
        await pupil.press("run")
        await pupil.saw_end(patience)
        return pupil.first_round - pupil.pressed


async def broken(address: str, report: Report, patience: float) -> None:
    """A pupil with a long run whose connection breaks, when nobody else is there."""
    pupil = Pupil(address, prompt=WORDS[1], max_new_tokens=256, temperature=1.2)
    async with pupil:
        await pupil.opened(patience)
        await pupil.press("run")
        await pupil.saw_round(patience)
        await pupil.kill()
        freed = await until_idle(address, patience)
        report.freed.append(freed if freed is not None else patience)


async def attend(address: str, process: psutil.Process, report: Report, *, runs: int, seconds: float, patience: float) -> None:
    """Waves of pupils until there were `runs` runs or `seconds` are over."""
    begun = time.monotonic()
    await alone(address, report.tokens, patience)  # warms the server up
    while report.waves * report.pupils < runs and time.monotonic() - begun < seconds:
        report.alone.append(await alone(address, report.tokens, patience))
        report.waits.append([])
        gate, clock, used = asyncio.Barrier(report.pupils), time.monotonic(), sum(process.cpu_times()[:2])
        await asyncio.gather(*(lesson(number, report.waves, address, report, gate, patience) for number in range(report.pupils)))
        report.cpu.append((sum(process.cpu_times()[:2]) - used) / (time.monotonic() - clock))
        if await until_idle(address, 10 * FREED) is None:
            report.errors.append(f"after wave {report.waves} the engine still runs something")
        await asyncio.sleep(FORGET + 2)
        report.memory.append(process.memory_info().rss / 1e6)
        report.waves += 1
        said = (
            f"longest wait {max(report.waits[-1], default=0.0):.1f} s, alone {report.alone[-1]:.1f} s, {report.memory[-1]:.0f} MB"
        )
        print(f"wave {report.waves}: {report.completed} done, {said}", file=sys.stderr, flush=True)
    for _ in range(3):
        await broken(address, report, patience)


def hold(*, pupils: int, runs: int, tokens: int, seconds: float = 1200, patience: float = 300) -> Report:
    """The whole test. Raises RuntimeError if the server does not start."""
    report = Report(pupils=pupils, tokens=tokens)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.txt"
        with served(log=log) as (address, process):
            asyncio.run(attend(address, process, report, runs=runs, seconds=seconds, patience=patience))
            report.load = tuple(round(one, 1) for one in os.getloadavg())
        said = log.read_text()
    if "Traceback" in said or "ERROR" in said:
        report.errors.append(f"the server's log: {said[-3000:]}")
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pupils", type=int, default=40)
    parser.add_argument("--runs", type=int, default=200, help="in all, in waves of so many as there are pupils")
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=1200, help="no further wave begins after these")
    asked = parser.parse_args()
    report = hold(pupils=asked.pupils, runs=asked.runs, tokens=asked.tokens, seconds=asked.seconds)
    print(json.dumps(report.to_dict(), indent=1))
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
