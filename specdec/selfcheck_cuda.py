"""What can only be asked of a GPU: how often the host launches and waits in a round, and how near a plain step is to the time that
reading the weights takes."""

from __future__ import annotations

import dataclasses
import statistics
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from specdec.decoding import Run, stream, stream_plain
from specdec.selfcheck import PROMPTS, Check
from specdec.trace import Settings

LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx")
GRAPHS, COPIES = ("cudaGraphLaunch",), ("cudaMemcpyAsync", "cudaMemsetAsync")
MOST_WAITS = 3  # the ids of the round go there, its record comes back
FLOOR = 1.25  # a plain step may take so many times what reading the weights takes,
FLOOR_FROM = 0.01  # where that is so many seconds; below, to go through its kernels one by one takes as long, even within a graph


def checks(pair: Any) -> Iterator[Check]:
    """pair: on CUDA."""
    for drafter in ("none", *pair.drafters):
        run = _begun(pair, drafter)
        counted = _launches(run)
        text = f"{counted['kernels']} kernels, {counted['graphs']} graphs, {counted['copies']} copies, {counted['drafts']} drafts"
        wanted = "one graph" if drafter == "none" else ""
        yield Check(f"launches a round, {drafter}", counted["graphs"] == 1 if wanted else None, text, wanted, counted)
        waits = _waits(run)
        if run.ahead:
            yield Check(f"waits a round, {drafter}", waits <= MOST_WAITS, f"{waits}", f"≤ {MOST_WAITS}", {"waits": waits})
        else:  # the host has to see a draft before the next one
            yield Check(f"waits a round, {drafter}", None, f"{waits}", figures={"waits": waits})
    yield memory_floor(pair)


def memory_floor(pair: Any, *, limit: float | None = None) -> Check:
    """A plain step against bytes of the weights / measured copy bandwidth. limit: how many times it may be where reading takes at least
    `FLOOR_FROM` seconds; None only tells."""
    bandwidth = copy_bandwidth(pair.device)
    model = pair.target.model
    weights = {p.data_ptr(): p.numel() * p.element_size() for p in model.parameters()}
    floor, step = sum(weights.values()) / bandwidth, plain_step(pair)
    text = f"{step * 1e3:.3g} ms, {step / floor:.2f} × reading {sum(weights.values()) / 1e9:.3g} GB at {bandwidth / 1e9:.0f} GB/s"
    if floor < FLOOR_FROM:
        limit = None
    figures = {"step_seconds": step, "floor_seconds": floor, "bandwidth": bandwidth, "ratio": step / floor}
    return Check("plain step", None if limit is None else step <= limit * floor, text, f"≤ {limit:g} ×" if limit else "", figures)


def _begun(pair: Any, drafter: str) -> Run:
    """A run in the middle of its text, on which no end of text comes."""
    endless = dataclasses.replace(pair, eos_ids=frozenset())
    begin = stream_plain if drafter == "none" else stream
    settings = Settings(drafter="" if drafter == "none" else drafter, draft_length=4, max_new_tokens=120)
    run = begin(endless, PROMPTS[2], settings, record=False)  # a text that repeats itself, so that look-up finds something
    for _ in range(4):
        next(run)
    return run


def _launches(run: Run) -> dict[str, int]:
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        round_ = next(run)
        torch.cuda.synchronize(run.pair.device)
    calls = {event.key: event.count for event in profile.key_averages()}

    def count(names: tuple[str, ...]) -> int:
        return sum(calls.get(name, 0) for name in names)

    return {"kernels": count(LAUNCHES), "graphs": count(GRAPHS), "copies": count(COPIES), "drafts": len(round_.drafts)}


def _waits(run: Run) -> int:
    """How often the host waits for the device in a round, as torch itself reports it."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            next(run)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(one.message) for one in caught)


def copy_bandwidth(device: torch.device, *, size: int = 1 << 29, repeats: int = 12) -> float:
    """Bytes a second, read and written, of copying `size` bytes on the device."""
    source = torch.empty(size, dtype=torch.uint8, device=device).fill_(1)
    target = torch.empty_like(source)
    return 2 * size / min(_timed(lambda: target.copy_(source), device) for _ in range(repeats))


def plain_step(pair: Any, *, repeats: int = 30) -> float:
    """Median seconds of a pass over one token, on the device's own clock."""
    sequence = pair.target.open()
    sequence.forward([0] * 16, keep=1)
    times = []
    for _ in range(repeats):
        times.append(_timed(lambda: sequence.forward([0], keep=1), pair.device))
        sequence.crop(16)
    return statistics.median(times[3:])


def _timed(work: Any, device: torch.device) -> float:
    begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize(device)
    stream = torch.cuda.current_stream(device)
    begun.record(stream)
    work()
    ended.record(stream)
    torch.cuda.synchronize(device)
    return begun.elapsed_time(ended) / 1e3
