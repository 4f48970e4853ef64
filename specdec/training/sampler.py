"""The target writes the texts for training: answers to forms, answers about its own earlier words, and questions of its own.

A chat model that is given the beginning of a user's turn and nothing else writes a question (Xu et al. 2024, "Magpie",
arXiv 2406.08464). No two of those are alike, which is what a drafter needs to meet prompts of kinds that no list has. What
the target computes for a token is what a drafter is trained on, so it is kept as it goes by: features made later would cost
a second pass over every text.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from specdec.head import rotate, unit
from specdec.training import prompts
from specdec.training.features import TargetPass

TEMPERATURES = (0.0, 0.7, 0.7, 1.0, 1.0)
"""Of the answers, in these shares: drafters meet greedy and sampled runs."""
OWN_TEMPERATURE = 0.9
"""Of the user's turns that the target writes itself: above, many are no sentences; below, they are alike."""
SHARES = {"own": 0.5, "quote": 0.15, "form": 0.35}
"""Where the prompts come from."""
QUOTED_TOKENS = 60


@dataclass
class Writing:
    """A text in a slot; `prompt` is 0 while the target still writes the user's turn."""

    tokens: list[int]
    prompt: int
    temperature: float


@dataclass(frozen=True)
class Sampled:
    """A finished text: how many of `tokens` are its prompt; `kept`, if it was asked for, what the target computed at each position:
    features [N, F, d] float16 with unit rows.
    """

    tokens: list[int]
    prompt: int
    temperature: float
    kept: np.ndarray | None = field(default=None, repr=False)


