"""The draft model: a complete small Llama with a reduced output vocabulary.

It has layers of its own and runs without the target's; only the embedding rows are the target's, which both read (they are not
stored with the draft). Its output knows the tokens that the target really uses (FR-Spec, arXiv 2502.14856): the output matrix
is the largest part of a step. q is zero outside it, and the result stays exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from specdec.head import rotary_angles, rotate, unit


@dataclass(frozen=True)
class DraftShape:
    """Sizes of the draft model."""

    layers: int = 2
    width: int = 576
    heads: int = 9
    groups: int = 3
    inner: int = 1536
    theta: float = 100_000.0


class Layer(nn.Module):
    """A Llama layer with fused projections; the cache is somebody else's business."""

    def __init__(self, shape: DraftShape):
        super().__init__()
        self.shape, self.size = shape, shape.width // shape.heads
        self.drop = 0.0  # share of the values behind attention and inside the layer that training leaves out at random
        self.query_key_value = nn.Linear(shape.width, (shape.heads + 2 * shape.groups) * self.size, bias=False)
        self.mix = nn.Linear(shape.heads * self.size, shape.width, bias=False)
        self.gate_up = nn.Linear(shape.width, 2 * shape.inner, bias=False)
        self.down = nn.Linear(shape.inner, shape.width, bias=False)
        self.attention_gain = nn.Parameter(torch.ones(shape.width))
        self.inner_gain = nn.Parameter(torch.ones(shape.width))

    def project(self, stream: torch.Tensor, angles) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """stream [B, T, d] -> query [B, heads, T, size], key and value [B, groups, T, size]."""
        rows, length, _ = stream.shape
        joint = self.query_key_value(unit(stream) * self.attention_gain).view(rows, length, -1, self.size).transpose(1, 2)
        query, key, value = joint.split([self.shape.heads, self.shape.groups, self.shape.groups], 1)
        return rotate(query, angles), rotate(key, angles), value

    def finish(self, stream: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
        """stream and attended values [B, T, d] -> stream [B, T, d]."""
        stream = stream + self.mix(self._dropped(mixed))
        gate, up = self.gate_up(unit(stream) * self.inner_gain).chunk(2, -1)
        return stream + self.down(self._dropped(F.silu(gate) * up))

    def _dropped(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, self.drop, self.training) if self.drop else x


class SmallDraft(nn.Module):
    """Token embeddings in, states for the rows of the draft vocabulary out."""

    def __init__(self, shape: DraftShape):
        super().__init__()
        self.shape = shape
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.final_gain = nn.Parameter(torch.ones(shape.width))

    @property
    def drop(self) -> float:
        """Of all layers; see `Layer`."""
        return self.layers[0].drop

    @drop.setter
    def drop(self, share: float) -> None:
        for layer in self.layers:
            layer.drop = share

    def angles(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin [T, head size]."""
        return rotary_angles(positions, size=self.shape.width // self.shape.heads, theta=self.shape.theta)

    def state(self, stream: torch.Tensor) -> torch.Tensor:
        """stream [..., d] -> what is multiplied with the rows of the draft vocabulary."""
        return unit(stream) * self.final_gain

    def forward(self, tokens: torch.Tensor, common: torch.Tensor) -> torch.Tensor:
        """Training: tokens [B, T, d] embeddings behind a beginning common [P, d] that all texts share -> states [B, T, d]."""
        rows, length, shared = tokens.shape[0], tokens.shape[1], len(common)
        cos, sin = self.angles(torch.arange(shared + length, device=tokens.device))
        before, here = (cos[:shared], sin[:shared]), (cos[shared:], sin[shared:])
        begun, stream = common[None], tokens
        mask = torch.ones(length, shared + length, dtype=torch.bool, device=tokens.device).tril(shared)
        for layer in self.layers:
            query, key, value = layer.project(begun, before)
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
            begun = layer.finish(begun, mixed.transpose(1, 2).flatten(2))
            query, own_key, own_value = layer.project(stream, here)
            keys = torch.cat([key.expand(rows, -1, -1, -1), own_key], 2)
            values = torch.cat([value.expand(rows, -1, -1, -1), own_value], 2)
            mixed = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, enable_gqa=True)
            stream = layer.finish(stream, mixed.transpose(1, 2).flatten(2))
        return self.state(stream)


def grown(weights: dict[str, torch.Tensor], old: int, new: int) -> dict[str, torch.Tensor]:
    """Names of the weights of a draft with `old` layers in one with `new`: the last layer stays the last one. What stands between
    them is missing; see `adopt_layer`.
    """
    last = f"layers.{old - 1}."
    return {f"layers.{new - 1}.{name.removeprefix(last)}" if name.startswith(last) else name: w for name, w in weights.items()}


def adopt_layer(layer: Layer, weights: dict[str, torch.Tensor], index: int, *, silent: bool = False) -> None:
    """Copy layer `index` of a Llama state dict (names as in transformers). silent: its outputs are zero at first, so that layers
    that have been trained around it say what they said.
    """
    base = f"model.layers.{index}."
    with torch.no_grad():
        layer.query_key_value.weight.copy_(torch.cat([weights[f"{base}self_attn.{name}_proj.weight"].float() for name in "qkv"]))
        layer.mix.weight.copy_(weights[base + "self_attn.o_proj.weight"].float())
        layer.gate_up.weight.copy_(torch.cat([weights[f"{base}mlp.{name}_proj.weight"].float() for name in ("gate", "up")]))
        layer.down.weight.copy_(weights[base + "mlp.down_proj.weight"].float())
        layer.attention_gain.copy_(weights[base + "input_layernorm.weight"].float())
        layer.inner_gain.copy_(weights[base + "post_attention_layernorm.weight"].float())
        if silent:
            layer.mix.weight.zero_()
            layer.down.weight.zero_()
