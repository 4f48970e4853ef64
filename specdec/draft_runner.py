"""The trained draft model as a runner: what `specdec.drafters.DraftModel` needs of `specdec.runner.Runner`, without
transformers.

Logits are −∞ outside the draft vocabulary, so q is zero there and every warp acts on the reduced distribution.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.errors import ModelError, PairError
from specdec.reduced import ReducedVocabulary, TargetTables, fill, read_drafter
from specdec.small_draft import DraftShape, SmallDraft


def load_draft(path: Path, target: Any) -> SmallDraftRunner:
    """The draft model in `path`; of `target`, a runner, it takes the embedding rows. Errors as in
    `specdec.head_drafter.load_head`.
    """
    tables = TargetTables.of(target)
    file = read_drafter(path, kind="draft", embedding=tables.embedding)
    try:
        shape = DraftShape(**file.shape)
    except TypeError as error:
        raise ModelError(f"{Path(path).name} does not describe a draft model ({error}): copy the file again.") from error
    if shape.width != (width := tables.embedding.shape[1]):
        raise PairError(f"{Path(path).name} has width {shape.width} and this target {width}: they cannot share embedding rows.")
    network = SmallDraft(shape)
    fill(network, file, name=Path(path).name)
    return SmallDraftRunner(network, tables, file.vocabulary)


class SmallDraftRunner:
    """The weights, shared by all runs.

    parameters: of the model, output rows included, embedding rows not. parameters_read: those that one draft step reads.
    """

    @torch.no_grad()
    def __init__(self, network: SmallDraft, target: TargetTables, vocabulary: Tensor) -> None:
        self.embedding = target.embedding
        self.device = self.embedding.device
        self.dtype = torch.float32
        self.shape = network.shape
        self.size = network.shape.width // network.shape.heads
        self.layers, self.width = network.shape.layers, network.shape.width
        self.vocabulary = len(self.embedding)
        self.context = target.context
        self.reduced = ReducedVocabulary(vocabulary.to(self.device), self.vocabulary)
        network = network.to(self.device).float()
        self.weights = [
            (
                (layer.query_key_value.weight * layer.attention_gain).T.contiguous(),
                layer.mix.weight.T.contiguous(),
                (layer.gate_up.weight * layer.inner_gain).T.contiguous(),
                layer.down.weight.T.contiguous(),
            )
            for layer in network.layers
        ]
        self.rows = (self.embedding[self.reduced.ids].float() * network.final_gain).T.contiguous()
        self._angles = network.angles
        self.cos, self.sin = network.angles(torch.arange(512, device=self.device))
        self.parameters_read = sum(w.numel() for layer in self.weights for w in layer) + self.rows.numel()
        self.parameters = self.parameters_read

    def rotary(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """cos and sin [stop − start, 1, size]."""
        while stop > len(self.cos):
            self.cos, self.sin = self._angles(torch.arange(2 * len(self.cos), device=self.device))
        return self.cos[start:stop, None], self.sin[start:stop, None]

    def open(self, *, hidden_layers: tuple[int, ...] = ()) -> SmallDraftSequence:
        """A new, empty sequence; this runner shows no hidden states."""
        if hidden_layers:
            raise ModelError("The trained draft model shows no hidden states: use it as a draft, not as a target.")
        return SmallDraftSequence(self)

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class SmallDraftSequence:
    """One run's keys and values; `length` tokens are in the cache."""

    def __init__(self, runner: SmallDraftRunner, capacity: int = 256) -> None:
        self.runner, self.length = runner, 0
        self._cache = torch.zeros(runner.layers, 2, runner.shape.groups, capacity, runner.size, device=runner.device)

    @torch.inference_mode()
    def forward(self, ids: list[int], *, keep: int | None = None) -> Tensor:
        """Feed `ids`; logits of the last `keep` of them (None: all), float32 [keep, V], −∞ outside the draft vocabulary."""
        runner, width = self.runner, (self.runner.width,)
        start, stop = self.length, self.length + len(ids)
        if stop > self._cache.shape[3]:
            self._cache = F.pad(self._cache, (0, 0, 0, max(stop, 2 * self._cache.shape[3]) - self._cache.shape[3]))
        stream = runner.embedding[torch.tensor(ids, device=runner.device)].float()
        angles = runner.rotary(start, stop)
        for index, weights in enumerate(runner.weights):
            stream = self._layer(stream, self._cache[index], weights, angles)
        self.length = stop
        last = stream if keep is None else stream[-keep:]
        return runner.reduced.spread(F.rms_norm(last, width, eps=1e-6) @ runner.rows, empty=float("-inf"))

    def crop(self, length: int) -> None:
        """Forget everything behind the first `length` tokens."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back to {length} tokens: the cache holds {self.length}.")
        self.length = length

    def _layer(self, stream: Tensor, cache: Tensor, weights: tuple[Tensor, ...], angles: tuple[Tensor, Tensor]) -> Tensor:
        """stream [n, d], cache [2, groups, capacity, size] -> stream [n, d]; writes n keys and values."""
        shape, size, width = self.runner.shape, self.runner.size, (self.runner.width,)
        project, mix, gate_up, down = weights
        count, start, stop = len(stream), self.length, self.length + len(stream)
        joint = (F.rms_norm(stream, width, eps=1e-6) @ project).view(count, shape.heads + 2 * shape.groups, size)
        turned, half = joint[:, : shape.heads + shape.groups], size // 2
        turned = turned * angles[0] + torch.cat([-turned[..., half:], turned[..., :half]], -1) * angles[1]
        cache[0, :, start:stop] = turned[:, shape.heads :].transpose(0, 1)
        cache[1, :, start:stop] = joint[:, shape.heads + shape.groups :].transpose(0, 1)
        query = turned[:, : shape.heads].view(count, shape.groups, -1, size).permute(1, 2, 0, 3).reshape(shape.groups, -1, size)
        scores = query @ cache[0, :, :stop].transpose(1, 2) * size**-0.5
        if count > 1:
            later = torch.ones(count, stop, dtype=torch.bool, device=stream.device).triu(start + 1)
            scores = scores.view(shape.groups, -1, count, stop).masked_fill(later, float("-inf")).view_as(scores)
        mixed = (
            (scores.softmax(-1) @ cache[1, :, :stop]).view(shape.groups, -1, count, size).permute(2, 0, 1, 3).reshape(count, -1)
        )
        stream = stream + mixed @ mix
        gate, up = (F.rms_norm(stream, width, eps=1e-6) @ gate_up).chunk(2, -1)
        return stream + (F.silu(gate) * up) @ down