class TextSampler:
    """Many texts at once: every slot is one text, a finished one makes room for the next, the common beginning is computed once.

    Keys and values lie in buffers of full length; a concatenated cache would copy gigabytes a step. A token is drawn by
    inverting the cumulative sum with one uniform a row, far cheaper here than torch.multinomial over 49,152 columns.
    `taps`: the layers whose features are kept, none by default.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        slots: int = 128,
        new_tokens: int = 160,
        prompt_tokens: int = 120,
        seed: int = 0,
        taps: tuple[int, ...] = (),
        shares: dict[str, float] | None = None,
    ):
        self.model, self.tokenizer, self.slots, self.new_tokens, self.prompt_tokens = (
            model,
            tokenizer,
            slots,
            new_tokens,
            prompt_tokens,
        )
        self.device, self.eos, self.shares = model.device, int(model.config.eos_token_id), dict(shares or SHARES)
        self.random = random.Random(seed)
        self.draws = torch.Generator(device=self.device).manual_seed(seed)
        before, behind = self._template()
        self.beginning, self.behind = self._ids(before), self._ids(behind)
        if self.behind[0] != self.eos:  # where a user's turn ends otherwise than an answer, it would never end
            self.shares["own"] = 0.0
        self.run_of_target = TargetPass(model, self.beginning, taps or (model.config.num_hidden_layers,))
        self.longest = len(self.beginning) + prompt_tokens + new_tokens
        run = self.run_of_target
        shape = (len(run.layers), slots, run.groups, self.longest, run.size)
        self.keys, self.values = torch.zeros(shape, device=self.device), torch.zeros(shape, device=self.device)
        for index, (key, value) in enumerate(run.past):
            self.keys[index, :, :, : len(self.beginning)], self.values[index, :, :, : len(self.beginning)] = key, value
        self.output = model.lm_head.weight.detach().T.contiguous()
        self.features: torch.Tensor | None = None
        if taps:
            self.features = torch.zeros(slots, self.longest, len(taps), model.config.hidden_size, dtype=torch.float16)
        self.answers: list[list[int]] = []  # of late, to quote from
        self.texts: list[Writing] = []  # one a slot

    def _ids(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def _template(self) -> tuple[str, str]:
        marker = "@@@"
        text = self.tokenizer.apply_chat_template([{"role": "user", "content": marker}], add_generation_prompt=True, tokenize=False)
        before, behind = text.split(marker)
        return before, behind

    def _fresh(self) -> Writing:
        """A new text."""
        (kind,) = self.random.choices(list(self.shares), list(self.shares.values()))
        temperature = self.random.choice(TEMPERATURES)
        if kind == "own":
            return Writing([*self.beginning], 0, temperature)
        while True:
            if kind == "quote" and self.answers:
                quoted = self.random.choice(self.answers)[: self.random.randint(QUOTED_TOKENS // 3, QUOTED_TOKENS)]
                prompt = prompts.quoting_prompt(self.random, self.tokenizer.decode(quoted, skip_special_tokens=True))
            else:
                prompt = prompts.training_prompt(self.random)
            ids = self.beginning + self._ids(prompt) + self.behind
            if len(ids) <= len(self.beginning) + self.prompt_tokens:
                return Writing(ids, len(ids), temperature)

    @torch.inference_mode()
    def _forward(self, ids: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """ids, positions [B], one token of every slot -> (hidden states [B, d] before the final norm, those behind the taps)."""
        run, rows, top = self.run_of_target, torch.arange(len(ids), device=self.device), int(positions.max()) + 1
        angle = positions[:, None].float() * run.inverse.to(self.device)
        angles = torch.cat([angle.cos()] * 2, -1)[:, None], torch.cat([angle.sin()] * 2, -1)[:, None]
        hidden = self.model.model.embed_tokens(ids)
        seen, taps = (torch.arange(top, device=self.device) <= positions[:, None])[:, None, None], []

        for index, (layer, (joined, mix, gate, up, down)) in enumerate(zip(self.model.model.layers, run.layers, strict=True)):
            all_heads = (layer.input_layernorm(hidden) @ joined).view(len(ids), -1, run.size)
            query, key, value = all_heads.split([run.heads, run.groups, run.groups], 1)
            keys, values = self.keys[index], self.values[index]
            keys[rows, :, positions], values[rows, :, positions] = rotate(key, angles), value
            # [B, groups, heads of a group, size]: each group's keys are read once
            mixed = F.scaled_dot_product_attention(
                rotate(query, angles).view(len(ids), run.groups, -1, run.size), keys[:, :, :top], values[:, :, :top], attn_mask=seen
            )
            hidden = hidden + mixed.reshape(len(ids), -1) @ mix
            normed = layer.post_attention_layernorm(hidden)
            hidden = hidden + F.silu(normed @ gate).mul_(normed @ up) @ down
            if index + 1 in run.taps:
                taps.append(unit(hidden))
        return hidden, taps

    def _draw(self, logits: torch.Tensor, temperatures: torch.Tensor) -> torch.Tensor:
        """logits [B, V], temperatures [B] (0: argmax) -> ids [B]."""
        cumulative = (logits / temperatures.clamp_min(1e-3)[:, None]).softmax(-1).cumsum(-1)
        u = torch.rand(len(logits), 1, generator=self.draws, device=self.device) * cumulative[:, -1:]
        drawn = torch.searchsorted(cumulative, u, right=True)[:, 0].clamp(max=logits.shape[-1] - 1)
        return torch.where(temperatures > 0, drawn, logits.argmax(-1))

    @torch.inference_mode()
    def run(
        self,
        *,
        enough: Callable[[int], bool],
        save: Callable[[list[Sampled]], None],
        every: int = 64,
        progress: Callable[[int, float], None] = lambda tokens, rate: None,
    ) -> int:
        """Sample until `enough(answer tokens so far)`; `save` gets the finished texts, `every` of them at a time. Returns the new
        answer tokens.

        Texts that are not finished at the end are kept as well, as far as they go: to stop only after full texts would prefer
        short ones.
        """
        begun, count, done = time.time(), 0, []
        self.texts = texts = [self._fresh() for _ in range(self.slots)]
        # The last token of the beginning is read again: the first token of an own question is drawn from what it says.
        at = torch.full((self.slots,), len(self.beginning) - 1, device=self.device)
        while not enough(count):
            places = at.tolist()
            ids = torch.tensor([text.tokens[place] for text, place in zip(texts, places, strict=True)], device=self.device)
            hidden, taps = self._forward(ids, at)
            logits = (self.model.model.norm(hidden) @ self.output).float()
            if self.features is not None:
                self.features[torch.arange(self.slots), at.cpu()] = torch.stack(taps, 1).half().cpu()
            hot = torch.tensor([text.temperature if text.prompt else OWN_TEMPERATURE for text in texts], device=self.device)
            drawn = self._draw(logits, hot).tolist()
            at += 1
            for slot, text in enumerate(texts):
                if places[slot] + 1 < len(text.tokens):
                    continue  # still inside the prompt
                if self._write(text, drawn[slot]):
                    count += text.prompt > 0
                    continue
                if text.prompt:
                    count += 1
                    done.append(self._sampled(slot, text))
                    self.answers = [*self.answers[-199:], text.tokens[text.prompt :]]
                texts[slot] = self._fresh()
                at[slot] = len(self.beginning) - 1
            if len(done) >= every:
                save(done)
                done = []
            progress(count, count / (time.time() - begun))
        done += [
            self._sampled(slot, text) for slot, text in enumerate(texts) if text.prompt and len(text.tokens) - text.prompt >= 8
        ]
        if done:
            save(done)
        return count

    def _write(self, text: Writing, token: int) -> bool:
        """Put a drawn token behind the text. False: it is finished, or, while `prompt` is 0, no good."""
        text.tokens.append(token)
        if text.prompt:
            return token != self.eos and len(text.tokens) - text.prompt < self.new_tokens
        length = len(text.tokens) - len(self.beginning)
        if token != self.eos:
            return length + len(self.behind) < self.prompt_tokens
        question = self.tokenizer.decode(text.tokens[len(self.beginning) : -1])
        if length < 4 or prompts.held_out(question):
            return False
        text.tokens[-1:] = self.behind  # it begins with the same end of turn
        text.prompt = len(text.tokens)
        return True

    def _sampled(self, slot: int, text: Writing) -> Sampled:
        length, kept = len(text.tokens), None
        if self.features is not None:
            kept = self.features[slot, :length].numpy().copy()
            kept[length - 1] = 0  # the last token was drawn and never read: its row, which no training looks at, stays empty
        return Sampled(text.tokens, text.prompt, text.temperature, kept)
