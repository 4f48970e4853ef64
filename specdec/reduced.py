"""Weights of drafters that were trained for one target: reading, checking, and drawing from a reduced vocabulary.

A weight file is safetensors with the drafter's own matrices (float16), `vocabulary` (int32, ascending ids of the target) and,
in its metadata, kind and shape; `target_rows` are a few rows of the target's embedding. A file that is damaged or
belongs to another target is refused in one sentence.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specdec.errors import ModelError, PairError

FORMAT = "specdec-drafter-1"


@dataclass(frozen=True)
class TargetTables:
    """What trained drafters borrow from their target: `embedding` [V, d] (its output rows as well), gain of the final norm
    [d], sizes.
    """

    embedding: Tensor
    final_gain: Tensor
    layers: int
    context: int

    @classmethod
    def of(cls, target: Any) -> TargetTables:
        """From a runner of `specdec.runner` or `specdec.llama`. Raises PairError for a target that shares no rows between
        input and output.
        """
        config = target.config
        if not getattr(config, "tie_word_embeddings", False):
            raise PairError(
                "The trained drafters need a target whose output rows are its embedding, and this one keeps two matrices: use "
                "another drafter."
            )
        body = getattr(target.model, "model", None)
        embedding = target.model.get_input_embeddings().weight if target.model is not None else target.embedding
        norm = body.norm.weight if body is not None else target.norm
        return cls(embedding.detach(), norm.detach().float(), int(target.layers), int(target.context))


def fingerprint(embedding: Tensor) -> Tensor:
    """What tells a target apart: 32 rows of its embedding [V, d], spread evenly, float32 [32, d]."""
    rows = torch.linspace(0, len(embedding) - 1, 32).long()
    return embedding.detach()[rows.to(embedding.device)].float().cpu()


def same_target(stored: Tensor, embedding: Tensor) -> bool:
    """Do the stored rows belong to this embedding? A copy in 16 bits, or quantised mildly, still counts as the same."""
    mine = fingerprint(embedding)
    return stored.shape == mine.shape and bool(torch.cosine_similarity(stored.float(), mine, dim=-1).mean() > 0.99)


@dataclass(frozen=True)
class DrafterFile:
    """What a weight file holds: `kind` "head" or "draft", `shape` a dict, `vocabulary` [n] long, `weights` by name in
    float32.
    """

    kind: str
    shape: dict[str, Any]
    vocabulary: Tensor
    weights: dict[str, Tensor]


def save_drafter(
    path: Path, *, kind: str, shape: dict[str, Any], vocabulary: Tensor, weights: dict[str, Tensor], embedding: Tensor
) -> None:
    """Write a weight file in float16; the file appears complete or not at all."""
    from safetensors.torch import save_file

    partial = Path(path).with_suffix(".partial")
    stored = {name: weight.detach().half().contiguous() for name, weight in weights.items()}
    stored |= {"vocabulary": vocabulary.int().contiguous(), "target_rows": fingerprint(embedding).half()}
    facts = {"format": FORMAT, "kind": kind, "shape": json.dumps(shape), "sha256": _digest(stored)}
    save_file(stored, partial, metadata=facts)
    partial.chmod(0o644)  # it is made for its owner alone otherwise
    partial.replace(path)


def _digest(tensors: dict[str, Tensor]) -> str:
    """SHA-256 over all tensors, in the order of their names: a flipped bit in a weight is no error for safetensors."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        total.update(name.encode() + tensors[name].numpy().tobytes())
    return total.hexdigest()


