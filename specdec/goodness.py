"""Do counts follow a distribution? Pearson's chi-square with its p-value, and a band for each share. Numpy and math only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEAST_EXPECTED = 5.0  # cells that expect fewer are put together (Cochran's rule)


@dataclass(frozen=True)
class ChiSquare:
    """statistic, degrees of freedom, and the chance of at least such a statistic if the counts do follow the distribution.

    p_value is None where there is nothing to compare (no draws, or a single cell); 0 where something impossible happened.
    """

    statistic: float
    degrees: int
    p_value: float | None


def chi_square(counts: Sequence[int], expected: Sequence[float]) -> ChiSquare:
    """counts [V] against probabilities [V] (Pearson 1900). Cells that expect fewer than 5 are put together."""
    counts, p = np.asarray(counts, dtype=float), np.asarray(expected, dtype=float)
    total = counts.sum()
    if (counts[p <= 0] > 0).any():
        return ChiSquare(math.inf, int((p > 0).sum()), 0.0)
    counts, wanted = counts[p > 0], p[p > 0] / p.sum() * total
    small = wanted < LEAST_EXPECTED
    if small.any():
        counts, wanted = np.append(counts[~small], counts[small].sum()), np.append(wanted[~small], wanted[small].sum())
        if wanted[-1] < LEAST_EXPECTED and len(wanted) > 1:  # still too few: to the smallest of the others
            least = int(wanted[:-1].argmin())
            counts[least] += counts[-1]
            wanted[least] += wanted[-1]
            counts, wanted = counts[:-1], wanted[:-1]
    degrees = len(counts) - 1
    if total <= 0 or degrees < 1:
        return ChiSquare(0.0, max(0, degrees), None)
    statistic = float(((counts - wanted) ** 2 / wanted).sum())
    return ChiSquare(statistic, degrees, survival(statistic, degrees))


def survival(statistic: float, degrees: int) -> float:
    """P(X ≥ statistic) for X chi-square distributed with `degrees` k ≥ 1: the regularised upper gamma function Q(k/2, x/2).

    In closed form, for `degrees` is whole: e^(−h)·Σ h^j/j! for even degrees, and with the complementary error function for odd
    ones (Abramowitz and Stegun, 26.4.4 and 26.4.5). Terms are added as exponentials of logarithms, so that nothing overflows.
    """
    if degrees < 1:
        raise ValueError(f"degrees of freedom are {degrees}: take 1 or more.")
    if statistic <= 0:
        return 1.0
    half = statistic / 2
    if degrees % 2:
        start, first = math.erfc(math.sqrt(half)), 0.5
    else:
        start, first = 0.0, 0.0
    terms = [math.exp(-half + (first + j) * math.log(half) - math.lgamma(first + j + 1)) for j in range(degrees // 2)]
    return min(1.0, start + math.fsum(terms))


def band(p: Sequence[float], draws: int, *, deviations: float = 1.96) -> np.ndarray:
    """[V], how far a share may lie from p after `draws` draws: 1.96 standard errors hold 95 of 100, each token by itself."""
    p = np.asarray(p, dtype=float)
    return deviations * np.sqrt(p * (1 - p) / max(1, draws))


def g_test(first: Sequence[int], second: Sequence[int]) -> ChiSquare:
    """Two counts [V] of the same things: do they come from one law? G = 2·Σ O·ln(O/E) (Sokal and Rohlf), chi-square distributed.

    Cells that expect fewer than 5 on either side are put together. p_value is None where a single cell is left.
    """
    table = np.asarray([first, second], dtype=float)
    sums, total = table.sum(1), table.sum()
    if not sums.all():
        return ChiSquare(0.0, 0, None)
    order = np.argsort(-table.sum(0), kind="stable")
    table = table[:, order]
    expected = table.sum(0) * sums.min() / total
    small = expected < LEAST_EXPECTED
    if small.any():
        table = np.column_stack([table[:, ~small], table[:, small].sum(1)])
        if table[:, -1].sum() * sums.min() / total < LEAST_EXPECTED and table.shape[1] > 1:  # still too few: one more
            table = np.column_stack([table[:, :-2], table[:, -2:].sum(1)])
    degrees = table.shape[1] - 1
    if degrees < 1:
        return ChiSquare(0.0, 0, None)
    expected = np.outer(sums, table.sum(0)) / total
    seen = table > 0
    statistic = float(2 * (table[seen] * np.log(table[seen] / expected[seen])).sum())
    return ChiSquare(statistic, degrees, survival(statistic, degrees))
