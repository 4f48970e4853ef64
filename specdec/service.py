"""How the engine serves several runs: a turn is one round of a few of them, the next turn is that of the next ones.

Everybody sees movement, however many there are, and what runs of one turn ask of a model is done in one pass (`specdec.batch`). A
run whose times are what is wanted (a race, a measurement) has the machine for itself from its beginning to its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from specdec.jobs import Job, RunRequest


class Reading(Enum):
    """What a turn brings to a run whose prompt is long: no round yet."""

    PIECE = "a piece of the prompt was read"


READING = Reading.PIECE
Outcome = Any  # of one run in one turn: a Round, None when it has ended, the exception that ended it, or READING
READ_AT_ONCE = 512  # tokens of prompts in one turn


@dataclass(eq=False)
class Served:
    """A job that is being served. run: its run, begun. used: seconds of the engine that it took, shared passes by equal parts."""

    job: Job
    run: Any
    used: float = 0.0
    looked: float = 0.0
    rounds: Iterator[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.rounds = iter(self.run)


def alone(request: RunRequest) -> bool:
    """Whether the run must not share the machine: its times are compared with those of others."""
    timed = request.experiment is not None and request.experiment.timed
    return request.race or bool(request.together) or not request.record or timed


def turn(group: Sequence[Served]) -> list[Outcome]:
    """One round of each; what can be done in one pass is."""
    begun = time.perf_counter()
    runs = [one.run for one in group]
    if all(hasattr(run, "steps") for run in runs):
        from specdec.batch import advance

        try:
            outcomes: list[Outcome] = advance(runs)
        except Exception as error:  # noqa: BLE001 - a pass that was shared has failed: nobody can say how far each run has come
            outcomes = [error] * len(runs)
    else:
        outcomes = [_next(one) for one in group]
    seconds = time.perf_counter() - begun
    for one in group:
        one.used += seconds / len(group)
    return outcomes


def _next(one: Served) -> Outcome:
    try:
        return next(one.rounds, None)
    except Exception as error:  # noqa: BLE001 - a crash of one run is this run's message and nobody else's
        return error


class Turns:
    """Whose turn it is. `add` puts a newcomer in front, so that its first round comes soon.

    Only the worker changes it; others may look at any time, for what they look at is never changed but replaced.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._served: tuple[Served, ...] = ()
        self._newcomers = 0
        self.begun = 0.0  # when the present turn began
        self.pace = Pace()

    def __len__(self) -> int:
        return len(self._served)

    def __iter__(self) -> Iterator[Served]:
        return iter(self._served)

    @property
    def newcomers(self) -> tuple[Served, ...]:
        """Those that have had no turn yet, in order."""
        return self._served[: self._newcomers]

    def add(self, one: Served) -> None:
        self._served = (*self._served[: self._newcomers], one, *self._served[self._newcomers :])
        self._newcomers += 1

    def take(self, outcome_of: Callable[[Served, Outcome], bool]) -> None:
        """The next turn. outcome_of(one, outcome) says whether it goes on; then it stands behind all others."""
        group = self._next()
        rest = tuple(one for one in self._served if one not in group)
        new = sum(one in group for one in self.newcomers)
        self.begun = time.time()
        outcomes = turn(group)
        self.pace.learn(time.time() - self.begun, runs=len(group), new=new)
        self._newcomers -= new
        stay = tuple(one for one, outcome in zip(group, outcomes, strict=True) if outcome_of(one, outcome))
        self._served = (*rest, *stay)

    def leave(self, gone: Callable[[Served], bool]) -> tuple[Served, ...]:
        """Take out those that need no further turn; returns them."""
        found = tuple(one for one in self._served if gone(one))
        self._newcomers -= sum(one in found for one in self.newcomers)
        self._served = tuple(one for one in self._served if one not in found)
        return found

    def _next(self) -> tuple[Served, ...]:
        """The first ones, as many as share a turn. Prompts are read in it only up to a certain length; there is always one."""
        group: list[Served] = []
        tokens = 0
        for one in self._served:
            reads = getattr(getattr(one.run, "reader", None), "next_tokens", 0)
            if len(group) < self.size and (not reads or not tokens or tokens + reads <= READ_AT_ONCE):
                group.append(one)
                tokens += reads
        return tuple(group)


@dataclass
class Pace:
    """How fast the turns of the last minutes were: seconds of a turn for each run in it. None before there was one."""

    new: float | None = None  # of runs whose prompts had to be read
    old: float | None = None

    def learn(self, seconds: float, *, runs: int, new: int) -> None:
        """A turn of `runs` runs took so long; the prompts of `new` of them were read in it."""
        if new:
            spent = seconds - (self.old or 0.0) * (runs - new)
            self.new = _towards(self.new, max(0.0, spent) / new)
        else:
            self.old = _towards(self.old, seconds / runs)

    def first_round(self, place: int, *, size: int, newcomers: int) -> float | None:
        """Seconds until the newcomer at `place` of so many, from 0, has had its first round; `size` of them share a turn."""
        return None if self.new is None else min(newcomers, (place // size + 1) * size) * self.new

    def free_place(self, place: int, served: Sequence[Served]) -> float | None:
        """Seconds until `place` + 1 of those that are served have ended, if they go on as they did and use all their tokens.

        None if one of them has not shown yet how it goes on, or if so many are not there.
        """
        if self.old is None or place >= len(served) or not all(one.job.rounds for one in served):
            return None
        return sorted(_rounds_left(one.job) for one in served)[place] * self.old * len(served)


def _rounds_left(job: Job) -> float:
    made = sum(round_.accepted + (round_.outcome.id is not None) for round_ in job.rounds)
    left = job.request.settings.max_new_tokens - made
    return max(0, left) * len(job.rounds) / max(1, made)


def _towards(before: float | None, now: float) -> float:
    return now if before is None else 0.7 * before + 0.3 * now
