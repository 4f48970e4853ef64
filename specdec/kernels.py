"""Which matrix product to use on this CPU: measured when a model is loaded, not guessed from names.

A decoding pass multiplies every weight with one row (plain decoding) or a handful of rows (verification). Libraries are tuned for many
rows; for so few, the ways to write the same product differ by a factor of three, and by machine. Each kernel here computes each row by
itself, so that a token's logits depend on its neighbours in the pass by no more than rounding.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from pathlib import Path
from typing import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Product = Callable[[Tensor], Tensor]  # x [n, in] -> [n, out], contiguous

ROWS_MEASURED = (1, 5)  # plain decoding, and verification of four drafts
REPEATS = 8
PACK_ROWS = 8  # the number of rows that a packed weight is laid out for


def _stock(weight: Tensor) -> Product:
    return lambda x: F.linear(x, weight)


def _product_transposed(weight: Tensor) -> Product:
    # Row by row in memory, as every kernel hands it back: whoever reads the result may look at it in other shapes.
    return lambda x: (weight @ x.t()).t().contiguous()


def _stored_transposed(weight: Tensor) -> Product:
    stored = weight.t().contiguous()
    return lambda x: x @ stored


def _packed(weight: Tensor) -> Product:
    """oneDNN with the weight laid out for it beforehand."""
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, PACK_ROWS)
    run = torch.ops.mkldnn._linear_pointwise.default
    return lambda x: run(x, packed, None, "none", [], "")


KERNELS: dict[str, Callable[[Tensor], Product]] = {
    "packed": _packed,
    "stored-transposed": _stored_transposed,
    "product-transposed": _product_transposed,
    "stock": _stock,
}


def choose(weights: Sequence[Tensor], *, cache: Path | None = None) -> str:
    """The name of the kernel that is fastest for these weights of one shape: the least time for a plain step and a verification
    together, for the speed-up needs both. Several weights, so that they do not all fit into a cache as one would.

    cache: a JSON file that keeps the choice for this machine.
    """
    key = _machine_key(weights[0])
    known = _read(cache)
    if known.get(key) in KERNELS:
        return known[key]
    seconds = {name: sum(best) for name, best in _best_times(weights).items()}
    # A clear winner wins; within the noise of a busy machine the order of the list decides.
    limit = 1.15 * min(seconds.values())
    best = next(name for name in KERNELS if seconds.get(name, float("inf")) <= limit)
    _write(cache, {**known, key: best})
    return best


def _best_times(weights: Sequence[Tensor]) -> dict[str, list[float]]:
    """Kernel -> the shortest time of a pass over all weights, for each number of rows. They take turns, so that a busy moment of
    the machine hits all alike."""
    products: dict[str, list[Product]] = {}
    inputs = [torch.randn(rows, weights[0].shape[1], dtype=weights[0].dtype) for rows in ROWS_MEASURED]
    for name, make in KERNELS.items():
        try:
            products[name] = [make(w) for w in weights]
            products[name][0](inputs[0])
        except (RuntimeError, AttributeError, NotImplementedError):
            products.pop(name, None)  # this build of torch does not have it
    best = {name: [float("inf")] * len(inputs) for name in products}
    for _ in range(REPEATS):
        for name, made in products.items():
            for place, x in enumerate(inputs):
                best[name][place] = min(best[name][place], _time(made, x))
    return best


def _time(products: list[Product], x: Tensor) -> float:
    begun = time.perf_counter()
    for product in products:
        product(x)
    return time.perf_counter() - begun


def _machine_key(weight: Tensor) -> str:
    machine = f"{platform.machine()} {_processor()} {torch.__version__} {torch.get_num_threads()} threads"
    return f"{hashlib.sha256(machine.encode()).hexdigest()[:12]} {'x'.join(map(str, weight.shape))} {weight.dtype}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def _read(cache: Path | None) -> dict[str, str]:
    try:
        found = json.loads(cache.read_text()) if cache else {}
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}


def _write(cache: Path | None, choices: dict[str, str]) -> None:
    """A choice that cannot be kept is measured again next time; that is no reason to fail."""
    if cache is None:
        return
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        partial = cache.with_suffix(f".{os.getpid()}.partial")
        partial.write_text(json.dumps(choices, indent=1))
        partial.replace(cache)
    except OSError:
        pass
