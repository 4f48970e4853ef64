"""Drafting with the attached head: a preallocated cache, few and small operations a step.

`AttachedHeadRunner` holds the weights in the form that one token likes best (norm gains folded in, matrices stored transposed
and joined); `HeadDrafter` is the drafter of one run.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.drafters import NOTHING, Drafter, Proposal, Request
from specdec.errors import ModelError, PairError
from specdec.head import AttachedHead, HeadShape, rotary_angles, rotate
from specdec.kernels import drafting, drafting_bytes
from specdec.passes import Pass
from specdec.reduced import ReducedVocabulary, TargetTables, fill, read_drafter
from specdec.runner import sent, token_ids


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
        # [out, in] each, the gains of the norms in front taken in.
        weights = {
            "join": torch.cat([head.join_feature.weight * head.feature_gain, head.join_token.weight * head.token_gain], 1),
            "project": torch.cat([head.query.weight, head.key_value.weight]) * head.attention_gain,
            "mix": head.mix.weight,
            "gate_up": torch.cat([head.gate.weight, head.up.weight]) * head.inner_gain,
            "down": head.down.weight,
            "rows": self.embedding[self.vocabulary.ids].float() * head.final_gain,
        }
        self.fuse = drafting(head.fuse.weight)
        self.join, self.project, self.mix, self.gate_up, self.down, self.rows = map(drafting, weights.values())
        self.cos, self.sin = head.angles(torch.arange(512, device=device))
        self._angles = partial(rotary_angles, size=head.size, theta=shape.theta)  # not the head itself, which nobody else keeps
        self.parameters = sum(weight.numel() for weight in head.parameters())
        self.parameters_read = sum(w.numel() for w in weights.values())
        self.weight_bytes = drafting_bytes(self.parameters_read + head.fuse.weight.numel(), device)

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
        return self.fuse(torch.cat([early, last], 1).flatten(1))


    @torch.inference_mode()
    def together(self, passes: list[Pass]) -> list[Tensor]:
        """Draft steps of several sequences at once -> logits [1, n] over the draft vocabulary of each."""
        own = self.advance([(one.sequence, one.features, one.ids) for one in passes])
        for one, feature in zip(passes, own.split(1), strict=True):
            one.sequence.feature = feature
        return list(self.logits(own).split(1))

    def logits(self, features: Tensor) -> Tensor:
        """Own features [k, d] -> logits [k, n] over the draft vocabulary."""
        return self.rows(F.rms_norm(features, (self.shape.width,), eps=1e-6))

    @torch.inference_mode()
    def advance(self, parts: list[tuple[HeadSequence, Tensor, Sequence[int]]]) -> Tensor:
        """For each (sequence, features [n, d] of the positions before, their following tokens [n]): append n slots; own features
        [parts, d] of the last ones.

        With one layer, keys and values do not depend on what the slots before have answered: all but the last slot stop there.
        """
        shape, width, counts = self.shape, (self.shape.width,), [len(tokens) for _, _, tokens in parts]
        features = parts[0][1] if len(parts) == 1 else torch.cat([features for _, features, _ in parts])
        tokens = token_ids([token for _, _, tokens in parts for token in tokens], self.device)
        embedded = self.embedding[tokens].float()
        stream = self.join(torch.cat([F.rms_norm(features, width, eps=1e-6), F.rms_norm(embedded, width, eps=1e-6)], 1))
        joint = self.project(F.rms_norm(stream, width, eps=1e-6)).view(len(stream), -1, self.size)
        # The first slot is the one of position 1.
        angles = [self.rotary(sequence.length + 1, sequence.length + 1 + n) for (sequence, _, _), n in zip(parts, counts, strict=True)]
        cos, sin = angles[0] if len(parts) == 1 else (torch.cat(part) for part in zip(*angles, strict=True))
        turned = rotate(joint[:, : shape.heads + shape.groups], (cos, sin))
        mixed, ends, start = [], [], 0
        for (sequence, _, _), count in zip(parts, counts, strict=True):
            stop = start + count
            sequence.append(turned[start:stop, shape.heads :], joint[start:stop, shape.heads + shape.groups :])
            mixed.append(sequence.attend(turned[stop - 1, : shape.heads]))
            ends.append(stop - 1)
            start = stop
        last = (stream[-1:] if len(parts) == 1 else stream[sent(torch.tensor(ends), stream.device)]) + self.mix(torch.cat(mixed))
        gate, up = self.gate_up(F.rms_norm(last, width, eps=1e-6)).chunk(2, -1)
        return last + self.down(F.silu(gate) * up)


class HeadSequence:
    """One run's keys and values in the head; slot 0 does not exist, slot s holds token s read with the feature of s − 1."""

    def __init__(self, runner: AttachedHeadRunner, capacity: int = 256) -> None:
        self.runner, self.length = runner, 0
        self.feature: Tensor | None = None  # [1, d], own feature of the last slot
        self._keys = torch.zeros(runner.shape.groups, capacity, runner.size, device=runner.device)
        self._values = torch.zeros_like(self._keys)

    def forward(self, features: Tensor, tokens: list[int]) -> Tensor:
        """features [n, d] of the positions before, their following tokens [n] -> own feature [1, d] of the last slot; appends n."""
        return self.runner.advance([(self, features, tokens)])

    def append(self, keys: Tensor, values: Tensor) -> None:
        """keys, values [n, groups, size] of the next n slots."""
        stop = self.length + len(keys)
        self._grow(stop)
        self._keys[:, self.length : stop] = keys.transpose(0, 1)
        self._values[:, self.length : stop] = values.transpose(0, 1)
        self.length = stop

    def attend(self, query: Tensor) -> Tensor:
        """query [heads, size] of the last slot -> what it sees [1, heads · size]."""
        size, stop = self.runner.size, self.length
        query = query.view(self.runner.shape.groups, -1, size)  # the heads of a group share its keys
        scores = query @ self._keys[:, :stop].transpose(1, 2) * size**-0.5
        return (scores.softmax(-1) @ self._values[:, :stop]).view(1, -1)

    def crop(self, length: int) -> None:
        """Forget the slots behind the first `length`."""
        self.length = min(length, self.length)

    def _grow(self, needed: int) -> None:
        if needed > self._keys.shape[1]:
            room = max(needed, 2 * self._keys.shape[1]) - self._keys.shape[1]
            self._keys = F.pad(self._keys, (0, 0, 0, room))
            self._values = F.pad(self._values, (0, 0, 0, room))


