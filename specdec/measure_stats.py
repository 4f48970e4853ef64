"""The arithmetic of a measurement: medians with bootstrap intervals, percentiles, waiting between tokens, cost. Numbers in and out.

Intervals are percentile bootstrap intervals [Efron 1979]: the unit that is drawn again is the prompt, because runs of one prompt
resemble each other more than runs of two.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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


def bootstrap_median(values: Sequence[float], *, level: float = LEVEL) -> Interval | None:
    """Median with its bootstrap interval; None of no values.

    Nothing is drawn: the chance of every median that a resample can have is computed (`_medians_of_resamples`). How often the interval
    holds the true median was tried with normal values: 75 of 100 times with 3 values, 87 with 4, 94 with 5, 95 from 6 on.
    """
    if not values:
        return None
    ranked = np.sort(np.asarray(values, dtype=float))
    medians, chances = _medians_of_resamples(ranked)
    order = np.argsort(medians, kind="stable")
    total, tail = np.cumsum(chances[order]), (1 - level) / 2
    # The smallest median at or below which at least so much of the weight lies.
    places = np.searchsorted(total, [tail - 1e-12, 1 - tail - 1e-12]).clip(max=len(order) - 1)
    low, high = medians[order][places]
    return Interval(statistics.median(values), float(low), float(high), len(ranked))


def _medians_of_resamples(ranked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every median of a resample of the ascending values [n], and its chance.

    Of an odd number it is the value of the middle draw, L: that is the i-th value or a smaller one if more than half of the draws
    are, a binomial tail. Of an even number it lies between the two middle draws L ≤ U, and for i ≤ j
    P(L ≤ i, U > j) = C(n, n/2) (i/n)^(n/2) (1 − j/n)^(n/2): exactly half of the draws lie up to i, the others beyond j.
    """
    count = len(ranked)
    share = np.arange(count + 1) / count
    if count % 2:
        return ranked, np.diff(_at_least(count, (count + 1) // 2, share))
    half = count // 2
    with np.errstate(divide="ignore"):
        logs = math.lgamma(count + 1) - 2 * math.lgamma(half + 1) + half * (np.log(share)[:, None] + np.log(1 - share)[None, :])
    apart = np.where(share[:, None] <= share[None, :], np.exp(logs), 0.0)  # [i, j], 0 … n each
    both = np.zeros((count, count))  # L is value i, U is value j
    upper = np.triu_indices(count, 1)
    i, j = upper[0] + 1, upper[1] + 1
    both[upper] = apart[i, j - 1] - apart[i - 1, j - 1] - apart[i, j] + apart[i - 1, j]
    places = np.arange(1, count + 1)
    alone = np.diff(_at_least(count, half, share))  # L is value i
    both[places - 1, places - 1] = alone - (apart[places, places] - apart[places - 1, places])
    where = np.triu_indices(count)
    return (ranked[where[0]] + ranked[where[1]]) / 2, np.clip(both[where], 0.0, None)


def _at_least(count: int, wanted: int, share: np.ndarray) -> np.ndarray:
    """Chance that at least `wanted` of `count` draws succeed, each with the chance `share` [k]."""
    number = np.arange(wanted, count + 1)
    ways = np.array([math.lgamma(count + 1) - math.lgamma(n + 1) - math.lgamma(count - n + 1) for n in number])
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = ways + number * np.log(share)[:, None] + np.nan_to_num((count - number) * np.log(1 - share)[:, None], nan=0.0)
    return np.exp(logs).sum(1)


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
