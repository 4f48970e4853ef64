"""Drafting with the attached head: a preallocated cache, few and small operations a step.

`AttachedHeadRunner` holds the weights in the form that one token likes best (norm gains folded in, matrices stored transposed
and joined); `HeadDrafter` is the drafter of one run.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.drafters import NOTHING, Drafter, Proposal, Request
from specdec.errors import ModelError, PairError
from specdec.head import AttachedHead, HeadShape
from specdec.reduced import ReducedVocabulary, TargetTables, fill, read_drafter


def load_head(path: Path, target: Any) -> AttachedHeadRunner:
    """The head in `path` for `target`, a runner of the model that it was trained for.

    Raises ModelError when the file is missing, damaged or no head, and PairError when it belongs to another target.
    """
    tables = TargetTables.of(target)
    file = read_drafter(path, kind="head", embedding=tables.embedding)
    try:
        shape = HeadShape(**{**file.shape, "taps": tuple(file.shape["taps"])})
    except (TypeError, KeyError) as error:
        raise ModelError(f"{Path(path).name} does not describe a head ({error}): copy the file again.") from error
    if max(shape.taps) != target.config.num_hidden_layers or shape.width != target.config.hidden_size:
        raise PairError(
            f"{Path(path).name} reads layers {shape.taps} of width {shape.width}; this target has "
            f"{target.config.num_hidden_layers} layers of width {target.config.hidden_size}."
        )
    head = AttachedHead(shape)
    fill(head, file, name=Path(path).name)
    return AttachedHeadRunner(head, tables, file.vocabulary)


class AttachedHeadRunner:
    """The weights, shared by all runs. parameters: of the head itself; parameters_read: those that one draft step reads."""

    @torch.no_grad()
    def __init__(self, head: AttachedHead, target: TargetTables, vocabulary: Tensor) -> None:
        shape, device = head.shape, target.embedding.device
        self.shape, self.size, self.device = shape, head.size, device
        self.taps = shape.taps
        self.embedding = target.embedding
        self.vocabulary = ReducedVocabulary(vocabulary.to(device), len(self.embedding))
        head = head.to(device).float()
        # The target shows its last layer behind the final norm, gain included: take the gain back out.
        self.last_gain = target.final_gain
        self.fuse = head.fuse.weight.T.contiguous()
        self.join = torch.cat(
            [(head.join_feature.weight * head.feature_gain).T, (head.join_token.weight * head.token_gain).T]
        ).contiguous()
        self.project = (torch.cat([head.query.weight, head.key_value.weight]) * head.attention_gain).T.contiguous()
        self.mix = head.mix.weight.T.contiguous()
        self.gate_up = (torch.cat([head.gate.weight, head.up.weight]) * head.inner_gain).T.contiguous()
        self.down = head.down.weight.T.contiguous()
        self.rows = (self.embedding[self.vocabulary.ids].float() * head.final_gain).T.contiguous()
        self.cos, self.sin = head.angles(torch.arange(512, device=device))
        self._angles = head.angles
        self.parameters = sum(weight.numel() for weight in head.parameters())
        self.parameters_read = sum(w.numel() for w in (self.join, self.project, self.mix, self.gate_up, self.down, self.rows))

    def rotary(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """cos and sin [stop − start, 1, size] of the slots."""
        while stop > len(self.cos):
            self.cos, self.sin = self._angles(torch.arange(2 * len(self.cos), device=self.device))
        return self.cos[start:stop, None], self.sin[start:stop, None]

    def features(self, hidden: Tensor) -> Tensor:
        """hidden [n, F, d] as the target shows it -> fused features [n, d]."""
        states = hidden.float()
        width = (self.shape.width,)
        early = F.rms_norm(states[:, :-1], width, eps=1e-6)
        last = states[:, -1:] / self.last_gain
        return torch.cat([early, last], 1).flatten(1) @ self.fuse


class HeadSequence:
    """One run's keys and values in the head; slot 0 does not exist, slot s holds token s read with the feature of s − 1."""

    def __init__(self, runner: AttachedHeadRunner, capacity: int = 256) -> None:
        self.runner, self.length = runner, 0
        self._keys = torch.zeros(runner.shape.groups, capacity, runner.size, device=runner.device)
        self._values = torch.zeros_like(self._keys)

    def forward(self, features: Tensor, tokens: list[int]) -> Tensor:
        """features [n, d] of the positions before, their following tokens [n] -> own feature [1, d] of the last slot; appends n.

        With one layer, keys and values do not depend on what the slots before have answered: all but the last slot stop there.
        """
        runner, shape, width = self.runner, self.runner.shape, (self.runner.shape.width,)
        count, start = len(tokens), self.length
        stop = start + count
        self._grow(stop)
        embedded = runner.embedding[torch.tensor(tokens, device=runner.device)].float()
        stream = torch.cat([F.rms_norm(features, width, eps=1e-6), F.rms_norm(embedded, width, eps=1e-6)], 1) @ runner.join
        joint = (F.rms_norm(stream, width, eps=1e-6) @ runner.project).view(count, -1, runner.size)
        cos, sin = runner.rotary(start + 1, stop + 1)  # the first slot is the one of position 1
        turned = joint[:, : shape.heads + shape.groups]
        half = runner.size // 2
        turned = turned * cos + torch.cat([-turned[..., half:], turned[..., :half]], -1) * sin
        self._keys[:, start:stop] = turned[:, shape.heads :].transpose(0, 1)
        self._values[:, start:stop] = joint[:, shape.heads + shape.groups :].transpose(0, 1)
        self.length = stop
        query = turned[-1, : shape.heads].view(shape.groups, -1, runner.size)  # the heads of a group share its keys
        scores = query @ self._keys[:, :stop].transpose(1, 2) * runner.size**-0.5
        mixed = (scores.softmax(-1) @ self._values[:, :stop]).view(1, -1)
        last = stream[-1:] + mixed @ runner.mix
        gate, up = (F.rms_norm(last, width, eps=1e-6) @ runner.gate_up).chunk(2, -1)
        return last + (F.silu(gate) * up) @ runner.down

    def logits(self, feature: Tensor) -> Tensor:
        """feature [1, d] -> logits [1, n] over the draft vocabulary."""
        return F.rms_norm(feature, (self.runner.shape.width,), eps=1e-6) @ self.runner.rows

    def crop(self, length: int) -> None:
        """Forget the slots behind the first `length`."""
        self.length = min(length, self.length)

    def _grow(self, needed: int) -> None:
        if needed > self._keys.shape[1]:
            room = max(needed, 2 * self._keys.shape[1]) - self._keys.shape[1]
            self._keys = F.pad(self._keys, (0, 0, 0, room))
            self._values = F.pad(self._values, (0, 0, 0, room))


