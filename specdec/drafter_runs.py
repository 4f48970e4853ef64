"""Runs of one prompt with every drafter, made comparable: each drafter several times in turns, the middle run, one plain step for all.

A run alone has a plain step of its own, measured in a quiet or a busy moment of the machine; two runs differ by some per cent
through that alone.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence

from specdec import metrics
from specdec.engine import RunRequest
from specdec.experiments import Guesses
from specdec.trace import Settings, Trace

REPEATS = 3


def requests_of_all(prompt: str, drafters: Sequence[str], *, draft_length: int = 4) -> list[tuple[str, RunRequest]]:
    """Greedy runs of one prompt with each drafter and with one that guesses at random, `REPEATS` times in turns."""
    found = []
    for drafter in in_turns((*drafters, Guesses.name)):
        guesses = Guesses() if drafter == Guesses.name else None
        settings = Settings(drafter=drafter, draft_length=draft_length, max_new_tokens=48)
        found.append((drafter, RunRequest(prompt=prompt, settings=settings, experiment=guesses)))
    return found


def middle_runs(runs: Iterable[Trace]) -> dict[str, Trace]:
    """Drafter -> of its runs the one of the middle time per token of decoding, in order of first appearance.

    Runs without a plain step (they shared their passes with others', which made them slower) count only where a drafter has no other.
    """
    by_drafter: dict[str, list[Trace]] = {}
    for run in runs:
        by_drafter.setdefault(run.settings.drafter, []).append(run)
    found = {}
    for name, own in by_drafter.items():
        compared = sorted((run for run in own if run.plain_step_seconds), key=_per_token) or sorted(own, key=_per_token)
        found[name] = compared[(len(compared) - 1) // 2]
    return found


def with_one_plain_step(runs: dict[str, Trace]) -> dict[str, Trace]:
    """The runs with the median of their plain steps in place of each one's own, so that speed-ups, c and v compare."""
    steps = [run.plain_step_seconds for run in runs.values() if run.plain_step_seconds]
    if not steps:
        return dict(runs)
    shared = statistics.median(steps)
    return {
        name: dataclasses.replace(run, plain_step_seconds=shared) if run.plain_step_seconds else run for name, run in runs.items()
    }


def in_turns(names: Sequence[str], repeats: int = REPEATS) -> list[str]:
    """Every name so many times, each turn beginning with another one."""
    return [names[(turn + place) % len(names)] for turn in range(repeats) for place in range(len(names))]


def _per_token(run: Trace) -> float:
    return metrics.summary(run).seconds_decode / max(1, run.totals.new_tokens)
