"""The closed forms of speculative decoding: what acceptance, costs and draft length let one expect.

Source: Leviathan, Kalman, Matias 2023, "Fast Inference from Transformers via Speculative Decoding", arXiv 2211.17192; numbers of
equations and theorems below are its own. The paper takes a verification pass to cost one plain target step (v = 1); here v is an
argument. All forms assume that each judged draft is accepted with the same chance α, independent of the others. Real text is
burstier, so a measured run differs; `expected_tokens_by_position` drops the half of the assumption that says "the same".

Names (in every function)
- alpha: acceptance rate α, accepted / judged drafts, 0 to 1
- draft_length: γ, tokens proposed in a round, 0 or more (0 is plain decoding)
- cost_coefficient: c, time of one draft step / time of one plain target step
- verify_ratio: v, time of a target pass over γ+1 tokens / time of one plain target step

Every argument is a number or a numpy array; arrays are broadcast against each other. Numbers in, a number out. A value out of
range raises ValueError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

LONGEST = 32  # the longest draft that `best_draft_length` looks at, unless told otherwise

Number = float | np.ndarray
VerifyRatio = ArrayLike | Callable[[int], ArrayLike]


class BestDraftLength(NamedTuple):
    """The draft length with the greatest expected speed-up, the shortest of equals; 0 and 1.0 where speculation does not pay."""

    draft_length: int | np.ndarray
    speedup: Number


def expected_tokens(alpha: ArrayLike, draft_length: ArrayLike) -> Number:
    """E, tokens that a round commits on average, replacement or bonus included: (1 − α^(γ+1)) / (1 − α); γ+1 at α = 1 (eq. 1)."""
    alpha, draft_length = _rate("acceptance rate", alpha), _at_least("draft length", draft_length, 0)
    alpha, draft_length = np.broadcast_arrays(alpha, draft_length)
    with np.errstate(divide="ignore", invalid="ignore"):
        # The quotient loses digits near α = 1, where numerator and denominator vanish together; log and expm1 keep them.
        tokens = -np.expm1((draft_length + 1) * np.log(alpha)) / (1 - alpha)
    tokens = np.where(alpha == 1, draft_length + 1, tokens)
    return _back(np.where(draft_length == 0, 1.0, tokens))


def expected_tokens_by_position(rates: ArrayLike) -> Number:
    """E when each place of the draft has its own chance: 1 + r₁ + r₁r₂ + …

    rates: [..., γ], the chance at each place once it is judged. Empty: 1. The same α everywhere: `expected_tokens(α, γ)`.
    """
    rates = _rate("acceptance rate", rates)
    return _back(1 + np.cumprod(np.atleast_1d(rates), axis=-1).sum(axis=-1))


def speedup(
    alpha: ArrayLike,
    draft_length: ArrayLike,
    cost_coefficient: ArrayLike,
    verify_ratio: ArrayLike = 1.0,
    *,
    drafting_share: ArrayLike = 1.0,
) -> Number:
    """S = E / (γ·c + v), plain wall-clock time / speculative wall-clock time (Theorem 3.8, there with v = 1).

    drafting_share: s, share of the rounds that have drafts; the others are plain steps, one token in the time of one:
    (s·E + 1 − s) / (s·(γ·c + v) + 1 − s).
    """
    share = _rate("share of rounds with drafts", drafting_share)
    tokens = share * expected_tokens(alpha, draft_length) + 1 - share
    return _back(tokens / (share * round_cost(draft_length, cost_coefficient, verify_ratio) + 1 - share))


def round_cost(draft_length: ArrayLike, cost_coefficient: ArrayLike, verify_ratio: ArrayLike = 1.0) -> Number:
    """γ·c + v, the time of one round in plain target steps."""
    draft_length = _at_least("draft length", draft_length, 0)
    cost, verify = _at_least("cost coefficient", cost_coefficient, 0), _above("verify ratio", verify_ratio, 0)
    return _back(draft_length * cost + verify)


def best_draft_length(
    alpha: ArrayLike, cost_coefficient: ArrayLike, verify_ratio: VerifyRatio = 1.0, *, longest: int = LONGEST
) -> BestDraftLength:
    """The γ from 0 to `longest` with the greatest expected speed-up.

    verify_ratio: one value for every γ, or a function that gives v(γ) for γ ≥ 1. γ = 0 is plain decoding, with a speed-up of 1.
    """
    if int(longest) != longest or longest < 0:
        raise ValueError(f"longest draft length is {longest!r}: take a whole number from 0.")
    best_length, best = np.zeros(()), np.ones(())
    for draft_length in range(1, int(longest) + 1):
        ratio = verify_ratio(draft_length) if callable(verify_ratio) else verify_ratio
        candidate = np.asarray(speedup(alpha, draft_length, cost_coefficient, ratio))
        better = candidate > best * (1 + 1e-12)  # rounding is no reason for a longer draft
        best_length, best = np.where(better, draft_length, best_length), np.where(better, candidate, best)
    if best.ndim == 0:
        return BestDraftLength(int(best_length), float(best))
    return BestDraftLength(best_length.astype(int), best)


def answer_speedup(speedup: ArrayLike, new_tokens: ArrayLike, reading: ArrayLike, cost_coefficient: ArrayLike = 0.0) -> Number:
    """Speed-up of a whole answer, reading the prompt included: (P + n) / (P·(1 + c) + n/S).

    speedup: S while decoding. new_tokens: n. reading: P, time in which the target reads the prompt, in plain steps. A drafter reads it
    as well and is taken to need the share c of that time, as for a step.
    """
    length, read = _at_least("answer length", new_tokens, 0), _at_least("reading time", reading, 0)
    gain, cost = _above("speed-up", speedup, 0), _at_least("cost coefficient", cost_coefficient, 0)
    return _back((read + length) / (read * (1 + cost) + length / gain))


def break_even_answer(speedup: ArrayLike, reading: ArrayLike, cost_coefficient: ArrayLike = 0.0) -> Number:
    """The n from which on `answer_speedup` is above 1: P·c / (1 − 1/S); nan where S is not above 1."""
    gain = _above("speed-up", speedup, 0)
    cost = _at_least("reading time", reading, 0) * _at_least("cost coefficient", cost_coefficient, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return _back(np.where(gain > 1, cost / (1 - 1 / gain), np.nan))


def operations_factor(alpha: ArrayLike, draft_length: ArrayLike, operations_ratio: ArrayLike = 0.0) -> Number:
    """Arithmetic operations per token against plain decoding: (1 − α)(γ·ĉ + γ + 1) / (1 − α^(γ+1)) (Theorem 3.11).

    operations_ratio: ĉ, operations of one draft step / operations of one plain target step; 0 for a drafter without arithmetic.
    Speculation saves time by spending operations: this factor is never below 1 for ĉ = 0.
    """
    length = _at_least("draft length", draft_length, 0)
    ratio = _at_least("operations ratio", operations_ratio, 0)
    return _back((length * ratio + length + 1) / expected_tokens(alpha, draft_length))


def improvement_possible(alpha: ArrayLike, cost_coefficient: ArrayLike) -> bool | np.ndarray:
    """Whether some γ makes it faster when v = 1: exactly when α > c (Corollary 3.9)."""
    possible = np.greater(_rate("acceptance rate", alpha), _at_least("cost coefficient", cost_coefficient, 0))
    return bool(possible) if np.ndim(possible) == 0 else possible


def least_improvement(alpha: ArrayLike, cost_coefficient: ArrayLike) -> Number:
    """(1 + α) / (1 + c), the speed-up of γ = 1 with v = 1; a lower bound of the best one where α > c (Corollary 3.9)."""
    return speedup(alpha, 1, cost_coefficient)


def break_even_cost(alpha: ArrayLike, draft_length: ArrayLike, verify_ratio: ArrayLike = 1.0) -> Number:
    """The c at which S = 1: (E − v) / γ. Negative: it does not pay even with a drafter that takes no time. γ ≥ 1."""
    length = _at_least("draft length", draft_length, 1)
    return _back((expected_tokens(alpha, draft_length) - _above("verify ratio", verify_ratio, 0)) / length)


def break_even_verify_ratio(alpha: ArrayLike, draft_length: ArrayLike, cost_coefficient: ArrayLike) -> Number:
    """The v at which S = 1: E − γ·c. Negative or 0: drafting alone already takes longer than the tokens are worth."""
    cost = _at_least("draft length", draft_length, 0) * _at_least("cost coefficient", cost_coefficient, 0)
    return _back(expected_tokens(alpha, draft_length) - cost)


def break_even_acceptance(draft_length: ArrayLike, cost_coefficient: ArrayLike, verify_ratio: ArrayLike = 1.0) -> Number:
    """The α at which S = 1 for this γ. 0: it pays at any α. nan: even α = 1 does not pay. γ ≥ 1."""
    return acceptance_for_tokens(round_cost(draft_length, cost_coefficient, verify_ratio), draft_length)


def acceptance_for_tokens(tokens: ArrayLike, draft_length: ArrayLike) -> Number:
    """The α for which `expected_tokens(α, γ)` is `tokens`: 0 for 1 token or fewer, nan for more than γ+1. γ ≥ 1."""
    tokens, length = np.broadcast_arrays(np.asarray(tokens, dtype=float), _at_least("draft length", draft_length, 1))
    low, high = np.zeros(tokens.shape), np.ones(tokens.shape)
    for _ in range(60):  # E grows with α: halve the interval until it is narrower than a double can tell
        middle = (low + high) / 2
        below = expected_tokens(middle, length) < tokens
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    found = np.where(tokens <= 1, 0.0, np.where(tokens == length + 1, 1.0, (low + high) / 2))
    return _back(np.where(tokens > length + 1, np.nan, found))


def accepted_distribution(alpha: float, draft_length: int) -> np.ndarray:
    """[γ+1], the chance that a round accepts exactly 0 … γ drafts: αⁿ(1 − α), and α^γ for all of them (capped geometric)."""
    alpha = float(_rate("acceptance rate", alpha))
    powers = alpha ** np.arange(int(_at_least("draft length", draft_length, 0)) + 1)
    return powers * np.append(np.full(len(powers) - 1, 1 - alpha), 1.0)


def overlap(p: Sequence[float] | np.ndarray, q: Sequence[float] | np.ndarray) -> Number:
    """Σ min(p, q) over the last axis, 1 − total variation: the exact chance that a draft from q is accepted (Theorem 3.5)."""
    return _back(np.minimum(np.asarray(p, dtype=float), np.asarray(q, dtype=float)).sum(axis=-1))


def _rate(name: str, value: ArrayLike) -> np.ndarray:
    value = np.asarray(value, dtype=float)
    if not np.all((value >= 0) & (value <= 1)):
        raise ValueError(f"{name} is {_worst(value)}: it lies between 0 and 1.")
    return value


def _at_least(name: str, value: ArrayLike, low: float) -> np.ndarray:
    value = np.asarray(value, dtype=float)
    if not np.all((value >= low) & (value < np.inf)):
        raise ValueError(f"{name} is {_worst(value)}: it is {low:g} or more.")
    return value


def _above(name: str, value: ArrayLike, low: float) -> np.ndarray:
    value = np.asarray(value, dtype=float)
    if not np.all((value > low) & (value < np.inf)):
        raise ValueError(f"{name} is {_worst(value)}: it is greater than {low:g}.")
    return value


def _worst(value: np.ndarray) -> str:
    return f"{float(value):g}" if value.ndim == 0 else f"an array from {np.min(value):g} to {np.max(value):g}"


def _back(value: ArrayLike) -> Number:
    """A plain float for a single number, the array otherwise."""
    return float(value) if np.ndim(value) == 0 else np.asarray(value)
