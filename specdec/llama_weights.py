"""The weights of a model of the Llama family, as the lean forward pass (`specdec.llama`) multiplies with them.

Queries, keys and values are one matrix, as are gate and up; rotary pairs lie side by side; the factor of attention and, where it costs
nothing, the gains of the norms are in the weights behind them. The kernel of each product is the one that is fastest on this machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specdec import kernels
from specdec.errors import ModelError


@dataclass(frozen=True)
class Layer:
    """One layer. qkv_gain, gate_gain: gains of its two norms, None where they are in the weights behind them."""

    qkv_gain: Tensor | None
    gate_gain: Tensor | None
    qkv: kernels.Product
    qkv_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    out: kernels.Product
    out_bias: Tensor | None
    gate_up: kernels.Product
    down: kernels.Product


@dataclass(frozen=True)
class Weights:
    """embedding [V, d] and norm [d], the gain of the final norm, are the model's own. query_scale: what queries are still to be
    multiplied with. kernels: product -> name of its kernel.
    """

    embedding: Tensor
    norm: Tensor
    head: kernels.Product
    layers: list[Layer]
    query_scale: float
    kernels: dict[str, str]


def take_weights(model: Any, *, head_width: int, weights: str, kernel_cache: Path | None) -> Weights:
    """What `model` computes with; it is copied or shared. weights, kernel_cache: see `specdec.llama.LlamaRunner`.

    Raises ModelError where this build of torch has no such product.
    """
    body, config = model.model, model.config.get_text_config()
    heads, groups, width = config.num_attention_heads, config.num_key_value_heads, int(config.hidden_size)
    scale = head_width**-0.5
    pairs = _pairs_side_by_side(head_width)
    parts: dict[str, list[Tensor]] = {"qkv": [], "out": [], "gate_up": [], "down": []}
    # Where 16 bits hold the weights exactly gains stay out, for that is worth more.
    apart = weights == "float32" and kernels.fits_half(body.layers[0].self_attn.q_proj.weight)
    gains: list[tuple[Tensor, Tensor]] = []
    query_scale, scale = (scale, 1.0) if apart else (1.0, scale)
    for layer in body.layers:
        attention, mlp = layer.self_attn, layer.mlp
        q, k, v = attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight
        normed = hasattr(attention, "q_norm")  # then scaling before the norm would be undone by it
        q = _permute_heads(q, heads, pairs) * (1.0 if normed else scale)
        gains.append(tuple(n.weight * width**0.5 for n in (layer.input_layernorm, layer.post_attention_layernorm)))
        before, behind = (1.0, 1.0) if apart else gains[-1]
        parts["qkv"].append(torch.cat([q, _permute_heads(k, groups, pairs), v]) * before)
        parts["out"].append(attention.o_proj.weight)
        parts["gate_up"].append(torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]) * behind)
        parts["down"].append(mlp.down_proj.weight)
    maker = _Products(weights, kernel_cache, kernels.room_for_two(sum(p.numel() * p.element_size() for p in model.parameters())))
    products: dict[str, list[kernels.Product]] = {}
    for name, matrices in parts.items():
        products[name] = maker.make(name, matrices)
        matrices.clear()
    [head] = maker.make("head", [model.lm_head.weight])
    layers = [
        Layer(
            qkv_gain=gains[i][0] if apart else None,
            gate_gain=gains[i][1] if apart else None,
            qkv=products["qkv"][i],
            qkv_bias=_qkv_bias(layer.self_attn, heads, groups, pairs, scale),
            q_norm=_norm_weight(layer.self_attn, "q_norm", pairs, head_width**-0.5),
            k_norm=_norm_weight(layer.self_attn, "k_norm", pairs, 1.0),
            out=products["out"][i],
            out_bias=None if layer.self_attn.o_proj.bias is None else layer.self_attn.o_proj.bias.detach(),
            gate_up=products["gate_up"][i],
            down=products["down"][i],
        )
        for i, layer in enumerate(body.layers)
    ]
    return Weights(
        embedding=body.embed_tokens.weight.detach(),
        norm=body.norm.weight.detach(),
        head=head,
        layers=layers,
        query_scale=query_scale,
        kernels=maker.chosen,
    )


class _Products:
    """Makes products, and keeps in `chosen` which kernel each kind of them got."""

    def __init__(self, weights: str, kernel_cache: Path | None, two_copies: bool) -> None:
        self.weights, self.kernel_cache, self.two_copies = weights, kernel_cache, two_copies
        self.chosen: dict[str, str] = {}

    def make(self, name: str, matrices: list[Tensor]) -> list[kernels.Product]:
        """One product for each matrix, by the kernel that is fastest here."""
        if self.weights != "float32":
            self.chosen[name] = self.weights
            try:
                return [kernels.REDUCED[self.weights](w.detach()) for w in matrices]
            except (RuntimeError, AttributeError, NotImplementedError) as error:
                raise ModelError(
                    f"This build of torch cannot multiply {self.weights} weights on this processor: take the pair in float32."
                ) from error
        alike: dict[torch.Size, list[Tensor]] = {}  # layers may differ in width
        for w in matrices:
            alike.setdefault(w.shape, []).append(w)
        chosen = {
            shape: kernels.choose(some, cache=self.kernel_cache, two_copies=self.two_copies) for shape, some in alike.items()
        }
        self.chosen[name] = chosen[matrices[0].shape]
        return [kernels.product(chosen[w.shape], w.detach()) for w in matrices]


def _qkv_bias(attention: Any, heads: int, groups: int, pairs: Tensor, scale: float) -> Tensor | None:
    if attention.q_proj.bias is None:
        return None
    q, k, v = attention.q_proj.bias, attention.k_proj.bias, attention.v_proj.bias
    q = _permute_heads(q[:, None], heads, pairs)[:, 0] * scale
    return torch.cat([q, _permute_heads(k[:, None], groups, pairs)[:, 0], v])


def _pairs_side_by_side(width: int) -> Tensor:
    """Rotary pairs are (i, i + width/2); this order puts the two of a pair next to each other."""
    half = width // 2
    return torch.arange(width).view(2, half).t().reshape(-1)


def _permute_heads(weight: Tensor, heads: int, order: Tensor) -> Tensor:
    """weight [heads·width, in] -> the rows of each head in `order`."""
    return weight.view(heads, len(order), -1)[:, order].reshape(weight.shape)


def _norm_weight(attention: Any, name: str, order: Tensor, scale: float) -> Tensor | None:
    norm = getattr(attention, name, None)
    return None if norm is None else (norm.weight.detach()[order] * scale)
