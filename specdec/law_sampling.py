"""Carries out `specdec.law`: many short runs of one prompt, some at a time in the same passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from specdec.batch import BatchRun
from specdec.experiments import Carried, origin
from specdec.law import LEAST, Law, LawFinding, tallied
from specdec.sampling import SamplingRule
from specdec.trace import Settings

METHODS = ("speculative", "plain")


def begin(pair: Any, request: Any, stop: Callable[[], bool]) -> Carried:
    work = _Work(pair, request.prompt, request.experiment, stop)
    return Carried(work.steps(), work.finding, stop)


class _Work:
    def __init__(self, pair: Any, prompt: str, asked: Law, stop: Callable[[], bool]) -> None:
        self.pair, self.prompt, self.asked, self.stop = pair, prompt, asked, stop
        self.name = asked.drafter or pair.drafters[0]
        self.texts: dict[str, list[tuple[int, ...]]] = {method: [] for method in METHODS}
        self.drafted = self.accepted = 0
        self.p: torch.Tensor | None = None

    def steps(self) -> Iterator[str]:
        """Some continuations of one kind, then as many of the other one: a measurement that is stopped has both."""
        asked = self.asked
        self.p = self._exact()
        for first in range(0, asked.count, asked.at_once):
            numbers = range(first, min(first + asked.at_once, asked.count))
            for turn, method in enumerate(METHODS):
                # Dice of their own: with the same seeds the two kinds would be no independent samples.
                self._draw(method, [asked.seed + 2 * number + turn for number in numbers])
                yield method

    def _settings(self) -> Settings:
        asked = self.asked
        return Settings(
            drafter=self.name,
            temperature=asked.temperature,
            top_p=asked.top_p,
            max_new_tokens=asked.tokens,
            raw=asked.raw,
        )

    def _exact(self) -> torch.Tensor:
        """[V], the target's probabilities of the first token."""
        ids = list(self.pair.encode(self.prompt, raw=self.asked.raw))
        rule = SamplingRule.of(self._settings())
        return rule.probabilities(self.pair.target.open().forward(ids, keep=1))[0]

    def _draw(self, method: str, seeds: list[int]) -> None:
        settings = self._settings()
        requests = [(self.prompt, settings.replace(seed=seed)) for seed in seeds]
        batch = BatchRun(self.pair, requests, method=method, at_once=len(requests), stop=self.stop)
        for _ in batch:
            pass
        for run in batch.runs:
            if run.finish_reason in (None, "stopped"):
                continue
            self.texts[method].append(tuple(run.output_ids))
            self.drafted += sum(len(r.drafts) for r in run.rounds)
            self.accepted += sum(r.accepted for r in run.rounds)

    def finding(self, reason: str) -> LawFinding:
        name = self.pair.texts.text
        came = {ids[0] for texts in self.texts.values() for ids in texts}
        if self.p is not None:
            came |= set((self.p >= LEAST).nonzero().flatten().tolist())
        speculative, alone = (tallied(self.texts[method], name) for method in METHODS)
        return LawFinding(
            finish_reason=reason,
            **origin(self.pair),
            prompt=self.prompt,
            drafter=self.name,
            tokens=self.asked.tokens,
            temperature=self.asked.temperature,
            speculative=speculative,
            alone=alone,
            exact=tuple((i, float(f"{float(self.p[i]):.6g}")) for i in sorted(came)) if self.p is not None else (),
            drafted=self.drafted,
            accepted=self.accepted,
        )