def read_drafter(path: Path, *, kind: str, embedding: Tensor) -> DrafterFile:
    """Read and check a weight file for the target with this embedding.

    Raises ModelError for a missing, damaged or wrong kind of file and PairError for one that belongs to another target.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise ModelError(
            f"The drafter weights {path} are missing: install the package with its assets, or train them with `specdec train`."
        )
    try:
        with safe_open(path, framework="pt") as file:
            facts = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  the file is no dict
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(
            f"The drafter weights {path.name} are damaged ({error}): copy the file again or train new ones."
        ) from error
    if facts.get("format") != FORMAT or not {"vocabulary", "target_rows"} <= tensors.keys():
        raise ModelError(
            f"{path.name} holds no drafter of this program (format {facts.get('format')!r}, expected {FORMAT!r}): take the file "
            "from assets/drafters."
        )
    if facts.get("kind") != kind:
        raise ModelError(f"{path.name} holds a {facts.get('kind')!r} drafter, not a {kind!r}: give the other file.")
    if facts.get("sha256") != _digest(tensors):
        raise ModelError(f"The weights {path.name} are damaged (wrong check sum): copy the file again or train new ones.")
    if not same_target(tensors.pop("target_rows"), embedding):
        raise PairError(
            f"{path.name} was trained for another target than this one ({len(embedding)} tokens, width {embedding.shape[1]}): "
            "use it with its own, or train one for this target."
        )
    vocabulary = tensors.pop("vocabulary").long()
    edges = [-1, *vocabulary.tolist(), len(embedding)]
    if len(edges) == 2 or any(low >= high for low, high in zip(edges, edges[1:], strict=False)):
        raise ModelError(
            f"The draft vocabulary in {path.name} is wrong (ids must ascend below {len(embedding)}): train the drafter again."
        )
    weights = {name: tensor.float() for name, tensor in tensors.items()}
    return DrafterFile(kind, json.loads(facts["shape"]), vocabulary, weights)


def fill(network: torch.nn.Module, file: DrafterFile, *, name: str) -> None:
    """Put the weights into a module; raises ModelError when names or shapes do not fit."""
    expected = {key: tuple(value.shape) for key, value in network.state_dict().items()}
    found = {key: tuple(value.shape) for key, value in file.weights.items()}
    if expected != found:
        wrong = next(key for key in sorted(expected.keys() | found.keys()) if expected.get(key) != found.get(key))
        raise ModelError(
            f"{name} does not fit its own description: {wrong} is {found.get(wrong)}, expected {expected.get(wrong)}; copy the "
            "file again."
        )
    network.load_state_dict(file.weights)


class ReducedVocabulary:
    """Between the draft vocabulary [n] and the target's [V]: token ids of the reduced columns, and q spread out to full
    width.
    """

    def __init__(self, ids: Tensor, full: int) -> None:
        self.ids, self.full = ids, full
        self._list: list[int] = ids.tolist()

    def __len__(self) -> int:
        return len(self._list)

    def token(self, column: int | Tensor) -> int | Tensor:
        """The target's id of a reduced column; one that no host has seen stays on the device."""
        return self.ids[column[None]][0] if isinstance(column, Tensor) else self._list[column]

    def chance(self, token: int, q: Tensor) -> float:
        """What the reduced q [n] gives to a token of the target."""
        return float(q[bisect_left(self._list, token)])

    def spread(self, rows: Tensor, *, empty: float = 0.0) -> Tensor:
        """rows [k, n] -> [k, V], `empty` outside the draft vocabulary."""
        out = rows.new_full((len(rows), self.full), empty)
        out[:, self.ids] = rows
        return out

    def pick(self, logits: Tensor, request: Any) -> tuple[int, float | None, Tensor | None]:
        """logits [1, n] -> (token of the target, u or None, reduced q [n] or None when nobody looks).

        Temperature, top-k and top-p work on the reduced distribution: the same as on the full one with −∞ outside. The columns
        ascend, so the cumulative sum, and with it the token that u picks, is that of the full q.
        """
        if request.rule.greedy:
            return self.token(request.draws.best(logits[0])), None, request.rule.probabilities(logits)[0] if request.look else None
        q = request.rule.probabilities(logits)[0]
        column, u = request.draws.pick(q)
        return self.token(column), u, q
