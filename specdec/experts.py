"""Mixtures of experts: what a pass over several tokens reads when each token wakes experts of its own. A formula, never a measurement.

In each layer a router picks `chosen` of `experts` for every token, and a pass reads those that any of its tokens needs. If tokens
choose independently and every expert alike, t tokens need experts · (1 − (1 − chosen/experts)^t) of them. Neighbouring tokens
share more experts than that, so real passes read somewhat less. While reading rules, reading is the time: v(γ, B) is what a pass
over B·(γ+1) tokens reads / what one over B tokens reads. Arithmetic and caches are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from specdec import theory


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """total: all parameters. active: those that one token needs. experts: of a layer, of which `chosen` are picked for each token."""

    name: str
    total: float
    active: float
    experts: int
    chosen: int

    @property
    def expert(self) -> float:
        """Parameters of one expert, in all layers together."""
        return (self.total - self.active) / (self.experts - self.chosen)

    def needed(self, tokens: ArrayLike) -> np.ndarray:
        """Experts of a layer that a pass over so many tokens reads, on average."""
        return self.experts * (1 - (1 - self.chosen / self.experts) ** np.asarray(tokens, dtype=float))

    def read(self, tokens: ArrayLike) -> np.ndarray:
        """Parameters that a pass over so many tokens reads, on average."""
        return self.active + self.expert * (self.needed(tokens) - self.chosen)

    def verify_ratio(self, draft_length: ArrayLike, requests: ArrayLike = 1) -> np.ndarray:
        """v(γ, B), from reading alone."""
        return self.read((np.asarray(draft_length) + 1) * np.asarray(requests)) / self.read(requests)

    def speedup(self, alpha: float, draft_length: int, cost_coefficient: float, requests: ArrayLike = 1) -> np.ndarray:
        """E / (γ·c(B) + v(γ, B)). cost_coefficient: c of one request. A drafter without experts reads as much for many as for one, so
        its share falls as a plain step reads more: c(B) = c · read(1) / read(B).
        """
        cost = cost_coefficient * self.read(1) / self.read(requests)
        return np.asarray(theory.speedup(alpha, draft_length, cost, self.verify_ratio(draft_length, requests)))


MIXTURES = {
    m.name: m
    for m in (
        Mixture(name="Mixtral 8x7B", total=46.7e9, active=12.9e9, experts=8, chosen=2),
        Mixture(name="Qwen3-30B-A3B", total=30.5e9, active=3.3e9, experts=128, chosen=8),
        Mixture(name="gpt-oss-120b", total=116.8e9, active=5.1e9, experts=128, chosen=4),
        Mixture(name="DeepSeek-V3", total=671e9, active=37e9, experts=256, chosen=8),
    )
}
"""Sizes from the model cards; DeepSeek-V3's shared expert counts to what every token needs."""
