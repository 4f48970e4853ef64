"""A target that is larger than one GPU: its layers laid out over several, or every one of its matrices shared out among them.

- "layers": accelerate puts whole layers on one GPU after the other. One process; a pass goes through the GPUs in turn, so this buys
  memory and no speed.
- "tensors": transformers cuts the matrices by the model's own plan, and all GPUs work on every layer. One process for each GPU,
  started by torchrun; all of them run the same loop with the same seed and meet in every pass, so they decide alike.

The draft stays whole on the first GPU. A split target is run eagerly: CUDA graphs hold the work of one device.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import torch

from specdec.devices import free_memory
from specdec.errors import ModelError, SettingsError

SPLITS = ("", "layers", "tensors")
ELSEWHERE = ("cpu", "disk", "meta")  # where accelerate puts what no GPU has room for; passes would crawl


def check(split: str, device: torch.device) -> None:
    """Raises SettingsError with one sentence where a target cannot be split that way here."""
    if split not in SPLITS:
        raise SettingsError(f"split is {split!r}: take layers or tensors, or leave it out.")
    found = torch.cuda.device_count() if device.type == "cuda" else 0
    if split == "layers" and found < 2:
        raise SettingsError(f"A target is split over at least two GPUs, and torch shows {found} here: leave --split out.")
    if split == "tensors" and world() < 2:
        raise SettingsError(
            "Tensor parallelism takes one process for each GPU: start it as torchrun --nproc-per-node 2 -m specdec run …, or take "
            "--split layers."
        )


def world() -> int:
    """How many processes torchrun has started for this."""
    given = os.environ.get("WORLD_SIZE", "1")
    return int(given) if given.isdigit() and torch.distributed.is_available() else 1


def arguments(split: str, device: torch.device) -> dict[str, Any]:
    """What `from_pretrained` needs to know of it."""
    if split == "layers":
        return {"device_map": "auto"}
    if split == "tensors":
        try:
            from transformers.distributed import DistributedConfig

            return {"distributed_config": DistributedConfig(tp_plan="auto")}
        except (ImportError, TypeError):  # an older transformers
            return {"tp_plan": "auto"}
    # Without accelerate the weights of a whole model pass through the computer's own memory.
    return {"device_map": {"": device}} if device.type != "cpu" and importlib.util.find_spec("accelerate") else {}


def check_placed(model: Any, split: str, *, name: str) -> None:
    """Raises ModelError where a model was loaded and is not laid out as it was meant to be."""
    places = {str(place) for place in (getattr(model, "hf_device_map", None) or {}).values()}
    if split == "layers" and (left := places & set(ELSEWHERE)):
        raise ModelError(
            f"{name} does not fit into the GPUs of this machine, a part of it would stay on {max(left)}: take more GPUs, "
            "--dtype bfloat16 or a smaller target."
        )
    if split == "tensors" and (getattr(model, "tp_size", None) or 1) < 2:
        raise ModelError(f"transformers has no plan to share out the matrices of {name}: take --split layers.")


def note(model: Any) -> str:
    """For traces: how a split model is run; "" for one that is whole."""
    if (parts := getattr(model, "tp_size", None) or 1) > 1:
        return f"its matrices shared out over {parts} devices, without CUDA graphs"
    devices = {parameter.device for parameter in model.parameters()}
    return f"its layers on {len(devices)} devices, without CUDA graphs" if len(devices) > 1 else ""


def room(split: str, device: torch.device) -> int | None:
    """Bytes that are free for a target that is split that way, on all of its GPUs; None where the system does not tell."""
    if split == "layers" and device.type == "cuda":
        return sum(free_memory(torch.device("cuda", index)) or 0 for index in range(torch.cuda.device_count()))
    free = free_memory(device)
    return free if split != "tensors" or free is None else free * world()
