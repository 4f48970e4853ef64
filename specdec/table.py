"""Tiny models that are nothing but a table: the distribution of the next token, written down for each context.

The real loop runs over them as over any model, which makes a round small enough to follow by hand, and its law small enough to add up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Sequence

import torch
from torch import Tensor

from specdec.errors import SettingsError
from specdec.passes import one_by_one
from specdec.trace import PairInfo

NextDistribution = Callable[[tuple[int, ...]], Sequence[float]]


class TableModel:
    """next_distribution: all tokens so far -> V probabilities. Stands where a `Runner` stands."""

    device = torch.device("cpu")

    def __init__(self, next_distribution: NextDistribution, *, vocabulary: int) -> None:
        self.next_distribution = next_distribution
        self.vocabulary = vocabulary
        self.context, self.layers, self.width, self.parameters = 1 << 20, 1, 1, 0

    def open(self, *, hidden_layers: tuple[int, ...] = ()) -> "TableSequence":
        return TableSequence(self)

    together = staticmethod(one_by_one)

    def synchronize(self) -> None:
        """Nothing runs elsewhere."""


class TableSequence:
    """One run's tokens in a table model; `length` of them are "in the cache"."""

    hidden = None

    def __init__(self, model: TableModel) -> None:
        self.model = model
        self.tokens: list[int] = []

    @property
    def length(self) -> int:
        return len(self.tokens)

    def forward(self, ids: list[int], *, keep: int | None = None) -> Tensor:
        """Logits, float64 [keep, V], of the last `keep` of the fed tokens."""
        rows = []
        for token in map(int, ids):
            self.tokens.append(token)
            rows.append(list(self.model.next_distribution(tuple(self.tokens))))
        return torch.tensor(rows[-(keep or len(ids)) :], dtype=torch.float64).log()

    def warm(self, tokens: int, *, exit_layers: int = 0) -> None:
        """Nothing to prepare."""

    def crop(self, length: int) -> None:
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back to {length} tokens: the cache holds {self.length}.")
        del self.tokens[length:]


class WordTexts:
    """Token texts from a list of words."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)

    def text(self, token: int) -> str:
        return self.words[token]

    def fragment(self, token: int) -> str | None:
        return None

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.words[i] for i in ids)


@dataclass
class TablePair:
    """Two tables and a list of words, in the place of a loaded pair. A prompt is split into these words, longest first."""

    words: tuple[str, ...]
    target: TableModel
    draft: TableModel
    name: str = "table"
    title: str = "two small tables"
    eos_ids: frozenset[int] = frozenset()
    context: int = 1 << 20
    device_name: str = "cpu"
    plain_step_seconds: float | None = None
    drafters: tuple[str, ...] = ("draft", "lookup")
    experience: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    texts: WordTexts = field(init=False)

    def __post_init__(self) -> None:
        self.texts = WordTexts(self.words)

    @property
    def vocabulary(self) -> int:
        return len(self.words)

    def encode(self, prompt: str, *, raw: bool = True) -> list[int]:
        ids: list[int] = []
        rest = prompt
        while rest:
            fits = [i for i, word in enumerate(self.words) if word and rest.startswith(word)]
            if not fits:
                raise SettingsError(f"the table has no word for {rest[:20]!r}: use {', '.join(map(repr, self.words))}.")
            best = max(fits, key=lambda i: len(self.words[i]))
            ids.append(best)
            rest = rest[len(self.words[best]) :]
        return ids

    def info(self, drafter: str) -> PairInfo:
        return PairInfo(
            name=self.name,
            target="table of the target",
            draft="table of the draft" if drafter == "draft" else None,
            target_parameters=0,
            draft_parameters=0 if drafter == "draft" else None,
            dtype="float64",
            vocabulary=self.vocabulary,
            context=self.context,
        )
