"""The arithmetic of a measurement: medians with their intervals, percentiles, waiting between tokens, cost. Numbers in and out.

Intervals of a median are those of the sign test [Conover 1999, Practical Nonparametric Statistics, 3rd ed., section 3.2]: they assume
nothing of how speed-ups are distributed. The unit is the prompt, because runs of one prompt resemble each other more than runs of two.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A median and the bounds within which chance alone could have moved it. count: independent values (prompts) behind it."""

    value: float
    low: float
    high: float
    count: int


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value below which `share` (0 to 1) of the values lie, between two of them in proportion; None of no values."""
    if not values:
        return None
    ranked = sorted(values)
    place = share * (len(ranked) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ranked) - 1)
    return ranked[below] + (place - below) * (ranked[above] - ranked[below])


def median_interval(values: Sequence[float], *, level: float = LEVEL) -> Interval | None:
    """Median with its interval; None of no values.

    From the k-th smallest to the k-th largest value, with the greatest k for which that range holds the true median with a chance of
    `level` at least, 1 − 2·P(Bin(n, ½) < k): each value lies below the median with chance ½, whatever their distribution. Where no k
    is enough (at 95 %: of fewer than six values), from the smallest to the largest, which holds it more seldom.
    """
    if not values:
        return None
    ranked, count = sorted(values), len(values)
    ends = max(1, _ends(count, (1 - level) / 2))
    return Interval(statistics.median(ranked), ranked[ends - 1], ranked[count - ends], count)


def _ends(count: int, tail: float) -> int:
    """The greatest k with P(Bin(count, ½) < k) ≤ tail; 0 where even k = 1 is too much."""
    below, ends = 0.0, 0
    while ends < count // 2:
        below += math.exp(math.lgamma(count + 1) - math.lgamma(ends + 1) - math.lgamma(count - ends + 1) - count * math.log(2))
        if below > tail:
            break
        ends += 1
    return ends


def token_gaps(round_seconds: Sequence[float], round_tokens: Sequence[int]) -> list[float]:
    """Seconds between each visible token and the one before it.

    All tokens of a round appear together: the first of them after the whole round, the others after nothing. The first token of
    the answer has no gap; its wait is the time to the first token.
    """
    gaps: list[float] = []
    for index, (seconds, tokens) in enumerate(zip(round_seconds, round_tokens, strict=True)):
        if tokens:
            gaps += ([] if index == 0 else [seconds]) + [0.0] * (tokens - 1)
    return gaps


def cost_per_million(price_per_hour: float, tokens_per_second: float) -> float:
    """What a million output tokens cost on a device that costs `price_per_hour`: price / 3600 / (tokens/s) · 10⁶."""
    return price_per_hour / 3600 / tokens_per_second * 1e6


def histogram_quantile(buckets: Sequence[tuple[float, float]], share: float) -> float | None:
    """A percentile of a Prometheus histogram, in proportion within its bucket; None of an empty one.

    buckets: (upper bound, cumulative count), the last bound may be infinite: then its lower bound is the answer.
    """
    buckets = sorted(buckets)
    if not buckets or not buckets[-1][1]:
        return None
    wanted = share * buckets[-1][1]
    lower, before = 0.0, 0.0
    for upper, count in buckets:
        if count >= wanted and count > before:
            return lower if math.isinf(upper) else lower + (upper - lower) * (wanted - before) / (count - before)
        lower, before = upper, count
    return lower
