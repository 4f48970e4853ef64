"""Performing a measurement's steps on a loaded pair, and what there is to know about the pair and the machine: memory, origin."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

from specdec.measure import Design, Measurement, Origin, Step
from specdec.measure_records import Memory, Record, RunRecord

WEIGHTS = Path(__file__).resolve().parents[1] / "assets" / "drafters"


def begin(pair: Any, design: Design) -> Measurement:
    """A measurement on `pair` without any record."""
    import torch

    from specdec.decoding import versions

    trained = {pair.component(name) for name in design.drafters if (pair.info(name).draft or "").startswith("trained")}
    files = {name: WEIGHTS / f"{name}.safetensors" for name in trained}
    origin = Origin(
        pair=pair.title,
        target=pair.target_name,
        dtype=pair.dtype,
        device=pair.device_name,
        machine=machine(),
        threads=torch.get_num_threads(),
        versions=versions(),
        weights={n: hashlib.sha256(files[n].read_bytes()).hexdigest()[:16] for n in sorted(trained) if files[n].is_file()},
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )
    return Measurement(design=design, origin=origin)


def machine() -> str:
    """System, processor and how many there are of it."""
    return f"{platform.system()} {platform.machine()}, {_processor()}, {os.cpu_count()} processors"


def _processor() -> str:
    """What the system calls its processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return " ".join(line.split(":", 1)[1].split())
    except OSError:
        pass
    return platform.processor() or "unknown processor"


def perform_on(pair: Any, design: Design, *, stop: Callable[[], bool] = lambda: False) -> Callable[[Step], Record | None]:
    """perform(step) for `specdec.measure.carry_out`, in this thread."""
    from specdec import decoding

    def perform(step: Step) -> Record | None:
        settings = design.settings(step.arm, step.repeat, warm_up=step.warm_up)
        if step.at_once:
            from specdec.measure_batch import perform_batch

            return perform_batch(pair, design, step, stop=stop)
        start = decoding.stream if step.arm.drafter else decoding.stream_plain
        reset_peak(pair)
        run = start(pair, design.prompts[step.prompts[0]].text, settings, stop=stop, record=False)
        for _ in run:
            pass
        if run.finish_reason == "stopped":
            return None
        trace = run.trace()
        tokens = len(trace.prompt_ids) + len(trace.output_ids)
        return RunRecord.of(
            trace, prompt=step.prompts[0], repeat=step.repeat, memory=memory_of(pair, step.arm.drafter, tokens=tokens)
        )

    return perform


# Memory


def memory_of(pair: Any, drafter: str, *, tokens: int) -> Memory:
    """Since the last `reset_peak`. tokens: that are in the caches at the end, of all requests together."""
    weights = _weight_bytes(pair.target)
    cache = cache_bytes(pair.target)
    if drafter == "draft" and pair.draft is not None:
        weights += _weight_bytes(pair.draft)
        cache = _sum(cache, cache_bytes(pair.draft))
    elif drafter in pair.attached:
        maker = pair.attached[drafter]
        runner = getattr(maker, "runner", None)
        weights += getattr(runner, "weight_bytes", 0)
        cache = _sum(cache, cache_bytes(runner))
    return Memory(peak=peak(pair), weights=weights, cache=None if cache is None else cache * tokens)


def _weight_bytes(runner: Any) -> int:
    """As the runner says it holds them, else every weight in its number format."""
    return getattr(runner, "weight_bytes", None) or runner.parameters * _width(runner)


def cache_bytes(runner: Any) -> int | None:
    """Bytes of the keys and values of one token in one model; None where the model does not say."""
    config = getattr(runner, "config", None)
    if config is not None:
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return 2 * config.num_hidden_layers * heads * size * _width(runner)
    shape = getattr(runner, "shape", None)
    if shape is None:
        return None
    return 2 * getattr(shape, "layers", 1) * shape.groups * (shape.width // shape.heads) * 4  # the trained drafters: float32


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _width(runner: Any) -> int:
    """Bytes of one weight."""
    return runner.dtype.itemsize


def reset_peak(pair: Any) -> None:
    """Start to look for the highest use of memory anew."""
    import torch

    if pair.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(pair.device)
        return
    with contextlib.suppress(OSError):  # Linux; elsewhere the peak is that of the whole process
        Path("/proc/self/clear_refs").write_text("5")


def peak(pair: Any) -> int | None:
    """Bytes: of the GPU, else of this process."""
    import torch

    if pair.device.type == "cuda":
        return torch.cuda.max_memory_allocated(pair.device)
    with contextlib.suppress(OSError, StopIteration):
        line = next(row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return None
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if platform.system() == "Darwin" else used * 1024
