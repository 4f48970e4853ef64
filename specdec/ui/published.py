"""Figures from papers and public projects, for the charts "in the literature". None of them was measured here.

Those of the two papers were read from transcriptions of the papers, the others as their projects report them.
"""

from __future__ import annotations

from dataclasses import dataclass

LEVIATHAN = "Leviathan et al. 2023, arXiv 2211.17192, Table 2"
CHEN = "Chen et al. 2023, arXiv 2302.01318"


@dataclass(frozen=True)
class T5:
    """T5-XXL 11B, batch 1, with a smaller T5 in front. alpha, draft_length and speedup as the paper prints them."""

    task: str
    temperature: int
    draft: str
    alpha: float
    draft_length: int
    speedup: float


T5_RUNS = tuple(
    T5(task, temperature, draft, *values)
    for task, temperature, small, base, large in (
        ("English–German", 0, (0.75, 7, 3.4), (0.80, 7, 2.8), (0.82, 7, 1.7)),
        ("English–German", 1, (0.62, 7, 2.6), (0.68, 5, 2.4), (0.71, 3, 1.4)),
        ("CNN/DailyMail", 0, (0.65, 5, 3.1), (0.73, 5, 3.0), (0.74, 3, 2.2)),
        ("CNN/DailyMail", 1, (0.53, 5, 2.3), (0.55, 3, 2.2), (0.56, 3, 1.7)),
    )
    for draft, values in (("T5-small", small), ("T5-base", base), ("T5-large", large))
)


@dataclass(frozen=True)
class Reported:
    """One speed-up that somebody published."""

    what: str
    speedup: float
    source: str


REPORTED = (
    Reported("Chinchilla 70B + 4B, HumanEval", 2.46, CHEN),
    Reported("Chinchilla 70B + 4B, XSum, greedy", 2.01, CHEN),
    Reported("Chinchilla 70B + 4B, XSum, nucleus", 1.92, CHEN),
    Reported("70B int4 + 7B int4, A100", 1.92, "gpt-fast, README"),
    Reported("EAGLE-2, Vicuna-7B, A100", 2.36, "Spec-Bench"),
    Reported("Medusa heads, Vicuna-7B, A100", 1.71, "Spec-Bench"),
    Reported("Prompt look-up, Vicuna-7B, A100", 1.66, "Spec-Bench"),
    Reported("Separate draft model, Vicuna-7B, A100", 1.52, "Spec-Bench"),
    Reported("Look-ahead decoding, Vicuna-7B, A100", 1.34, "Spec-Bench"),
    Reported("Prompt look-up, summarising, RTX 3090", 2.46, "prompt look-up, project report"),
    Reported("Prompt look-up, translating, RTX 3090", 1.15, "prompt look-up, project report"),
    Reported("Attached head in vLLM, batch 1", 1.35, "vLLM, project report"),
    Reported("Attached head in vLLM, batch 16", 0.96, "vLLM, project report"),
)
