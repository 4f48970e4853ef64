"""The draft length of each round, chosen from what the run has shown so far.

A round with γ drafts commits E = 1 + a₁ + a₁a₂ + … + a₁…a_γ tokens on average, aᵢ the chance that a draft at position i is accepted
once the ones before it were, and costs γ·c + v(γ) plain steps. The γ with the most tokens a plain step is taken; 0 is plain decoding.
Only rounds that are over have a say, so a round's length does not depend on its own draws, and the output follows the target's law
whatever is chosen [Leviathan 2023, section 3.5, leaves γ free]. It does depend on times: the same seed need not give the same
sampled text twice.

What a run alone on its device has shown of c, v(γ) and the chances is kept with the pair as its `Experience`, whatever γ it had; the
next run begins with it, since a guess of v for a length that was never tried costs more rounds than a short answer has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

HALF_LIFE = 24.0  # rounds behind which evidence counts half: a text changes from prose to code and back
LONG_LIFE = 400.0  # the same for what is kept across runs
PRIOR_WEIGHT = 5.0  # rounds' worth of belief in what other runs have shown
PRIOR_CHANCE = 0.45  # of the first position, before any run; a later position leans on the one before it
LOOK_AGAIN = 12  # plain rounds in a row before one is spent on seeing whether drafting pays by now
FIRST_COST = 0.1  # of a draft step, in plain steps, before one was measured
FIRST_SLOPE = 0.06  # what each further token adds to a verification, in plain steps, before that was measured


@dataclass
class Experience:
    """What the runs of one drafter of a pair have shown so far; times are running means in seconds.

    draft_seconds: of one draft step, None before one was measured. verify_seconds[n]: of a pass over n drafts and the newest token.
    tried[i], kept[i]: drafts that were judged and accepted at position i + 1, the older ones fading.
    """

    draft_seconds: float | None = None
    verify_seconds: dict[int, float] = field(default_factory=dict)
    tried: dict[int, float] = field(default_factory=dict)
    kept: dict[int, float] = field(default_factory=dict)

    def learn(self, drafted: int, accepted: int, judged: int, draft_seconds: Sequence[float], verify_seconds: float) -> None:
        """A round of a run that had the device to itself, see `AdaptiveLength.learn`."""
        _count(self.tried, self.kept, accepted, judged, LONG_LIFE)
        if drafted and draft_seconds:
            self.draft_seconds = _mean(self.draft_seconds, sum(draft_seconds) / drafted)
        self.verify_seconds[drafted] = _mean(self.verify_seconds.get(drafted), verify_seconds)


class AdaptiveLength:
    """Chooses γ from 0 to `longest`.

    plain_seconds: one plain step where it is known; else the shortest pass per token stands in. experience: what earlier runs have
    shown; it is read at the beginning and not changed.
    """

    def __init__(self, longest: int, *, plain_seconds: float | None = None, experience: Experience | None = None) -> None:
        self.longest = longest
        self._plain = plain_seconds
        before = experience or Experience()
        self._prior_tried, self._prior_kept = dict(before.tried), dict(before.kept)
        self._tried: dict[int, float] = {}
        self._kept: dict[int, float] = {}
        self._draft_seconds = before.draft_seconds
        self._verify = dict(before.verify_seconds)
        self._own: set[int] = set()  # numbers of drafts whose pass this run has measured itself
        self._plain_rounds = 0

    def choose(self, room: int) -> int:
        """γ of the next round, at most `room`."""
        longest = min(self.longest, room)
        best = max(range(longest + 1), key=self.pace) if longest > 0 else 0
        if best == 0 and longest > 0 and self._plain_rounds >= LOOK_AGAIN:
            best = 1
        return best

    def learn(self, drafted: int, accepted: int, judged: int, draft_seconds: Sequence[float], verify_seconds: float) -> None:
        """A round is over: so many drafts, the first `accepted` of the `judged` ones were kept."""
        _count(self._tried, self._kept, accepted, judged, HALF_LIFE)
        if drafted and draft_seconds:
            self._draft_seconds = _mean(self._draft_seconds, sum(draft_seconds) / drafted)
        # The machine may be faster or slower than it was for the runs before: the first own figure counts as much as theirs.
        weight = 0.2 if drafted in self._own else 0.5
        self._verify[drafted] = _mean(self._verify.get(drafted), verify_seconds, weight)
        self._own.add(drafted)
        self._plain_rounds = 0 if drafted else self._plain_rounds + 1

    def chance(self, position: int) -> float:
        """aᵢ of position i, counted from 0. A position that was hardly ever reached leans on the one before it."""
        before = self.chance(position - 1) if position else PRIOR_CHANCE
        prior = _share(self._prior_tried.get(position, 0.0), self._prior_kept.get(position, 0.0), before)
        return _share(self._tried.get(position, 0.0), self._kept.get(position, 0.0), prior)

    def expected_tokens(self, length: int) -> float:
        """E of a round with so many drafts."""
        total, reach = 1.0, 1.0
        for position in range(length):
            reach *= self.chance(position)
            total += reach
        return total

    def cost(self, length: int) -> float:
        """γ·c + v(γ), in plain steps."""
        plain = self._plain_seconds()
        if plain is None:
            return 1.0 + length * (FIRST_COST + FIRST_SLOPE)
        draft = FIRST_COST if self._draft_seconds is None else self._draft_seconds / plain
        return length * draft + self._verify_ratio(length, plain)

    def pace(self, length: int) -> float:
        """Expected tokens in the time of a plain step."""
        return self.expected_tokens(length) / self.cost(length)

    def _plain_seconds(self) -> float | None:
        # What this very run has measured knows the length of its text; the figure of the pair was taken on a short one.
        return self._verify.get(0, self._plain)

    def _verify_ratio(self, length: int, plain: float) -> float:
        """v(γ): measured, or on the straight line through the nearest measured lengths and the plain step."""
        if length == 0:
            return 1.0
        if length in self._verify:
            return self._verify[length] / plain
        known = {0: 1.0} | {n: seconds / plain for n, seconds in self._verify.items() if n}
        below, above = max(n for n in known if n < length), min((n for n in known if n > length), default=None)
        if above is not None:
            share = (length - below) / (above - below)
            return known[below] + share * (known[above] - known[below])
        slope = max(0.0, (known[below] - 1) / below) if below else FIRST_SLOPE
        return known[below] + slope * (length - below)


def _count(tried: dict[int, float], kept: dict[int, float], accepted: int, judged: int, half_life: float) -> None:
    """Add the verdicts of a round to the two sums of each position."""
    fade = 0.5 ** (1 / half_life)
    for position in range(judged):
        tried[position] = tried.get(position, 0.0) * fade + 1
        kept[position] = kept.get(position, 0.0) * fade + (position < accepted)


def _share(tried: float, kept: float, prior: float) -> float:
    """kept / tried, of which `prior` is believed before anything was tried."""
    return (kept + PRIOR_WEIGHT * prior) / (tried + PRIOR_WEIGHT)


def _mean(old: float | None, new: float, weight: float = 0.2) -> float:
    """Running mean; an outlier (somebody else had the machine) counts for no more than twice the mean."""
    return new if old is None else old + weight * (min(new, 2 * old) - old)