class HeadDrafter(Drafter):
    """The attached head as a drafter: feeds on the target's states where there are any, behind them on its own features."""

    name = "head"

    def __init__(self, runner: AttachedHeadRunner) -> None:
        self.runner = runner
        self.hidden_layers = runner.taps
        self.sequence = HeadSequence(runner)

    def start(self, prompt_ids: list[int], target: Any) -> None:
        self.target = target
        self.sequence.crop(0)
        self._known = 0  # positions of the target whose states have been taken over
        self._waiting: list[Tensor] = []  # fused features [n, d] of committed positions that no slot has read yet
        if len(prompt_ids) > 1:
            self._take(target.hidden)
            if len(prompt_ids) > 2:  # all but the newest slot belong to the prompt and need no draft time
                features = torch.cat(self._waiting)
                with torch.inference_mode():
                    self.sequence.forward(features[:-1], prompt_ids[1:-1])
                self._waiting = [features[-1:]]

    @torch.inference_mode()
    def propose(self, request: Request) -> Proposal:
        if request.count < 1 or not self._waiting:
            return NOTHING
        ids: list[int] = []
        rows: list[Tensor] = []
        us: list[float | None] = []
        seconds: list[float] = []
        feature = None
        for _ in range(request.count):
            request.check()
            begun = time.perf_counter()
            if feature is None:
                features = self._waiting[0] if len(self._waiting) == 1 else torch.cat(self._waiting)
                feature = self.sequence.forward(features, request.committed[-len(features) :])
                self._waiting = []
                self._true = self.sequence.length
            else:
                feature = self.sequence.forward(feature, [ids[-1]])
            token, u, q = self.runner.vocabulary.pick(self.sequence.logits(feature), request)
            ids.append(token)
            us.append(u)
            if q is not None:
                rows.append(q)
            seconds.append(time.perf_counter() - begun)
        self.sequence.crop(self._true)
        return Proposal(ids, self.runner.vocabulary.spread(torch.stack(rows)) if rows else None, us, seconds)

    def settle(self, kept: int) -> None:
        self._take(self.target.hidden[: kept - self._known])

    def _take(self, hidden: Tensor) -> None:
        with torch.inference_mode():
            self._waiting.append(self.runner.features(hidden))
        self._known += len(hidden)
