"""Texts for training, written by the target itself, in numbered files that are never written twice.

A file text-NNN.npz holds `tokens` uint16 (all texts end to end, each with its system prompt and user turn), `start` int64
[S+1], `prompt` int32 [S] (how many tokens of each are prompt) and `temperature` float16 [S].
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from specdec.training.prompts import training_prompt

TEMPERATURES = (0.0, 0.7, 0.7, 1.0, 1.0)
"""Of the sampled texts, in these shares: drafters meet greedy and sampled runs."""


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


class TextSampler:
    """Many texts at once: every slot is one text, a finished one makes room for a new prompt, the common beginning is computed
    once.

    Keys and values lie in buffers of full length; a concatenated cache would copy gigabytes a step. A token is drawn by
    inverting the cumulative sum with one uniform a row, far cheaper here than torch.multinomial over 49,152 columns.
    """

    def __init__(
        self, model: Any, tokenizer: Any, *, slots: int = 128, new_tokens: int = 160, prompt_tokens: int = 90, seed: int = 0
    ):
        self.model, self.tokenizer, self.slots, self.new_tokens, self.prompt_tokens = (
            model,
            tokenizer,
            slots,
            new_tokens,
            prompt_tokens,
        )
        config = model.config
        self.device, self.eos = model.device, int(config.eos_token_id)
        self.heads, self.groups = config.num_attention_heads, config.num_key_value_heads
        self.size = config.hidden_size // self.heads
        self.inverse = 1.0 / (
            config.rope_parameters["rope_theta"] ** (torch.arange(0, self.size, 2, device=self.device).float() / self.size)
        )
        self.random = random.Random(seed)
        self.draws = torch.Generator(device=self.device).manual_seed(seed)
        before, self.behind = self._template()
        self.beginning = tokenizer(before, add_special_tokens=False)["input_ids"]
        longest = len(self.beginning) + prompt_tokens + new_tokens
        shape = (config.num_hidden_layers, slots, self.groups, longest, self.size)
        self.keys, self.values = torch.zeros(shape, device=self.device), torch.zeros(shape, device=self.device)

    def _template(self) -> tuple[str, str]:
        marker = "@@@"
        text = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": marker}], add_generation_prompt=True, tokenize=False
        )
        before, behind = text.split(marker)
        return before, behind

    def _fresh(self) -> tuple[list[int], int, float]:
        """A new text: prompt tokens, their number, temperature."""
        while True:
            ids = (
                self.beginning + self.tokenizer(training_prompt(self.random) + self.behind, add_special_tokens=False)["input_ids"]
            )
            if len(ids) <= len(self.beginning) + self.prompt_tokens:
                return ids, len(ids), self.random.choice(TEMPERATURES)

    @torch.inference_mode()
    def _forward(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """ids, positions [B], one token of every slot -> states for the output rows [B, d]."""
        rows, top = torch.arange(len(ids), device=self.device), int(positions.max()) + 1
        angle = positions[:, None].float() * self.inverse
        cos, sin = torch.cat([angle.cos()] * 2, -1)[:, None], torch.cat([angle.sin()] * 2, -1)[:, None]
        hidden, half = self.model.model.embed_tokens(ids), self.size // 2
        seen = (torch.arange(top, device=self.device) <= positions[:, None])[:, None, None]

        def rotate(x: torch.Tensor) -> torch.Tensor:
            return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin

        for layer, keys, values in zip(self.model.model.layers, self.keys, self.values, strict=True):
            attention, normed = layer.self_attn, layer.input_layernorm(hidden)
            query = rotate(attention.q_proj(normed).view(-1, self.heads, self.size))
            keys[rows, :, positions] = rotate(attention.k_proj(normed).view(-1, self.groups, self.size))
            values[rows, :, positions] = attention.v_proj(normed).view(-1, self.groups, self.size)
            # [B, groups, heads of a group, size]: each group's keys are read once
            mixed = F.scaled_dot_product_attention(
                query.view(len(ids), self.groups, -1, self.size), keys[:, :, :top], values[:, :, :top], attn_mask=seen
            )
            hidden = hidden + attention.o_proj(mixed.reshape(len(ids), -1))
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        return self.model.model.norm(hidden)

    def _draw(self, states: torch.Tensor, temperatures: torch.Tensor) -> torch.Tensor:
        """states [B, d], temperatures [B] (0: argmax) -> ids [B]."""
        logits = self.model.lm_head(states).float()
        cumulative = (logits / temperatures.clamp_min(1e-3)[:, None]).softmax(-1).cumsum(-1)
        u = torch.rand(len(states), 1, generator=self.draws, device=self.device) * cumulative[:, -1:]
        drawn = torch.searchsorted(cumulative, u, right=True)[:, 0].clamp(max=logits.shape[-1] - 1)
        return torch.where(temperatures > 0, drawn, logits.argmax(-1))

    @torch.inference_mode()
    def run(
        self,
        *,
        enough: Callable[[int], bool],
        save: Callable[[list[tuple[list[int], int, float]]], None],
        every: int = 64,
        progress: Callable[[int, float], None] = lambda tokens, rate: None,
    ) -> int:
        """Sample until `enough(new tokens so far)`; `save` gets the finished texts, `every` of them at a time. Returns the new
        tokens.

        Texts that are not finished at the end are kept as well, as far as they go: to stop only after full texts would prefer
        short ones.
        """
        begun, count, done = time.time(), 0, []
        for place, token in enumerate(self.beginning):
            self._forward(
                torch.full((self.slots,), token, device=self.device), torch.full((self.slots,), place, device=self.device)
            )
        texts = [self._fresh() for _ in range(self.slots)]
        at = torch.full((self.slots,), len(self.beginning), device=self.device)
        temperatures = torch.tensor([temperature for _, _, temperature in texts], device=self.device)
        while not enough(count):
            places = at.tolist()
            ids = torch.tensor([tokens[place] for (tokens, _, _), place in zip(texts, places, strict=True)], device=self.device)
            drawn = self._draw(self._forward(ids, at), temperatures).tolist()
            at += 1
            for slot, (tokens, prompt, temperature) in enumerate(texts):
                if places[slot] + 1 < len(tokens):
                    continue  # still inside the prompt
                tokens.append(drawn[slot])
                count += 1
                if drawn[slot] == self.eos or len(tokens) - prompt >= self.new_tokens:
                    done.append((tokens, prompt, temperature))
                    texts[slot] = self._fresh()
                    temperatures[slot], at[slot] = texts[slot][2], len(self.beginning)
            if len(done) >= every:
                save(done)
                done = []
            progress(count, count / (time.time() - begun))
        done += [text for text in texts if len(text[0]) - text[1] >= 8]
        if done:
            save(done)
        return count
