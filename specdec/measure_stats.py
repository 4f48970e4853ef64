"""The arithmetic of a measurement: medians with bootstrap intervals, percentiles, waiting between tokens, cost. Numbers in and out.

Intervals are percentile bootstrap intervals [Efron 1979]: the unit that is drawn again is the prompt, because runs of one prompt
resemble each other more than runs of two.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

EXACT = 7  # up to so many values all resamples are counted; beyond, some are drawn
RESAMPLES = 4000
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


def bootstrap_median(values: Sequence[float], *, level: float = LEVEL, seed: int = 0) -> Interval | None:
    """Median with its bootstrap interval; None of no values.

    How often it holds the true median was tried with normal values: 75 of 100 times with 3 values, 87 with 4, 94 with 5, 95 from 6
    on.

    Up to `EXACT` values the bootstrap distribution is computed in full: every multiset of the values with its chance. Then
    nothing is drawn and the interval is the same for every seed.
    """
    if not values:
        return None
    ranked = sorted(values)
    weighted = _all_medians(ranked) if len(ranked) <= EXACT else _some_medians(ranked, seed)
    tail = (1 - level) / 2
    return Interval(statistics.median(ranked), _quantile(weighted, tail), _quantile(weighted, 1 - tail), len(ranked))


def _all_medians(ranked: Sequence[float]) -> list[tuple[float, float]]:
    """(median, chance) of every resample, by median."""
    count = len(ranked)
    chances: dict[float, float] = {}
    for chosen in itertools.combinations_with_replacement(range(count), count):
        orders = math.factorial(count)
        for index in set(chosen):
            orders //= math.factorial(chosen.count(index))
        median = statistics.median([ranked[i] for i in chosen])
        chances[median] = chances.get(median, 0.0) + orders / count**count
    return sorted(chances.items())


def _some_medians(ranked: Sequence[float], seed: int) -> list[tuple[float, float]]:
    draw = random.Random(seed)
    medians = sorted(statistics.median(draw.choices(ranked, k=len(ranked))) for _ in range(RESAMPLES))
    return [(median, 1 / RESAMPLES) for median in medians]


def _quantile(weighted: Sequence[tuple[float, float]], share: float) -> float:
    """The smallest value at or below which at least `share` of the weight lies."""
    total = 0.0
    for value, weight in weighted:
        total += weight
        if total >= share - 1e-12:
            return value
    return weighted[-1][0]


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
