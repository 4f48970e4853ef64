"""A lean forward pass for models of the Llama family on a CPU: same weights, same mathematics, a fraction of the overhead.

At 135 M parameters half of a stock pass is not reading weights but everything around it. Here queries, keys and values come from one
product, as do gate and up; keys and values go into a buffer that is already there; rolling back only moves a number; the head runs for
the positions that are asked for. Rotary pairs are stored side by side, so that a rotation is one complex product [Su et al. 2021,
arXiv 2104.09864]; scores do not change when queries and keys are permuted alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec import placement
from specdec.errors import ModelError
from specdec.llama_weights import Layer, take_weights
from specdec.passes import Pass, one_by_one
from specdec.runner import CachedSequence, Runner, token_ids
from specdec.static_runner import static_runner

SUPPORTED = ("llama", "mistral", "qwen2", "qwen3")
MANY_ROWS = 32  # from here on a fused attention kernel pays
PIECE = 256  # tokens of a prompt in one pass, about a second on two cores: nobody waits longer than that for another one's prompt


def supports(model: Any) -> bool:
    """Whether `LlamaRunner` computes exactly this model: known family, float32 on the CPU, plain rotary embedding, full attention."""
    config = model.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    layer_types = set(getattr(config, "layer_types", None) or ["full_attention"])
    weight = next(model.parameters())
    return (
        config.model_type in SUPPORTED
        and weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and rope.get("rope_type", "default") == "default"
        and rope.get("partial_rotary_factor", 1.0) == 1.0
        and layer_types == {"full_attention"}
        and not (config.model_type == "mistral" and getattr(config, "sliding_window", None))
        and config.hidden_act == "silu"
        and not getattr(config, "mlp_bias", False)
    )


class LlamaRunner(Runner):
    """model: see `supports`. It may be dropped afterwards: what is needed is copied or shared.

    kernel_cache: where the choice of kernels for this machine is kept. weights: "float32", or one of `kernels.REDUCED`, which makes it
    another model; the embedding stays what it is. Raises ModelError where this build of torch has no such product.
    """

    piece = PIECE

    def __init__(
        self, model: Any, *, vocabulary: int | None = None, kernel_cache: Path | None = None, weights: str = "float32"
    ) -> None:
        config = model.config.get_text_config()
        self.model = None  # there is no second copy of the weights
        self.config = config
        self.vocabulary = vocabulary or config.vocab_size
        self.context = int(config.max_position_embeddings)
        self.layers = int(config.num_hidden_layers)
        self.width = int(config.hidden_size)
        self.parameters = sum(p.numel() for p in model.parameters())
        self.heads, self.groups = config.num_attention_heads, config.num_key_value_heads
        self.head_width = getattr(config, "head_dim", None) or self.width // self.heads
        self.epsilon = config.rms_norm_eps
        self.weights = weights
        with torch.inference_mode():
            taken = take_weights(model, head_width=self.head_width, weights=weights, kernel_cache=kernel_cache)
            self._rotations = self._make_rotations()
        self.kernels = taken.kernels
        self.embedding, self.norm, self._head, self._stack = taken.embedding, taken.norm, taken.head, taken.layers
        self._query_scale = taken.query_scale
        self._norm_floor = torch.tensor((self.width * self.epsilon) ** 0.5)

    @property
    def held(self) -> str | None:
        """The number format in which all weights are held, where it is shorter than the one that is computed in."""
        if self.weights == "float32" and set(self.kernels.values()) == {"half"}:
            return "float16"
        return None

    @property
    def weight_bytes(self) -> int:
        """Of all weights as they are held. Where that is in fewer bits, rows of the embedding are still looked up in those of the model."""
        short = {"int8": 1, "float16": 2}.get(self.held or self.weights)
        if short is None:
            return self.parameters * self.dtype.itemsize
        return self.parameters * short + self.embedding.numel() * self.dtype.itemsize

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    def open(self, *, hidden_layers: tuple[int, ...] = ()) -> "LlamaSequence":
        return LlamaSequence(self, hidden_layers)

    def head(self, hidden: Tensor) -> Tensor:
        """hidden [n, width], behind the final norm -> logits [n, V]."""
        return self._head(hidden)[:, : self.vocabulary]

    def final_norm(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (self.width,), self.norm, self.epsilon)

    def _normed(self, x: Tensor, gain: Tensor | None) -> Tensor:
        """x [n, width] divided by √(Σx² + width·ε), times `gain` where there is one: RMS norm, but for what is in the weights that
        come next. A few small operations for the seven of `F.rms_norm`."""
        normed = x / torch.hypot(torch.linalg.vector_norm(x, dim=-1, keepdim=True), self._norm_floor)
        return normed if gain is None else normed.mul_(gain)

    def _make_rotations(self) -> Tensor:
        """[context, 1, head_width/2] complex: position times frequency, as a turn."""
        theta = float(self.config.rope_parameters["rope_theta"])
        steps = torch.arange(0, self.head_width, 2).float() / self.head_width
        angles = torch.arange(self.context).float()[:, None] / theta**steps
        return torch.polar(torch.ones_like(angles), angles)[:, None]

    @torch.inference_mode()
    def together(self, passes: list[Pass]) -> list[Tensor]:
        """Passes of several sequences at once, of whatever lengths: every weight is read once for all rows, attention sees to each
        sequence by itself, so there is no padding and nothing that could leak."""
        if len(passes) == 1 or any(one.layers != passes[0].layers for one in passes):
            return one_by_one(passes)
        counts = [len(one.ids) for one in passes]
        starts = [one.sequence.length + one.offset for one in passes]
        for one, start, count in zip(passes, starts, counts, strict=True):
            one.sequence._reserve(start + count)
        layers = passes[0].layers or self.layers
        kept_layers = sorted({k for one in passes for k in one.sequence.hidden_layers} if not passes[0].layers else ())
        hidden: dict[int, Tensor] = {k: torch.empty(0) for k in kept_layers}
        x = F.embedding(token_ids([token for one in passes for token in one.ids], self.device), self.embedding)
        parts = [_Part(one.sequence, start, count) for one, start, count in zip(passes, starts, counts, strict=True)]
        x = self.run(x, parts, layers=layers, keep_hidden=hidden)
        if self.layers in hidden:
            hidden[self.layers] = self.final_norm(x)
        rows, wanted, first = [], [], 0
        for one, count in zip(passes, counts, strict=True):
            if not one.layers:
                if one.sequence.hidden_layers:
                    states = [hidden[k][first : first + count] for k in one.sequence.hidden_layers]
                    one.sequence.hidden = torch.stack(states, dim=1)
                one.sequence.length += count
            wanted.append(1 if one.layers else one.keep or count)
            rows.extend(range(first + count - wanted[-1], first + count))
            first += count
        return list(self.head(self.final_norm(x[rows])).split(wanted))

    def run(self, x: Tensor, parts: list["_Part"], *, layers: int, keep_hidden: dict[int, Tensor]) -> Tensor:
        """x [n, width], the embedded tokens of all parts, one behind the other -> [n, width] behind `layers` layers, final norm
        not applied. keep_hidden: filled with what the layers that it names read."""
        spans = [self._rotations[part.start : part.start + part.count] for part in parts]
        rotations = spans[0] if len(parts) == 1 else torch.cat(spans)
        masks = [_mask(part.start, part.count) for part in parts]
        counts = [part.count for part in parts]
        for index, layer in enumerate(self._stack[:layers]):
            if index in keep_hidden:
                keep_hidden[index] = x
            qkv = self._project(layer, self._normed(x, layer.qkv_gain), rotations)
            seen = [
                self._see(own, mask, part.sequence.cache[index], part.start)
                for part, mask, own in zip(parts, masks, qkv.split(counts) if len(parts) > 1 else (qkv,), strict=True)
            ]
            out = layer.out((seen[0] if len(seen) == 1 else torch.cat(seen)).reshape(len(x), self.heads * self.head_width))
            x = x + (out if layer.out_bias is None else out + layer.out_bias)
            gate, up = layer.gate_up(self._normed(x, layer.gate_gain)).chunk(2, dim=-1)
            x = x + layer.down(F.silu(gate) * up)
        return x

    def _project(self, layer: Layer, x: Tensor, rotations: Tensor) -> Tensor:
        """x [n, width] -> turned queries, turned keys, values [n, heads + 2·groups, head_width]."""
        n, heads, groups, width = len(x), self.heads, self.groups, self.head_width
        qkv = layer.qkv(x)
        if layer.qkv_bias is not None:
            qkv = qkv + layer.qkv_bias
        qkv = qkv.view(n, heads + 2 * groups, width)
        if layer.q_norm is not None:
            q, k, v = qkv.split([heads, groups, groups], dim=1)
            q = F.rms_norm(q, (width,), layer.q_norm, self.epsilon)
            qkv = torch.cat([q, F.rms_norm(k, (width,), layer.k_norm, self.epsilon), v], dim=1)
        elif self._query_scale != 1.0:
            qkv[:, :heads].mul_(self._query_scale)
        # In place: the product is fresh memory that nobody else holds.
        torch.view_as_complex(qkv[:, : heads + groups].view(n, heads + groups, width // 2, 2)).mul_(rotations)
        return qkv

    def _see(self, qkv: Tensor, mask: Tensor | None, cache: Tensor, start: int) -> Tensor:
        """What the n tokens of one sequence from `start` on see [n, heads, head_width]; writes their keys and values."""
        n, heads, groups, width = len(qkv), self.heads, self.groups, self.head_width
        end = start + n
        cache[:, start:end] = qkv[:, heads:].transpose(0, 1)
        k, v = cache[:groups, :end], cache[groups:, :end]
        if n == 1:
            scores = torch.bmm(qkv[0, :heads].view(groups, heads // groups, width), k.transpose(1, 2))
            return torch.bmm(scores.softmax(-1), v).view(1, heads, width)
        q = qkv[:, :heads].transpose(0, 1)  # [heads, n, width]
        if n >= MANY_ROWS:
            out = F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask, scale=1.0, enable_gqa=True)[0]
        else:
            # The query heads of a group share its keys: stacked, they are one product.
            scores = torch.bmm(q.reshape(groups, (heads // groups) * n, width), k.transpose(1, 2))
            scores = (scores.view(groups, heads // groups, n, end) + mask).view(groups, -1, end)
            out = torch.bmm(scores.softmax(-1), v).view(heads, n, width)
        return out.transpose(0, 1)


def _mask(start: int, count: int) -> Tensor | None:
    """[count, start + count]: −∞ where a token would look ahead; a single token sees all there is."""
    return torch.full((count, start + count), float("-inf")).triu(start + 1) if count > 1 else None


@dataclass(frozen=True)
class _Part:
    """`count` tokens of one sequence from position `start` on, in a pass that several sequences share."""

    sequence: "LlamaSequence"
    start: int
    count: int


class LlamaSequence(CachedSequence):
    """One run's tokens: for each layer a buffer [2·groups, capacity, head_width] of keys and, behind them, values, which doubles when
    it is full."""

    def __init__(self, runner: LlamaRunner, hidden_layers: tuple[int, ...] = ()) -> None:
        self.runner: LlamaRunner = runner
        self.hidden_layers = hidden_layers
        self.hidden: Tensor | None = None
        self.length = 0
        self.capacity = 0
        self.cache: list[Tensor] = []

    @torch.inference_mode()
    def forward(self, ids: list[int], *, keep: int | None = None) -> Tensor:
        runner = self.runner
        self._reserve(self.length + len(ids))
        wanted: dict[int, Tensor] = {k: torch.empty(0) for k in self.hidden_layers}
        x = runner.run(self._embed(ids), [_Part(self, self.length, len(ids))], layers=runner.layers, keep_hidden=wanted)
        if runner.layers in wanted:
            wanted[runner.layers] = runner.final_norm(x)
        if self.hidden_layers:
            self.hidden = torch.stack([wanted[k] for k in self.hidden_layers], dim=1)
        self.length += len(ids)
        return runner.head(runner.final_norm(x[-(keep or len(ids)) :]))

    @torch.inference_mode()
    def forward_exit(self, ids: list[int], *, layers: int, offset: int = 0) -> Tensor:
        start = self.length + offset
        self._reserve(start + len(ids))
        x = self.runner.run(self._embed(ids), [_Part(self, start, len(ids))], layers=layers, keep_hidden={})
        return self.runner.head(self.runner.final_norm(x[-1:]))

    def crop_exit(self, *, layers: int) -> None:
        """Nothing to do: what lies behind `length` is written over."""

    def crop(self, length: int) -> None:
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back to {length} tokens: the cache holds {self.length}.")
        self.length = length

    @torch.inference_mode()
    def adopt(self, other: "LlamaSequence") -> None:
        """Hold what `other` holds, instead of reading the same tokens again. Only for a sequence that is empty."""
        self._reserve(other.length)
        for own, theirs in zip(self.cache, other.cache, strict=True):
            own[:, : other.length] = theirs[:, : other.length]
        self.length = other.length

    def _embed(self, ids: list[int]) -> Tensor:
        return F.embedding(token_ids(ids, self.runner.device), self.runner.embedding)

    def _reserve(self, tokens: int) -> None:
        if tokens <= self.capacity:
            return
        capacity = min(max(256, 2 * tokens), max(self.runner.context, tokens))
        grown = [torch.zeros(2 * self.runner.groups, capacity, self.runner.head_width) for _ in range(self.runner.layers)]
        for old, new in zip(self.cache, grown, strict=False):
            new[:, : self.capacity] = old  # all of it: an early exit may have written behind `length`
        self.cache = grown
        self.capacity = capacity


def fastest_runner(
    model: Any, *, vocabulary: int | None = None, kernel_cache: Path | None = None, weights: str = "float32"
) -> Runner:
    """The lean runner where it computes this model on a CPU, the static one on CUDA, else the eager one.

    weights: see `LlamaRunner`. Raises ModelError when they are to be reduced and the lean runner does not compute this model.
    """
    if said := placement.note(model):  # a graph holds the work of one device, and so does the lean runner
        runner = Runner(model, vocabulary=vocabulary)
        runner.note = said
        return runner
    if next(model.parameters()).device.type == "cuda" and weights == "float32":
        return static_runner(model, vocabulary=vocabulary)
    if supports(model):
        lean = LlamaRunner(model, vocabulary=vocabulary, kernel_cache=kernel_cache, weights=weights)
        if _agrees(lean, model):
            return lean
    if weights != "float32":
        raise ModelError(f"{type(model).__name__} has no {weights} weights here: take it in float32.")
    return Runner(model, vocabulary=vocabulary)


# Of the spread of the logits. Reduced weights are another model, but still one that resembles this one.
_TOLERANCE = {"float32": 1e-3, "float16": 0.05, "int8": 1.0}


@torch.inference_mode()
def _agrees(lean: LlamaRunner, model: Any) -> bool:
    """A family may gain a variant that `supports` has never heard of; the numbers tell. In pieces, so that cache and mask take
    part."""
    ids = [(7 * i + 1) % lean.vocabulary for i in range(6)]
    expected = model(input_ids=torch.tensor([ids])).logits[0, :, : lean.vocabulary].float()
    sequence = lean.open()
    found = torch.cat([sequence.forward(ids[:3]), sequence.forward(ids[3:])])
    return bool((found - expected).abs().max() <= _TOLERANCE[lean.weights] * expected.std() + 1e-6)
