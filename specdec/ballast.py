"""A large target where no hub is: the embedded one with extra layers that cost what layers cost and change nothing.

What a pass of a large model takes is mostly the reading of its weights. Here that cost is real and the text stays the small
model's: an extra layer computes attention and a wide feed-forward part like any other, and its two output projections are zero, so
what it adds to the residual stream is exactly 0. Every number that comes out is bit for bit that of the model without it. The
drafters are right about it as often as before, and cost relatively less: the regime of large models, but of no particular one. It
is named as such wherever it appears.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import torch
from torch import nn

from specdec.errors import ModelError, SettingsError
from specdec.store import Progress, silent

ALIGNED = 64
LAYERS = 10  # extra ones, spread evenly among those of the model


def add_ballast(model: Any, parameters: int, *, layers: int = LAYERS, seed: int = 0) -> tuple[int, ...]:
    """Put `layers` extra layers with `parameters` weights in all into a model of transformers that is built like Llama.

    Returns where its own layers are now: the i-th of them is number result[i], and result[-1] is how many there are. Raises
    ModelError for a model that is built otherwise or too few parameters for that many layers.
    """
    body = getattr(model, "model", None)
    own = list(getattr(body, "layers", None) or ())
    if not own or not all(hasattr(own[0], part) for part in ("self_attn", "mlp", "input_layernorm")):
        raise ModelError(
            f"{type(model).__name__} cannot carry ballast: its layers are not built like Llama's; take the embedded pair."
        )
    weight = own[0].mlp.down_proj.weight
    config = copy.deepcopy(model.config)
    width, attention = config.hidden_size, sum(p.numel() for p in own[0].self_attn.parameters()) + 2 * config.hidden_size
    config.intermediate_size = (parameters // layers - attention) // (3 * width)
    if config.intermediate_size > ALIGNED:  # rows that do not begin at a round address are slow to multiply with on a GPU
        config.intermediate_size -= config.intermediate_size % ALIGNED
    if config.intermediate_size < 1:
        raise ModelError(
            f"{parameters:,} parameters are too few for {layers} extra layers: take at least {2 * layers * attention:,}."
        )
    numbers = torch.Generator(weight.device).manual_seed(seed)
    extra = []
    for _ in range(layers):
        with torch.device("meta"):
            layer = type(own[0])(config, layer_idx=0)
        layer = layer.to(weight.dtype).to_empty(device=weight.device).eval()
        with torch.no_grad():
            for name, parameter in layer.named_parameters():
                if name.endswith(("o_proj.weight", "o_proj.bias", "down_proj.weight", "down_proj.bias")):
                    parameter.zero_()
                elif parameter.ndim == 1:
                    parameter.fill_(1)
                else:
                    parameter.normal_(std=0.02, generator=numbers)
        extra.append(layer.requires_grad_(False))
    order, places = [], []
    for index, layer in enumerate(own):
        places.append(len(order))
        order.append(layer)
        due = (index + 1) * layers // len(own) - index * layers // len(own)
        order += [extra.pop() for _ in range(due)]
    for index, layer in enumerate(order):
        layer.self_attn.layer_idx = index
    body.layers = nn.ModuleList(order)
    for known in {id(c): c for c in (model.config, body.config)}.values():
        known.num_hidden_layers = len(order)
        if getattr(known, "layer_types", None):
            known.layer_types = ["full_attention"] * len(order)
    return (*places, len(order))


def load_ballast_pair(
    billions: float, *, device: str = "auto", dtype: str = "auto", layers: int = LAYERS, progress: Progress | None = None
) -> Any:
    """The embedded pair, its drafters included, with `billions` · 10⁹ weights of ballast in the target; see `models.load_pair`."""
    if not 0 < billions <= 1000:
        raise SettingsError(f"the ballast is {billions:g} billion parameters: take more than 0, for instance 1.")
    from specdec.devices import choose_device, choose_dtype, require_memory
    from specdec.fetch import fetch_embedded
    from specdec.loading import load_model
    from specdec.models import load_pair

    progress = progress or silent
    count = round(billions * 1e9)
    chosen = choose_device(device)
    number_format = choose_dtype(dtype, device=chosen, parameters=count)
    name = f"{billions:g} billion parameters of ballast"
    require_memory(count, dtype=number_format, device=chosen, title=name, stored=number_format)
    pair = load_pair(device=str(chosen), dtype=number_format, progress=progress)
    model = load_model(fetch_embedded(), name=pair.title, device=chosen, dtype=number_format, progress=progress)
    progress("making the ballast", 0, None)
    places = add_ballast(model, count, layers=layers)
    return carry(pair, model, places, label=name, progress=progress)


def carry(pair: Any, model: Any, places: tuple[int, ...], *, label: str, progress: Progress = silent) -> Any:
    """`pair` with `model`, its target with ballast, in the target's place. places: as `add_ballast` returns them."""
    from specdec.attached import HeadMaker
    from specdec.models import make_pair

    heavy = make_pair(
        model,
        pair.tokenizer,
        name=f"{pair.name} + {label}",
        title=f"{pair.title} with {label}",
        target_name=f"{pair.target_name} + {label}",
        progress=progress,
    )
    attached = dict(pair.attached)
    for drafter, maker in attached.items():
        if isinstance(maker, HeadMaker):
            runner = copy.copy(maker.runner)
            runner.taps = tuple(places[tap] for tap in maker.runner.taps)  # what layer k reads is what its ballast lets through
            attached[drafter] = dataclasses.replace(maker, runner=runner)
    return dataclasses.replace(heavy, draft=pair.draft, draft_name=pair.draft_name, attached=attached)
