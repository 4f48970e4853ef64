"""The law of one emitted token: of the exact rule, and of the mistakes that real implementations have made. Numpy only.

One step of any such rule: draw x from `drafted`, keep it with the chance `accept[x]`, else draw from `replacement`. So its law is

    law = drafted · accept + (Σ drafted · (1 − accept)) · replacement

in closed form, and `simulate` makes the very same step with dice. `wanted` is what should have come out: the target's law.
The loop of `specdec.decoding` follows `exact`; `tests/test_mutants.py` puts each mistake into that loop and finds the same bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Vector = np.ndarray


@dataclass(frozen=True, eq=False)
class Rule:
    """drafted, accept, replacement, wanted: [V]."""

    name: str
    drafted: Vector
    accept: Vector
    replacement: Vector
    wanted: Vector

    @property
    def law(self) -> Vector:
        """[V], the chance of each token to be emitted."""
        kept = self.drafted * self.accept
        return kept + (1 - kept.sum()) * self.replacement

    @property
    def bias(self) -> float:
        """Total variation between `law` and `wanted`: the share of tokens that come out wrong."""
        return float(np.abs(self.law - self.wanted).sum() / 2)


def normalised(weights: Sequence[float] | Vector) -> Vector:
    """Weights [V], each 0 or more and not all 0, as probabilities. Raises ValueError."""
    weights = np.asarray(weights, dtype=float)
    if not np.all((weights >= 0) & (weights < np.inf)) or weights.sum() <= 0:
        raise ValueError(f"the weights are {weights.tolist()}: take numbers from 0, not all of them 0.")
    return weights / weights.sum()


def chance(p: Vector, q: Vector) -> Vector:
    """min(1, p/q), 0 where p is 0; where q is 0 nothing is ever drafted, and 1 stands in."""
    return np.divide(np.minimum(p, q), q, out=np.ones_like(p), where=q > 0)


def residual(p: Vector, q: Vector) -> tuple[Vector, float]:
    """(norm(max(0, p − q)), its mass before normalising); p itself where nothing is left, for then nothing is ever rejected."""
    rest = np.maximum(0, p - q)
    mass = float(rest.sum())
    return (rest / mass, mass) if mass > 1e-15 else (p, 0.0)


def warmed(p: Vector, temperature: float) -> Vector:
    """p at another temperature."""
    powers = np.where(p > 0, p, 0.0) ** (1 / temperature)
    return powers / powers.sum()


def one_hot(index: int, size: int) -> Vector:
    return np.eye(size)[index]


def two_best(q: Vector) -> Vector:
    kept = np.zeros_like(q)
    best = np.argsort(-q, kind="stable")[:2]
    kept[best] = q[best]
    return kept / kept.sum()


def exact(p: Vector, q: Vector) -> Rule:
    """Speculative sampling as it should be [Leviathan 2023, Theorem 1 of the appendix]."""
    return Rule("exact", q, chance(p, q), residual(p, q)[0], p)


def argmax_draft(p: Vector, q: Vector) -> Rule:
    """The drafter proposes its favourite and reports its whole softmax as q."""
    return Rule("argmax", one_hot(int(q.argmax()), len(q)), chance(p, q), residual(p, q)[0], p)


def replacement_from_p(p: Vector, q: Vector) -> Rule:
    """After a rejection the replacement is drawn from p, not from what is left of it."""
    return Rule("from-p", q, chance(p, q), p, p)


def unfiltered_q(p: Vector, q: Vector) -> Rule:
    """Top-k 2 for both models, and the drafter reports its q from before the filter."""
    wanted = two_best(p)
    return Rule("top-k", two_best(q), chance(wanted, q), residual(wanted, q)[0], wanted)


def wrong_temperature(p: Vector, q: Vector) -> Rule:
    """Temperature 0.7 for both models, and the drafter reports its q at temperature 1."""
    wanted = warmed(p, 0.7)
    return Rule("temperature", warmed(q, 0.7), chance(wanted, q), residual(wanted, q)[0], wanted)


def same_u(p: Vector, q: Vector) -> Rule:
    """One u for every draft, here 0.3: what has a chance above it is always kept."""
    return Rule("same-u", q, (0.3 * q < p).astype(float), residual(p, q)[0], p)


def redraw_after_lookup(p: Vector, q: Vector) -> Rule:
    """A drafter without dice (its favourite for sure), and after a mismatch p is drawn from again."""
    favourite = one_hot(int(q.argmax()), len(q))
    return Rule("redraw", favourite, chance(p, favourite), p, p)


def lenience(p: Vector, q: Vector) -> Rule:
    """Drafts are kept with twice the chance, and the result is still called exact."""
    return Rule("lenience", q, chance(p, q / 2), residual(p, q)[0], p)


MISTAKES = {
    "exact": exact,
    "from-p": replacement_from_p,
    "argmax": argmax_draft,
    "temperature": wrong_temperature,
    "top-k": unfiltered_q,
    "lenience": lenience,
    "same-u": same_u,
    "redraw": redraw_after_lookup,
}


def simulate(rule: Rule, draws: int, *, seed: int) -> Vector:
    """How often each token was emitted in `draws` steps, [V] whole numbers; 100,000 take about 10 ms.

    With the same seed more draws go on where fewer ended: the first thousand are the same thousand.
    """
    u = np.random.default_rng(seed).random((draws, 3))
    token = _pick(rule.drafted, u[:, 0])
    rejected = u[:, 1] >= rule.accept[token]
    token[rejected] = _pick(rule.replacement, u[rejected, 2])
    return np.bincount(token, minlength=len(rule.drafted))


def _pick(p: Vector, u: Vector) -> Vector:
    """Inverse of the cumulative sum; u that rounding leaves behind the end goes to the last token with any probability."""
    return np.minimum(np.searchsorted(p.cumsum(), u, side="right"), int(np.flatnonzero(p)[-1]))
