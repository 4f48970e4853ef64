"""What the theory promises of a sampled run, place by place, beside what its dice gave. Pure functions of a trace.

Both compare a count with a sum of chances that are known before each throw, so the difference wanders around 0 whatever the text
is (a martingale):
- acceptance: a draft at a place is accepted with the chance Σ min(p, q) [Leviathan 2023, Theorem 3.5];
- favourites: whatever the drafter does, the token that comes out is the target's favourite with the chance max p. This is the
  claim of exactness itself, put to the test with the tokens of one real run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from specdec.trace import Trace


@dataclass(frozen=True, eq=False)
class Promise:
    """chances [n]: of each throw. kept [n]: whether it came so. Both in the order of the run."""

    chances: np.ndarray
    kept: np.ndarray

    @property
    def expected(self) -> float:
        return float(self.chances.sum())

    @property
    def error(self) -> float:
        """Standard deviation of the number of kept ones around `expected`."""
        return float(np.sqrt((self.chances * (1 - self.chances)).sum()))

    @property
    def count(self) -> int:
        return int(self.kept.sum())

    @property
    def p_value(self) -> float | None:
        """The chance to be at least as far from the promise (normal approximation, two-sided); None where no throw was open."""
        if self.error < 1e-9:
            return None
        return math.erfc(abs(self.count - self.expected) / self.error / math.sqrt(2))


def acceptance(trace: Trace) -> Promise:
    """Of each judged draft: its overlap, and whether it was accepted."""
    judged = [d for r in trace.rounds for d in r.drafts if d.status != "discarded" and d.top_p]
    return _promise([d.overlap for d in judged], [d.status == "accepted" for d in judged])


def favourites(trace: Trace) -> Promise:
    """Of each token of the output whose p was recorded: the chance of the target's favourite there, and whether it came."""
    chances, kept = [], []
    for round_ in trace.rounds:
        for draft in round_.drafts:
            if draft.status == "discarded" or not draft.top_p:
                continue
            emitted = draft.id if draft.status == "accepted" else round_.outcome.id
            chances.append(draft.top_p[0].probability)
            kept.append(emitted == draft.top_p[0].id)
        if round_.outcome.kind == "bonus" and round_.outcome.distribution:
            best = round_.outcome.distribution[0]
            chances.append(best.probability)
            kept.append(round_.outcome.id == best.id)
    return _promise(chances, kept)


def _promise(chances: list[float], kept: list[bool]) -> Promise:
    return Promise(np.clip(np.asarray(chances, dtype=float), 0, 1), np.asarray(kept, dtype=bool))
