"""Where a pair runs and in which number format, and whether it fits there: asked before anything large is loaded."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import torch

from specdec.catalogue import BYTES_PER_WEIGHT, memory_needed
from specdec.errors import ModelError, SettingsError
from specdec.store import gigabytes

_SHORT = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "half": "float16", "float": "float32"}
_MPS_SMALL = 1_000_000_000  # weights up to which MPS runs in float32 like the CPU


def choose_device(wanted: str = "auto") -> torch.device:
    """ "auto" (CUDA, then MPS, then CPU), "cpu", "cuda", "cuda:1" or "mps". Raises SettingsError for what is not here."""
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", wanted):
        raise SettingsError(f"device is {wanted!r}: take auto, cpu, cuda, cuda:N or mps.")
    cuda = torch.cuda.device_count() if torch.cuda.is_available() else 0
    mps = torch.backends.mps.is_available()
    if wanted == "auto":
        return torch.device("cuda:0" if cuda else "mps" if mps else "cpu")
    device = torch.device("cuda:0" if wanted == "cuda" else wanted)
    if device.type == "cuda" and not (device.index or 0) < cuda:
        found = f"{cuda} CUDA device{'s' * (cuda != 1)}" if cuda else "no CUDA device"
        raise SettingsError(
            f"device is {wanted!r} and this machine shows torch {found}: take {'cuda:0' if cuda else 'cpu'} or auto."
        )
    if device.type == "mps" and not mps:
        raise SettingsError("device is 'mps' and this machine has no Apple GPU that torch can use: take cpu or auto.")
    return device


def device_name(device: torch.device) -> str:
    """For people and traces: "cpu", "cuda:0 (NVIDIA H100)"."""
    return f"{device} ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device)


def choose_dtype(wanted: str, *, device: torch.device, parameters: int) -> str:
    """Name of the number format: auto is bfloat16 on CUDA (float16 on one that knows it not), float32 on the CPU, and on MPS
    float32 for small models and half of that for large ones.
    """
    wanted = _SHORT.get(wanted, wanted)
    if wanted != "auto" and wanted not in BYTES_PER_WEIGHT:
        raise SettingsError(f"dtype is {wanted!r}: take auto, {', '.join(BYTES_PER_WEIGHT)}.")
    if wanted != "auto":
        return wanted
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.get_device_capability(device) >= (8, 0) else "float16"
    if device.type == "mps" and parameters > _MPS_SMALL:
        return "bfloat16" if torch.backends.mps.is_macos_or_newer(14, 0) else "float16"
    return "float32"


def require_memory(
    parameters: int, *, dtype: str, device: torch.device, title: str, stored: str = "bfloat16", free: int | None = None
) -> None:
    """Raise ModelError, with the figures, when `parameters` weights in `dtype` do not fit into the free memory of `device`.

    stored: the number format of the files. On a GPU it makes no difference: the weights are converted on their way there. free:
    bytes, where it is not the memory of that one device that counts.
    """
    stored = stored if device.type == "cpu" else dtype
    needed, free = memory_needed(parameters, dtype, stored=stored), free_memory(device) if free is None else free
    if free is None or needed <= free:
        return
    remedies = ["close other programs", "take a smaller pair"]
    if dtype == "float32":
        remedies.insert(1, f"--dtype bfloat16, which needs {gigabytes(memory_needed(parameters, 'bfloat16'))}")
    if device.type != "cpu":
        remedies.insert(1, "--device cpu")
    raise ModelError(
        f"{title} has {parameters / 1e9:.2f} billion weights and needs about {gigabytes(needed)} in {dtype}, and {device} has "
        f"{gigabytes(free)} free: {', '.join(remedies[:-1])}, or {remedies[-1]}."
    )


def free_memory(device: torch.device) -> int | None:
    """Bytes that a program can still get on `device`; None where the system does not tell."""
    if device.type == "cuda":
        # What torch holds and does not use is there for the next model.
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    try:
        if sys.platform == "linux":
            return _free_linux()
        if sys.platform == "darwin":
            return _free_mac()
        if sys.platform == "win32":
            return _free_windows()
    except (OSError, ValueError, subprocess.SubprocessError):
        pass
    return None


def _free_linux(root: Path = Path("/")) -> int:
    """What the kernel calls available, or less where a container has a limit of its own."""
    available = int(re.search(r"MemAvailable:\s+(\d+) kB", (root / "proc/meminfo").read_text())[1]) * 1024
    group = root / "sys/fs/cgroup"
    for limit, used in (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")):
        try:
            bound, current = (group / limit).read_text().strip(), int((group / used).read_text())
            stat = (group / limit).with_name("memory.stat").read_text()
        except OSError:
            continue
        if bound.isdigit():
            # Cached file pages count as used there, but are given up when somebody needs memory.
            reclaimable = re.search(r"^(?:total_)?inactive_file (\d+)$", stat, re.MULTILINE)
            available = min(available, int(bound) - current + int(reclaimable[1] if reclaimable else 0))
    return available


def _free_mac() -> int:
    said = subprocess.run(["vm_stat"], capture_output=True, text=True, timeout=5, check=True).stdout
    pages = {name: int(count) for name, count in re.findall(r"Pages (\w+):\s+(\d+)", said)}
    return (pages["free"] + pages["inactive"]) * os.sysconf("SC_PAGE_SIZE")


def _free_windows() -> int:
    class Status(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ulong), ("load", ctypes.c_ulong)] + [
            (name, ctypes.c_ulonglong)
            for name in ("total", "free", "total_page", "free_page", "total_virtual", "free_virtual", "extended")
        ]

    status = Status(length=ctypes.sizeof(Status))
    ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
    return status.free
