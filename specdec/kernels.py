"""Which matrix product to use on this CPU: measured when a model is loaded, not guessed from names.

A decoding pass multiplies every weight with one row (plain decoding) or a handful of rows (verification). Libraries are tuned for
many rows; for so few, the ways to write the same product differ by a factor of three, by machine and by the number of rows. Each
kernel here computes each row by itself, so that a token's logits depend on its neighbours in the pass by no more than rounding.

A plan says which kernel serves which number of rows. Kernels that read the weight as it is can share it; one that lays it out anew
keeps a copy of its own, so a plan may mix both kinds only where there is memory for two copies.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.devices import free_memory

Product = Callable[[Tensor], Tensor]  # x [n, in] -> [n, out], contiguous

BANDS = (1, 2, 5, 9, 32)  # numbers of rows from which on a kernel of its own may serve
ROWS_MEASURED = (1, 3, 5, 12, 48)  # in each band: plain decoding, verification of two, four and eleven drafts, a prompt
REPEATS = (5, 5, 5, 3, 2)
IMPORTANCE = (1.0, 0.5, 0.5, 0.15, 0.3)  # of the time in each band: most passes are steps and verifications, but a prompt is waited for
PACK_ROWS = 8  # the number of rows that a packed weight is laid out for
MEASURED_BYTES = 48_000_000  # of weights that a measurement reads; fewer would stay in a processor's cache
HOPELESS = 1.5  # times the best: a kernel that is so much slower is not measured again
QUIETER = 0.5  # processes fewer that want a core: a choice made on a busy machine is then made again
COPY_GAIN = 0.98  # a second copy of the weights must make the passes at least this much shorter


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


def _batched(weight: Tensor) -> Product:
    """The outputs shared out among the threads as a batch of smaller products: for one row most libraries keep to one thread."""
    out, width = weight.shape
    parts = next(n for n in range(torch.get_num_threads(), 0, -1) if out % n == 0)
    blocks = weight.view(parts, out // parts, width)
    return lambda x: torch.bmm(blocks, x.t().expand(parts, width, len(x))).view(out, len(x)).t().contiguous()


# In turns, those that share the weight and those that copy it: each finds the cache full of another one's copy when it is measured.
KERNELS: dict[str, Callable[[Tensor], Product]] = {
    "batched": _batched,
    "packed": _packed,
    "product-transposed": _product_transposed,
    "stored-transposed": _stored_transposed,
    "stock": _stock,
}
COPYING = ("packed", "stored-transposed", "half")


def _float16(weight: Tensor) -> Product:
    """The weight rounded to 16 bits, all arithmetic in float32."""
    packed = torch.ops.quantized.linear_prepack_fp16(weight.contiguous(), None)
    run = torch.ops.quantized.linear_dynamic_fp16
    return lambda x: run(x, packed)


def _int8(weight: Tensor) -> Product:
    """The weight as whole numbers up to 127 with a scale for each output; inputs and outputs pass through bfloat16. Nothing is scaled
    by what other rows of x hold, as dynamic quantisation would."""
    scale = weight.abs().amax(1).clamp(min=1e-12) / 127
    whole, scale = (weight / scale[:, None]).round().to(torch.int8), scale.bfloat16()
    return lambda x: torch._weight_int8pack_mm(x.bfloat16(), whole, scale).float()


# For weights that float16 holds without rounding, see `fits_half`: half the bytes to read, and the same product.
HALF: dict[str, Callable[[Tensor], Product]] = {"half": _float16}

# Weights held in fewer bits than the model's own: another target, which must be called so.
REDUCED: dict[str, Callable[[Tensor], Product]] = {"float16": _float16, "int8": _int8}


def drafting(weight: Tensor) -> Product:
    """The product with `weight` [out, in] of a drafter, rounded to 16 bits, and held in them on a CPU that can. That is no matter of
    exactness: q is whatever the drafter draws from."""
    weight = rounded(weight)
    if weight.device.type == "cpu" and _multiplies_half():
        return _float16(weight)
    stored = weight.t().contiguous()
    return lambda x: x @ stored


def drafting_bytes(count: int, device: torch.device) -> int:
    """What `count` weights of a drafter take, see `drafting`."""
    return count * (2 if device.type == "cpu" and _multiplies_half() else 4)


def _multiplies_half() -> bool:
    """Whether this build of torch has the product with 16-bit weights on this processor."""
    try:
        _float16(torch.zeros(8, 8))(torch.zeros(1, 8))
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
    return True


def product(plan: str, weight: Tensor) -> Product:
    """The product with `weight` [out, in] by `plan`: the name of a kernel, or one for each band, joined by slashes."""
    names = plan.split("/")
    made = {name: (KERNELS | HALF)[name](weight) for name in names}
    if len(made) == 1:
        return made[names[0]]
    by_rows = [made[names[bisect_right(BANDS, n) - 1]] for n in range(1, BANDS[-1] + 1)]
    return lambda x: by_rows[min(len(x), BANDS[-1]) - 1](x)


def room_for_two(size: int) -> bool:
    """Whether a second copy of weights of `size` bytes leaves plenty of memory to the rest of the machine."""
    free = free_memory(torch.device("cpu"))
    return free is not None and free > 3 * size + 1_500_000_000


def choose(weights: Sequence[Tensor], *, cache: Path | None = None, two_copies: bool = False) -> str:
    """The fastest plan for these weights of one shape, see `product`. Several weights, so that they do not all fit into a cache as
    one would.

    cache: a JSON file that keeps the choice for this machine. two_copies: whether there is memory for the weights twice.
    """
    candidates = KERNELS | (HALF if all(map(fits_half, weights)) else {})
    key = _machine_key(weights[0]) + (" two copies" if two_copies else "") + (" or half" if len(candidates) > len(KERNELS) else "")
    known = _read(cache)
    kept, load = known.get(key), _load()
    if isinstance(kept, dict) and kept.get("load", 0.0) <= load + QUIETER:
        plan = str(kept.get("plan"))
        if all(name in candidates for name in plan.split("/")):
            return plan
    best = _best_plan(_best_times(_some_of(weights), candidates), two_copies=two_copies)
    _write(cache, {**known, key: {"plan": best, "load": load}})
    return best


def fits_half(weight: Tensor) -> bool:
    """Whether float16 holds every number of `weight` without rounding."""
    return weight.dtype == torch.float32 and torch.equal(rounded(weight), weight)


def rounded(weight: Tensor) -> Tensor:
    """`weight` in float32, with the values that float16 can hold."""
    return weight.half().float()


def _load() -> float:
    """Processes that wanted a core in the last minute, 0 where the system does not say."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else 0.0


