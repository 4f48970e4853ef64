"""Carries out `specdec.precision`: greedy texts of the same target in several number formats."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from specdec.errors import SpecdecError
from specdec.experiments import Carried, origin
from specdec.precision import STRIDE, Parting, Precision, PrecisionFinding, Text

BEST = 5  # logits that are kept of each place


@dataclass(eq=False)
class Written:
    """A text as it is written. best: for each token the best few ids and their logits."""

    ids: list[int] = field(default_factory=list)
    best: list[dict[int, float]] = field(default_factory=list)

    def put(self, logits: torch.Tensor) -> int:
        """logits [V] -> the token that they choose."""
        values, ids = logits.topk(BEST)
        self.best.append(dict(zip(ids.tolist(), values.tolist(), strict=True)))
        self.ids.append(int(logits.argmax()))
        return self.ids[-1]


def one_by_one(runner: Any, prompt: list[int], text: Written, *, tokens: int, eos_ids: frozenset[int]) -> Iterator[None]:
    """Plain greedy decoding; stops every few tokens."""
    sequence = runner.open()
    sequence.forward(prompt[:-1], keep=1)
    newest = prompt[-1]
    while len(text.ids) < tokens and newest not in eos_ids:
        newest = text.put(sequence.forward([newest], keep=1)[-1])
        if len(text.ids) % STRIDE == 0:
            yield


def verified(
    runner: Any, prompt: list[int], text: Written, *, guide: list[int], block: int, tokens: int, eos_ids: frozenset[int]
) -> Iterator[None]:
    """Greedy speculative decoding whose drafts are what `guide` has at the same place, `block` of them in a pass."""
    sequence = runner.open()
    sequence.forward(prompt[:-1], keep=1)
    newest, stopped = prompt[-1], 0
    while len(text.ids) < tokens and newest not in eos_ids:
        start = len(text.ids)
        drafts = guide[start : min(start + block, tokens - 1)]
        logits = sequence.forward([newest, *drafts], keep=1 + len(drafts))
        for place, row in enumerate(logits):
            newest = text.put(row)
            if newest in eos_ids or place == len(drafts) or newest != drafts[place]:
                break
        sequence.crop(len(prompt) + len(text.ids) - 1)
        if len(text.ids) // STRIDE > stopped:
            stopped = len(text.ids) // STRIDE
            yield


def parting(first: Written, second: Written, name: Callable[[int], str]) -> Parting | None:
    """Where two texts part, None where they are the same."""
    for place, (a, b) in enumerate(zip(first.ids, second.ids, strict=False)):
        if a != b:
            logits = [tuple(_round(one.best[place].get(i)) for i in (a, b)) for one in (first, second)]
            return Parting(place=place, first=name(a), second=name(b), first_logits=logits[0], second_logits=logits[1])
    return None


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def begin(pair: Any, request: Any, stop: Callable[[], bool]) -> Carried:
    work = _Work(pair, request.experiment)
    return Carried(work.steps(), work.finding, stop)


class _Work:
    def __init__(self, pair: Any, asked: Precision) -> None:
        self.pair, self.asked = pair, asked
        self.prompts = [list(pair.encode(prompt, raw=False)) for prompt in asked.prompts]
        self.texts: list[Text] = []
        self.left_out: list[str] = []
        self._first: dict[int, Written] = {}

    def steps(self) -> Iterator[str]:
        asked, name, eos_ids = self.asked, self.pair.texts.text, self.pair.eos_ids
        for kind in asked.formats:
            try:
                runner = in_format(self.pair, kind)
            except (SpecdecError, RuntimeError) as error:
                self.left_out.append(f"{kind}: {error}")
                continue
            yield kind
            for number, prompt in enumerate(self.prompts):
                plain, checked = Written(), Written()
                common = {"tokens": asked.new_tokens, "eos_ids": eos_ids}
                for _ in one_by_one(runner, prompt, plain, **common):
                    yield kind
                for _ in verified(runner, prompt, checked, guide=plain.ids, block=asked.block, **common):
                    yield kind
                first = self._first.setdefault(number, plain)
                gaps = [ordered[0] - ordered[1] for best in plain.best if (ordered := sorted(best.values(), reverse=True))]
                self.texts.append(
                    Text(
                        format=kind,
                        prompt=number,
                        tokens=len(plain.ids),
                        text=self._decoded(plain),
                        verified=self._decoded(checked),
                        usual_gap=round(statistics.median(gaps), 4),
                        passes=parting(plain, checked, name),
                        formats=None if first is plain else parting(first, plain, name),
                    )
                )
            del runner

    def _decoded(self, text: Written) -> str:
        return self.pair.texts.decode([i for i in text.ids if i not in self.pair.eos_ids])

    def finding(self, reason: str) -> PrecisionFinding:
        return PrecisionFinding(
            finish_reason=reason,
            **origin(self.pair),
            prompts=self.asked.prompts,
            block=self.asked.block,
            new_tokens=self.asked.new_tokens,
            texts=tuple(self.texts),
            left_out=tuple(self.left_out),
        )


def in_format(pair: Any, kind: str) -> Any:
    """A runner of the pair's target whose numbers are of that format. Raises SpecdecError where this machine has no such thing."""
    if kind == pair.dtype:
        return pair.target
    from specdec.fetch import fetch_embedded
    from specdec.llama import fastest_runner
    from specdec.loading import load_model
    from specdec.runner import Runner

    folder, name = fetch_embedded(), f"the target in {kind}"
    if kind == "int8":
        model = load_model(folder, name=name, device=torch.device("cpu"), dtype="float32")
        return fastest_runner(model, vocabulary=pair.vocabulary, weights="int8")
    return Runner(load_model(folder, name=name, device=pair.device, dtype=kind), vocabulary=pair.vocabulary)
