"""How the engine serves several runs: a turn is one round of a few of them, the next turn is that of the next ones.

Everybody sees movement, however many there are, and what runs of one turn ask of a model is done in one pass (`specdec.batch`). A run
whose times are what is wanted (a race, a measurement) has the machine for itself from its beginning to its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from specdec.jobs import Job, RunRequest

Outcome = Any  # of one run in one turn: a Round, None when it has ended, or the exception that ended it


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
    if len(group) > 1 and all(hasattr(run, "steps") for run in runs):
        from specdec.batch import advance

        outcomes = advance(runs)
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

    def __len__(self) -> int:
        return len(self._served)

    def __iter__(self) -> Iterator[Served]:
        return iter(self._served)

    def add(self, one: Served) -> None:
        self._served = (*self._served[: self._newcomers], one, *self._served[self._newcomers :])
        self._newcomers += 1

    def take(self, outcome_of: Callable[[Served, Outcome], bool]) -> None:
        """The next turn. outcome_of(one, outcome) says whether it goes on; then it stands behind all others."""
        group, rest = self._served[: self.size], self._served[self.size :]
        self.begun = time.time()
        outcomes = turn(group)
        self._newcomers = max(0, self._newcomers - len(group))
        stay = tuple(one for one, outcome in zip(group, outcomes, strict=True) if outcome_of(one, outcome))
        self._served = (*rest, *stay)