def _best_plan(times: dict[str, list[float]], *, two_copies: bool) -> str:
    """times: of each kernel in each band."""
    shared = [name for name in times if name not in COPYING]
    single = [shared] + [[name] for name in times if name in COPYING]
    double = [[name, *shared] for name in times if name in COPYING] if two_copies else []
    plans = {}  # "kernel/kernel/kernel/kernel" -> seconds, a second copy counted as the gain it must bring
    for names in single + double:
        picked = [min(names, key=lambda name, band=band: times[name][band]) for band in range(len(BANDS))]
        seconds = sum(weight * times[name][band] for band, (name, weight) in enumerate(zip(picked, IMPORTANCE, strict=True)))
        plans.setdefault("/".join(picked), seconds / (COPY_GAIN if names in double else 1))
    best = min(plans, key=plans.get)
    return best.split("/")[0] if len(set(best.split("/"))) == 1 else best


def _some_of(weights: Sequence[Tensor]) -> list[Tensor]:
    """As many as a measurement needs, of a large one some of its rows."""
    rows = max(64, MEASURED_BYTES // (weights[0].shape[1] * weights[0].element_size()))
    count = max(1, round(rows / len(weights[0])))
    # Whole sixty-fourths, so that threads can share them out.
    return [w if len(w) <= rows else w[: rows // 64 * 64] for w in weights[:count]]


def _best_times(weights: Sequence[Tensor], candidates: dict[str, Callable[[Tensor], Product]]) -> dict[str, list[float]]:
    """Kernel -> the shortest time of a pass over all weights, in each band. They take turns, so that a busy moment of the machine
    hits all alike."""
    products: dict[str, list[Product]] = {}
    inputs = [torch.randn(rows, weights[0].shape[1], dtype=weights[0].dtype) for rows in ROWS_MEASURED]
    for name, make in candidates.items():
        try:
            products[name] = [make(w) for w in weights]
            products[name][0](inputs[0])
        except (RuntimeError, AttributeError, NotImplementedError):
            products.pop(name, None)  # this build of torch does not have it
    best = {name: [float("inf")] * len(inputs) for name in products}
    for band, (x, repeats) in enumerate(zip(inputs, REPEATS, strict=True)):
        racing = dict(products)
        for repeat in range(repeats):
            for name, made in racing.items():
                best[name][band] = min(best[name][band], _time(made, x))
            if repeat:  # one look may have met a busy moment
                limit = HOPELESS * min(best[name][band] for name in racing)
                racing = {name: made for name, made in racing.items() if best[name][band] <= limit}
    return best


def _time(products: list[Product], x: Tensor) -> float:
    begun = time.perf_counter()
    for product in products:
        product(x)
    return time.perf_counter() - begun


def _machine_key(weight: Tensor) -> str:
    machine = f"{platform.machine()} {_processor()} {torch.__version__} {torch.get_num_threads()} threads, bands {BANDS}"
    return f"{hashlib.sha256(machine.encode()).hexdigest()[:12]} {'x'.join(map(str, weight.shape))} {weight.dtype}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def _read(cache: Path | None) -> dict[str, Any]:
    try:
        found = json.loads(cache.read_text()) if cache else {}
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}


def _write(cache: Path | None, choices: dict[str, Any]) -> None:
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
