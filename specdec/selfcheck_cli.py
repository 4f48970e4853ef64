"""`python -m specdec selfcheck`: what to run first on another machine. A table, JSON, and exit code 1 if a check failed."""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import sys
import time
from dataclasses import asdict, replace
from typing import Any

from specdec import cli_io
from specdec.errors import SettingsError

INTERRUPTED = 130
WORDS = {True: "pass", False: "FAIL", None: "-"}


def main(arguments: list[str] | None = None) -> int:
    """Check and print; returns the exit code. Ctrl+C ends it early and keeps what was found."""
    options = _parser().parse_args(arguments)
    if options.ballast is not None and not options.ballast > 0:
        raise SettingsError(f"--ballast is {options.ballast:g}: take a number of billions above 0.")
    place = cli_io.check_place(options.json, option="--json") if options.json else None
    begun = time.monotonic()
    print("loading", file=sys.stderr, flush=True)
    from specdec.decoding import versions
    from specdec.models import load_pair

    pair = load_pair(options.pair, device=options.device, dtype=options.dtype)
    print(f"{pair.title} on {pair.device_name}, {pair.dtype}")
    print(f"{'check':<46}{'':<6}found (wanted)")
    found: list[Any] = []
    interrupted = False
    try:
        for check in _all(pair, options):
            found.append(check)
            print(line(check), flush=True)
    except KeyboardInterrupt:
        interrupted = True
        print("stopped: what is above was found until then", file=sys.stderr)
    failed = [check.name for check in found if check.passed is False]
    seconds = time.monotonic() - begun
    passed = sum(check.passed is True for check in found)
    print(f"{passed} passed, {len(failed)} failed, in {seconds:.0f} s" + (f": {', '.join(failed)}" if failed else ""))
    if place:
        report = {
            "schema": 1,
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "pair": pair.title,
            "device": pair.device_name,
            "dtype": pair.dtype,
            "machine": f"{platform.system()} {platform.machine()}",
            "versions": versions(),
            "seconds": round(seconds, 1),
            "complete": not interrupted,
            "failed": failed,
            "checks": [asdict(check) for check in found],
        }
        cli_io.write_whole(place, json.dumps(report, ensure_ascii=False, indent=1))
    return INTERRUPTED if interrupted else 1 if failed else 0


def _all(pair: Any, options: argparse.Namespace) -> Any:
    """The checks of the pair; on a GPU also greedy identity in float32, and the embedded target with ballast."""
    from specdec import selfcheck

    def tell(title: str) -> None:
        print(f"… {title}", file=sys.stderr, flush=True)

    yield from selfcheck.run(selfcheck.Subject(pair, lambda: _reference(pair), time=options.seconds), name=tell)
    on_cuda = pair.device.type == "cuda"
    if pair.dtype != "float32":
        yield from _in_float32(options, tell)
    billions = options.ballast if options.ballast is not None else 1.0 if on_cuda and options.pair is None else None
    if billions:
        yield from _with_ballast(billions, options, tell)


def _reference(pair: Any) -> Any:
    """The target as transformers has it."""
    if pair.target.model is not None:
        return pair.target.model
    from specdec.fetch import fetch_embedded
    from specdec.loading import load_model

    if pair.name != "embedded":
        raise SettingsError(f"the lean runner of {pair.title} has kept no model to compare with: take --dtype bfloat16.")
    return load_model(fetch_embedded(), name=pair.title, device=pair.device, dtype=pair.dtype)


def _in_float32(options: argparse.Namespace, tell: Any) -> Any:
    """The exactness checks without the roundings of a shorter number format."""
    from specdec import selfcheck
    from specdec.errors import ModelError
    from specdec.models import load_pair

    tell("loading in float32")
    try:
        pair = load_pair(options.pair, device=options.device, dtype="float32")
    except ModelError as error:  # the machine is too small for it: that is no fault of the program
        yield selfcheck.Check("in float32", None, str(error))
        return
    yield from selfcheck.in_float32(selfcheck.Subject(pair, lambda: _reference(pair), time=options.seconds / 2), name=tell)


def _with_ballast(billions: float, options: argparse.Namespace, tell: Any) -> Any:
    """The regime of large models: the same text at the cost of a larger target."""
    from specdec import selfcheck
    from specdec.ballast import load_ballast_pair
    from specdec.errors import ModelError

    tell(f"loading {billions:g} billion parameters of ballast")
    try:
        pair = load_ballast_pair(billions, device=options.device, dtype=options.dtype)
    except ModelError as error:  # the machine is too small for it: that is no fault of the program
        yield selfcheck.Check("ballast", None, str(error))
        return
    label = f"{billions:g} B ballast"
    subject = selfcheck.Subject(pair, lambda: None, time=options.seconds / 2)
    on_cuda, best = pair.device.type == "cuda", 0.0
    for check in selfcheck.carry_out([("speed", lambda: selfcheck.speed(subject))], name=tell):
        best = max(best, check.figures.get("against_plain", 0.0))
        yield replace(check, name=f"{check.name}, {label}")
    wanted = on_cuda and billions >= 1
    yield selfcheck.Check(
        f"best drafter, {label}",
        best >= 2 if wanted else None,
        f"{best:.2f} × plain",
        "≥ 2 × plain" if wanted else "",
        {"against_plain": best},
    )
    if on_cuda:
        from specdec.selfcheck_cuda import FLOOR, memory_floor

        part = ("plain step", lambda: iter([memory_floor(pair, limit=FLOOR)]))
        for check in selfcheck.carry_out([part], name=tell):
            yield replace(check, name=f"{check.name}, {label}")


def line(check: Any) -> str:
    """One row of the table."""
    wanted = f" ({check.wanted})" if check.wanted else ""
    return f"{check.name:<46}{WORDS[check.passed]:<6}{check.found}{wanted}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m specdec selfcheck", description=__doc__)
    add = parser.add_argument
    add("--pair", default=None, metavar="NAME", help="a pair from `models` (default: the embedded one)")
    add("--device", default="auto", metavar="D", help="auto, cpu, cuda, cuda:N or mps (default auto)")
    add("--dtype", default="auto", metavar="D", help="auto, float32, bfloat16 or float16 (default auto)")
    add("--seconds", type=float, default=90.0, metavar="S", help="about how long the checks of the pair may take (default 90)")
    add("--ballast", type=float, metavar="B", help="also with B billion weights of ballast (default: 1 on a GPU, else none)")
    add("--json", metavar="FILE", help="write everything that was found to FILE")
    return parser
