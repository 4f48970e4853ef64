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
from specdec.head import rotate
from specdec.kernels import drafting, drafting_bytes
from specdec.passes import Pass
from specdec.reduced import ReducedVocabulary, TargetTables, fill, read_drafter
from specdec.runner import token_ids
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

    network: what the weights were taken from. parameters: of the model, output rows included, embedding rows not. parameters_read: those that one draft step reads.
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
        network = self.network = network.to(self.device).float()
        weights, rows = self.matrices()
        self.weights = [tuple(map(drafting, layer)) for layer in weights]
        self.rows = drafting(rows)
        self._angles = network.angles
        self.cos, self.sin = network.angles(torch.arange(512, device=self.device))
        self.parameters_read = sum(w.numel() for layer in weights for w in layer) + rows.numel()
        self.parameters = self.parameters_read
        kept = sum(weight.numel() * weight.element_size() for weight in network.parameters())
        self.weight_bytes = drafting_bytes(self.parameters, self.device) + kept

    def matrices(self) -> tuple[list[tuple[Tensor, Tensor, Tensor, Tensor]], Tensor]:
        """Weights [out, in] of each layer (queries with keys and values, mix, gate with up, down) and the output rows [n, d] of the draft
        vocabulary; the gains of the norms in front of them are taken in."""
        layers = [
            (
                layer.query_key_value.weight * layer.attention_gain,
                layer.mix.weight,
                layer.gate_up.weight * layer.inner_gain,
                layer.down.weight,
            )
            for layer in self.network.layers
        ]
        return layers, self.embedding[self.reduced.ids].float() * self.network.final_gain

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

    @torch.inference_mode()
    def together(self, passes: list[Pass]) -> list[Tensor]:
        """Passes of several sequences at once; logits [keep, V] of each, −∞ outside the draft vocabulary."""
        shape, width, size, counts = self.shape, (self.width,), self.size, [len(one.ids) for one in passes]
        for one in passes:
            one.sequence.reserve(one.sequence.length + len(one.ids))
        stream = self.embedding[token_ids([token for one in passes for token in one.ids], self.device)].float()
        angles = [self.rotary(one.sequence.length, one.sequence.length + len(one.ids)) for one in passes]
        cos, sin = angles[0] if len(passes) == 1 else (torch.cat(part) for part in zip(*angles, strict=True))
        for index, (project, mix, gate_up, down) in enumerate(self.weights):
            joint = project(F.rms_norm(stream, width, eps=1e-6)).view(len(stream), shape.heads + 2 * shape.groups, size)
            turned = rotate(joint[:, : shape.heads + shape.groups], (cos, sin))
            parts = turned.split([shape.heads, shape.groups], 1) + (joint[:, shape.heads + shape.groups :],)
            mixed = [
                one.sequence.attend(index, *part)
                for one, *part in zip(passes, *(part.split(counts) for part in parts), strict=True)
            ]
            stream = stream + mix(mixed[0] if len(mixed) == 1 else torch.cat(mixed))
            gate, up = gate_up(F.rms_norm(stream, width, eps=1e-6)).chunk(2, -1)
            stream = stream + down(F.silu(gate) * up)
        for one in passes:
            one.sequence.length += len(one.ids)
        kept = [part if one.keep is None else part[-one.keep :] for one, part in zip(passes, stream.split(counts), strict=True)]
        rows = kept[0] if len(kept) == 1 else torch.cat(kept)
        logits = self.reduced.spread(self.rows(F.rms_norm(rows, width, eps=1e-6)), empty=float("-inf"))
        return list(logits.split([len(part) for part in kept]))

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class SmallDraftSequence:
    """One run's keys and values; `length` tokens are in the cache."""

    def __init__(self, runner: SmallDraftRunner, capacity: int = 256) -> None:
        self.runner, self.length = runner, 0
        self._cache = torch.zeros(runner.layers, 2, runner.shape.groups, capacity, runner.size, device=runner.device)

    def forward(self, ids: list[int], *, keep: int | None = None) -> Tensor:
        """Feed `ids`; logits of the last `keep` of them (None: all), float32 [keep, V], −∞ outside the draft vocabulary."""
        return self.runner.together([Pass(self.runner.together, self, ids, keep=keep)])[0]

    def crop(self, length: int) -> None:
        """Forget everything behind the first `length` tokens."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back to {length} tokens: the cache holds {self.length}.")
        self.length = length

    def attend(self, layer: int, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """query [n, heads, size], keys and values [n, groups, size] of the next n tokens -> what they see [n, heads · size].

        Writes the keys and values; `length` grows when all layers are through.
        """
        groups, size, count = self.runner.shape.groups, self.runner.size, len(query)
        start, stop = self.length, self.length + count
        cache = self._cache[layer]
        cache[0, :, start:stop] = keys.transpose(0, 1)
        cache[1, :, start:stop] = values.transpose(0, 1)
        query = query.view(count, groups, -1, size).permute(1, 2, 0, 3).reshape(groups, -1, size)
        scores = query @ cache[0, :, :stop].transpose(1, 2) * size**-0.5
        if count > 1:
            later = torch.ones(count, stop, dtype=torch.bool, device=query.device).triu(start + 1)
            scores = scores.view(groups, -1, count, stop).masked_fill(later, float("-inf")).view_as(scores)
        seen = (scores.softmax(-1) @ cache[1, :, :stop]).view(groups, -1, count, size)
        return seen.permute(2, 0, 1, 3).reshape(count, -1)

    def reserve(self, tokens: int) -> None:
        """Make room for `tokens` in all."""
        if tokens > self._cache.shape[3]:
            self._cache = F.pad(self._cache, (0, 0, 0, max(tokens, 2 * self._cache.shape[3]) - self._cache.shape[3]))
