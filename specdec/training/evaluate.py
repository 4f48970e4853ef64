"""How good a drafter is: the real decoding loop on held-out prompts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from specdec.decoding import stream
from specdec.trace import Settings
from specdec.training.prompts import held_out_prompts


@dataclass(frozen=True)
class Result:
    """Sums over the runs of one drafter at one temperature.

    acceptance_rate α: accepted / judged. mean_acceptance_length τ: new tokens / target passes. by_position[i]: share accepted
    of the drafts judged at position i + 1. by_kind: α of each kind of prompt.
    """

    drafter: str
    temperature: float
    prompts: int
    new_tokens: int
    passes: int
    judged: int
    accepted: int
    by_position: tuple[float, ...]
    by_kind: dict[str, float]

    @property
    def acceptance_rate(self) -> float:
        return self.accepted / max(1, self.judged)

    @property
    def mean_acceptance_length(self) -> float:
        return self.new_tokens / max(1, self.passes)

    def line(self) -> str:
        """One row of a table."""
        positions = " ".join(f"{share:.2f}" for share in self.by_position)
        return (
            f"| {self.drafter} | {self.temperature:g} | {self.acceptance_rate:.3f} | {self.mean_acceptance_length:.2f} | "
            f"{positions} | {self.judged} judged, {self.new_tokens} tokens, {self.prompts} prompts |"
        )


def evaluate(
    pair: Any,
    drafter: str,
    *,
    temperature: float,
    prompts: int = 40,
    new_tokens: int = 64,
    draft_length: int = 4,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Result:
    """Run the held-out prompts, each with a seed of its own, and add up the verdicts."""
    tokens = passes = 0
    judged, accepted = [0] * draft_length, [0] * draft_length
    kinds: dict[str, list[int]] = {}
    for number, (kind, prompt) in enumerate(held_out_prompts(prompts, seed=seed)):
        settings = Settings(
            temperature=temperature, draft_length=draft_length, max_new_tokens=new_tokens, seed=seed + number, drafter=drafter
        )
        run = stream(pair, prompt, settings, record=False)
        counted = kinds.setdefault(kind, [0, 0])
        for round_ in run:
            passes += 1
            for position in range(round_.judged):
                judged[position] += 1
                accepted[position] += position < round_.accepted
            counted[0] += round_.accepted
            counted[1] += round_.judged
        tokens += len(run.output_ids)
        progress(number + 1, prompts)
    return Result(
        drafter,
        temperature,
        prompts,
        tokens,
        passes,
        sum(judged),
        sum(accepted),
        tuple(a / j for a, j in zip(accepted, judged, strict=True) if j),
        {kind: a / j for kind, (a, j) in kinds.items() if j},
    )
