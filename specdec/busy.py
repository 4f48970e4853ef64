"""A busy server, measured: passes over B sequences at once, one token each and γ + 1 tokens each, and draft steps for all of them.

The sequences are real requests that are decoded greedily: their prompts differ in length, what is verified are real drafts, and the
longest pass of each turn commits what it accepts. All passes of one turn follow each other, so that a machine that is slower for a
moment is so for all of them; figures are medians over the turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import quantiles

from specdec import theory
from specdec.experiments import Experiment, Finding

AT_ONCE = (1, 2, 4, 8, 16)
LENGTHS = (1, 2, 4)


@dataclass(frozen=True, kw_only=True)
class Busy(Experiment):
    """What is measured. prompts: of the requests, used in turns. turns: over all numbers of requests; the first one warms up."""

    prompts: tuple[str, ...]
    drafter: str = ""
    at_once: tuple[int, ...] = AT_ONCE
    draft_lengths: tuple[int, ...] = LENGTHS
    turns: int = 15
    longest_prompt: int = 48  # tokens

    timed = True
    module = "specdec.busy_passes"

    @property
    def total(self) -> int:
        return max(self.at_once) + len(self.at_once) * (self.turns + 1)


@dataclass(frozen=True, kw_only=True)
class Passes:
    """Passes over `at_once` sequences. plain: seconds of a pass of one token each, median. fastest, slowest: of those.

    ratios: v(γ, B), passes of γ + 1 tokens each / the plain pass of the same turn, median, one for each γ of the finding.
    cost: c(B), a draft step for all / the plain pass of the same turn, median.
    turn_ratios, turn_costs: the same of every turn, [γ][turn] and [turn]; they tell how sure the medians are.
    """

    at_once: int
    turns: int
    plain: float
    fastest: float
    slowest: float
    ratios: tuple[float, ...]
    cost: float
    turn_ratios: tuple[tuple[float, ...], ...] = ()
    turn_costs: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BusyFinding(Finding):
    """judged, accepted: drafts over all turns. context: the tokens of a sequence, on average."""

    drafter: str
    draft_lengths: tuple[int, ...]
    context: float
    judged: int
    accepted: int
    passes: tuple[Passes, ...]

    @property
    def alpha(self) -> float:
        return self.accepted / self.judged if self.judged else 0.0

    def speedup(self, at: Passes, draft_length: int, *, alpha: float | None = None) -> float:
        """What remains by the formula, with c and v as measured at this number of requests; alpha: None is that of these passes."""
        ratio = at.ratios[self.draft_lengths.index(draft_length)]
        return float(theory.speedup(self.alpha if alpha is None else alpha, draft_length, at.cost, ratio))

    def best(self, at: Passes, *, alpha: float | None = None) -> tuple[int, float]:
        """(γ, speed-up) of the best measured γ."""
        return max(((n, self.speedup(at, n, alpha=alpha)) for n in self.draft_lengths), key=lambda pair: pair[1])

    def spread(self, at: Passes, draft_length: int, *, alpha: float | None = None) -> tuple[float, float]:
        """The quartiles of the speed-up over the turns: half of them lie between. Both the median where turns are unknown."""
        middle = self.speedup(at, draft_length, alpha=alpha)
        if len(at.turn_costs) < 2:
            return middle, middle
        alpha, ratios = self.alpha if alpha is None else alpha, at.turn_ratios[self.draft_lengths.index(draft_length)]
        each = [float(theory.speedup(alpha, draft_length, c, v)) for c, v in zip(at.turn_costs, ratios, strict=True)]
        low, _, high = quantiles(each, n=4, method="inclusive")
        return low, high

    def pays(self, at: Passes, *, alpha: float | None = None) -> bool | None:
        """Whether the best measured γ is faster than plain decoding; None where the middle half of the turns lies on both sides."""
        low, high = self.spread(at, self.best(at, alpha=alpha)[0], alpha=alpha)
        return True if low > 1 else False if high <= 1 else None

    def stops_at(self, *, alpha: float | None = None) -> int | None:
        """The smallest measured B from which on no measured γ pays for sure; None where there is none."""
        found = None
        for at in reversed(self.passes):
            if self.pays(at, alpha=alpha) is not False:
                break
            found = at.at_once
        return found

    def unclear(self) -> tuple[int, ...]:
        """The measured B at which nobody can tell."""
        return tuple(at.at_once for at in self.passes if self.pays(at) is None)