class HeadDrafter(Drafter):
    """The attached head as a drafter: feeds on the target's states where there are any, behind them on its own features.

    least_sure: it stops when the product of the q of its drafts, which is about the chance that all of them stay, falls below; only
    what is drafted already decides, so each draft is still drawn from its q. 0: it drafts as many as it is asked for.
    """

    name = "head"
    goes_ahead = True
    least_sure = 0.0

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

    def steps(self, request: Request) -> Generator[Pass, Tensor, Proposal]:
        if request.count < 1 or not self._waiting:
            return NOTHING
        ids: list[int] = []
        rows: list[Tensor] = []
        us: list[float | None] = []
        seconds: list[float] = []
        sure = 1.0
        while len(ids) < request.count and sure >= self.least_sure:
            request.check()
            if not ids:
                features = self._waiting[0] if len(self._waiting) == 1 else torch.cat(self._waiting)
                wanted = Pass(self.runner.together, self.sequence, request.committed[-len(features) :], features=features)
            else:
                wanted = Pass(self.runner.together, self.sequence, [ids[-1]], features=self.sequence.feature)
            logits = yield wanted
            begun = time.perf_counter()
            if not ids:
                self._waiting = []
                self._true = self.sequence.length
            token, u, q = self.runner.vocabulary.pick(logits, request)
            ids.append(token)
            us.append(u)
            if q is not None:
                rows.append(q)
            if self.least_sure:
                sure *= self.runner.vocabulary.chance(token, request.rule.probabilities(logits)[0] if q is None else q)
            seconds.append(wanted.seconds + time.perf_counter() - begun)
        self.sequence.crop(self._true)
        vocabulary = self.runner.vocabulary
        return Proposal(ids, vocabulary.spread(torch.stack(rows)) if rows else None, us, seconds, vocabulary.ids)

    def settle(self, kept: int) -> None:
        self._take(self.target.hidden[: kept - self._known])

    def _take(self, hidden: Tensor) -> None:
        with torch.inference_mode():
            self._waiting.append(self.runner.features(hidden))
        self._known += len(hidden)
