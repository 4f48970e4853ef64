"""Texts for training, written by the target itself, in numbered files that are never written twice.

A file text-NNN.npz holds `tokens` uint16 (all texts end to end, each with its system prompt and user turn), `start` int64
[S+1], `prompt` int32 [S] (how many tokens of each are prompt) and `temperature` float16 [S].
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Corpus:
    """Texts end to end: `tokens` [N], `start` [S+1] their bounds, `prompt` [S] how many tokens of each are prompt,
    `temperature` [S].
    """

    tokens: np.ndarray
    start: np.ndarray
    prompt: np.ndarray
    temperature: np.ndarray

    @classmethod
    def load(cls, path: Path) -> Corpus:
        with np.load(path) as file:
            return cls(
                file["tokens"].astype(np.int64),
                file["start"],
                file["prompt"].astype(np.int64),
                file["temperature"].astype(np.float32),
            )

    @classmethod
    def of(cls, texts: list[tuple[list[int], int, float]]) -> Corpus:
        """texts: (tokens, how many of them are prompt, temperature)."""
        start = np.cumsum([0, *(len(tokens) for tokens, _, _ in texts)])
        return cls(
            np.concatenate([np.asarray(tokens, np.int64) for tokens, _, _ in texts]),
            start.astype(np.int64),
            np.array([prompt for _, prompt, _ in texts], np.int64),
            np.array([t for _, _, t in texts], np.float32),
        )

    def save(self, path: Path) -> None:
        """Write the file whole or not at all."""
        partial = path.with_suffix(".partial.npz")
        np.savez_compressed(
            partial,
            tokens=self.tokens.astype(np.uint16),
            start=self.start,
            prompt=self.prompt.astype(np.int32),
            temperature=self.temperature.astype(np.float16),
        )
        partial.replace(path)

    def __len__(self) -> int:
        return len(self.prompt)

    def text(self, index: int) -> np.ndarray:
        """Tokens of one text."""
        return self.tokens[self.start[index] : self.start[index + 1]]

    @property
    def answer_tokens(self) -> int:
        return int(self.start[-1] - self.prompt.sum())

    def common_beginning(self) -> int:
        """How many first tokens all prompts share (the last token of a prompt never counts)."""
        first = self.text(0)[: int(self.prompt.min()) - 1]
        same = np.stack([self.text(index)[: len(first)] == first for index in range(len(self))]).all(0)
        return len(first) if same.all() else int(np.argmin(same))


def text_files(folder: Path) -> list[Path]:
    """The numbered text files of a folder, in order."""
    return sorted(path for path in Path(folder).glob("text-*.npz") if ".partial" not in path.name)
