"""The networks of a training: made for a target, filled from a weight file, grown by layers, and written."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from specdec.errors import SettingsError


def make_network(kind: str, model: Any, taps: tuple[int, ...], layers: int = 3) -> Any:
    """An untrained head (random) or draft model (layers of the target, evenly spread from the first to the last) for `model`."""
    import torch

    from specdec.head import AttachedHead, HeadShape
    from specdec.small_draft import DraftShape, SmallDraft, adopt_layer

    config, theta = model.config, float(model.config.rope_parameters["rope_theta"])
    sizes = {
        "width": config.hidden_size,
        "heads": config.num_attention_heads,
        "groups": config.num_key_value_heads,
        "inner": config.intermediate_size,
        "theta": theta,
    }
    torch.manual_seed(0)
    if kind == "head":
        network: Any = AttachedHead(HeadShape(taps=taps, **sizes))
    else:
        network = SmallDraft(DraftShape(layers=layers, **sizes))
        weights, last = model.state_dict(), config.num_hidden_layers - 1
        for number, layer in enumerate(network.layers):
            adopt_layer(layer, weights, round(last * number / max(1, layers - 1)))
    with torch.no_grad():
        network.final_gain.copy_(model.model.norm.weight)
    return network.to(model.device)


def read_start(chosen: argparse.Namespace, model: Any) -> Any:
    """The weight file of `--start`, to go on from. Errors as in `specdec.reduced.read_drafter`."""
    from specdec.reduced import read_drafter

    return read_drafter(chosen.start, kind=chosen.drafter, embedding=model.get_input_embeddings().weight)


def layers_wanted(chosen: argparse.Namespace, model: Any) -> int:
    """Layers of the draft model: those asked for, else as many as `--start` has, else 3."""
    if chosen.layers or not chosen.start or chosen.drafter != "draft":
        return chosen.layers or 3
    return int(read_start(chosen, model).shape.get("layers", 3))


def go_on_from(
    network: Any, chosen: argparse.Namespace, model: Any, vocabulary: Any, *, say: Callable[[str], None] = print
) -> None:
    """Fill `network` from the weight file of `--start`; a draft model with fewer layers gets new ones in front of its last."""
    from specdec.reduced import fill
    from specdec.small_draft import adopt_layer, grown

    start = read_start(chosen, model)
    if start.vocabulary.tolist() != vocabulary.tolist():
        raise SettingsError(
            f"--start {chosen.start} drafts other tokens than the features in --folder were made for: give another folder."
        )
    shape = json.loads(json.dumps(dataclasses.asdict(network.shape)))
    old, new = start.shape.get("layers", 0), shape.get("layers", 0)
    if 0 < old < new:
        kept = grown(start.weights, old, new)
        target, depth = model.state_dict(), model.config.num_hidden_layers
        for number in range(old - 1, new - 1):
            adopt_layer(network.layers[number], target, round(depth * number / (new - 1)), silent=True)
        say(f"the draft model grows from {old} to {new} layers")
        whole = {name: kept.get(name, weight) for name, weight in network.state_dict().items()}
        start = dataclasses.replace(start, shape=start.shape | {"layers": new}, weights=whole)
    if start.shape != shape:
        raise SettingsError(f"--start {chosen.start} has another shape than the network to be trained: train without it.")
    fill(network, start, name=chosen.start.name)


def write_weights(network: Any, vocabulary: Any, model: Any, path: Path, *, kind: str) -> Path:
    """Write the weight file of a trained network and say where."""
    import torch

    from specdec.reduced import save_drafter

    path.parent.mkdir(parents=True, exist_ok=True)
    save_drafter(
        path,
        kind=kind,
        shape=dataclasses.asdict(network.shape),
        vocabulary=torch.from_numpy(vocabulary),
        weights=network.state_dict(),
        embedding=model.get_input_embeddings().weight,
    )
    return path
