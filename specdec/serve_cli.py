"""`python -m specdec serve`: machines that decode for apps elsewhere, behind one address. Needs requirements-cluster.txt.

    python -m specdec serve --replicas 2 --device auto       # on this machine, until Ctrl+C
    python -m specdec serve --replicas 2-8 --address auto    # in the Ray cluster that this machine belongs to; it stays there
    SPECDEC_ENGINE=http://127.0.0.1:8000 streamlit run app.py

The same command again in a cluster that was joined replaces the replicas one by one; runs that go on come to their ends. Limits
come from the environment, as those of the app (SPECDEC_AT_ONCE, SPECDEC_RUN_SECONDS, …); SPECDEC_ENGINE_TOKEN is a secret that
apps have to show.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import threading
from collections.abc import Callable

from specdec import cluster
from specdec.catalogue import offered
from specdec.errors import SettingsError
from specdec.jobs import Limits


def main(arguments: list[str] | None = None, *, wait: Callable[[], None] | None = None) -> int:
    """Start, say where, and stay until somebody ends it; returns the exit code. wait: returns when it is time to end."""
    options = _parser().parse_args(arguments)
    plan = plan_of(options)
    if options.host not in cluster.LOOPBACK and not plan.token:
        raise SettingsError(
            f"--host {options.host} opens the engine to other computers: set SPECDEC_ENGINE_TOKEN to a secret that apps have to "
            "show, or leave --host out."
        )
    if not 1 <= options.port <= 65535:
        raise SettingsError(f"--port is {options.port}: take a number from 1 to 65535.")
    print(f"specdec: starting {_count(plan)} with {', '.join(plan.pairs)} …", file=sys.stderr, flush=True)
    address = cluster.start(plan, address=options.address, host=options.host, port=options.port)
    print(f"{address}\nspecdec: apps find it with SPECDEC_ENGINE={address}", flush=True)
    if options.address:
        print("specdec: it stays in the cluster until `serve shutdown`.", flush=True)
        return 0
    try:
        (wait or _until_told)()
    finally:
        cluster.stop()
    return 0


def plan_of(options: argparse.Namespace) -> cluster.Plan:
    """Raises SettingsError for options that do not go together."""
    found = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", options.replicas)
    if found is None:
        raise SettingsError(f"--replicas is {options.replicas!r}: take a number, or two as 2-8 for as many as are needed.")
    least, most = int(found[1]), int(found[2] or found[1])
    if options.device.startswith("cuda:"):
        raise SettingsError(f"--device is {options.device!r}: every replica is given its own GPU, so take auto, cuda or cpu.")
    if not re.fullmatch(r"auto|cpu|cuda|mps", options.device):
        raise SettingsError(f"--device is {options.device!r}: take auto, cpu, cuda or mps.")
    if options.split == "tensors":
        raise SettingsError("--split tensors takes one process for each GPU, which a replica has not: take --split layers.")
    if options.split == "layers" and (options.gpus or 0) < 2:
        raise SettingsError("--split layers lays a target over the GPUs of its replica, which takes two: give --gpus 2, or more.")
    gpus = 0.0 if options.gpus is None and options.device == "cpu" else options.gpus
    if options.device == "cpu" and gpus:
        raise SettingsError(f"--gpus {gpus:g} does not go with --device cpu: leave one of them out.")
    environment = dict(os.environ) | ({"SPECDEC_PAIRS": options.pairs} if options.pairs else {})
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cluster.Plan(
        replicas=(least, most),
        pairs=offered(environment),
        device=options.device,
        dtype=options.dtype,
        split=options.split,
        gpus=gpus,
        threads=options.threads if options.threads is not None else max(1, cores // max(1, most)),
        busy=options.busy,
        limits=Limits.from_environment(os.environ),
        token=os.environ.get("SPECDEC_ENGINE_TOKEN", "").strip(),
    )


def _count(plan: cluster.Plan) -> str:
    least, most = plan.replicas
    threads = f"{plan.threads} thread{'s' * (plan.threads != 1)} each"
    each = (
        f"{plan.gpus:g} GPU each" if plan.gpus else threads if plan.gpus == 0 else f"a GPU each where there are any, else {threads}"
    )
    return f"{least if least == most else f'{least} to {most}'} replica{'s' * (most != 1)} ({each})"


def _until_told() -> None:
    """Until Ctrl+C, or a polite request of the system."""
    told = threading.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: told.set())
    while not told.wait(1.0):
        pass


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="specdec serve", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--replicas", default="1", metavar="N", help="how many engines, or N-M for as many as are needed (default 1)")
    add("--pairs", default="", metavar="NAMES", help="pairs that apps may ask for, with commas; the first is loaded at the start")
    add("--device", default="auto", metavar="D", help="auto, cpu, cuda or mps (default auto)")
    add("--dtype", default="auto", choices=("auto", "float32", "bfloat16", "float16"), help="number format (default auto)")
    add("--gpus", type=float, metavar="N", help="of each replica, also a part of one: 0.5 (default: 1 where there are GPUs)")
    add("--split", default="", choices=("layers", "tensors"), help="a target that is larger than one GPU: see README")
    add("--threads", type=int, metavar="N", help="of each replica on the CPU (default: all cores, shared out)")
    add("--busy", type=int, default=8, metavar="N", help="runs of a replica from which on another one is started (default 8)")
    add("--address", metavar="A", help="of a Ray cluster to join; auto for the one of this machine (default: one of our own)")
    add("--host", default="127.0.0.1", metavar="H", help="where to listen (default: this machine only)")
    add("--port", type=int, default=8000, metavar="N", help="(default 8000)")
    return parser
