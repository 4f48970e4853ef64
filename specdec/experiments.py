"""Measurements that are no single run, as the engine serves them: what is asked for, what comes of it, how it is carried out.

    RunRequest(prompt=…, experiment=busy.Busy())      # a plain record, no torch
    job.rounds                                        # one entry for each step that is done, of `experiment.total`
    job.trace                                         # a `Finding`: what there is so far

The records live here and travel as JSON, so that a page can show one that was recorded; what carries them out is imported when the
engine begins.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from specdec.errors import TraceError

RECORDED = Path(__file__).resolve().parents[1] / "assets" / "experiments"


class Experiment:
    """Base of what can be asked for. timed: it must have the machine for itself. total: steps that it takes."""

    timed = False
    module = ""  # that carries it out: `begin(pair, request, stop)`

    @property
    def total(self) -> int:
        raise NotImplementedError


@dataclass(frozen=True)
class Guesses(Experiment):
    """A run whose drafter guesses at random; its trace is that of any run. total: 0, nobody knows how many rounds it takes."""

    module = "specdec.random_drafter"
    name = "random"
    total = 0


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Base of what comes of an experiment. Where and when it was made."""

    finish_reason: Literal["done", "stopped"]
    pair: str
    device: str
    machine: str
    created: str

    @property
    def where(self) -> str:
        """ "SmolLM2-135M-Instruct on cpu (Linux x86_64, …), 2026-11-30": what stands below a picture of it."""
        return f"{self.pair} on {self.device} ({self.machine}), {self.created[:10]}"


def origin(pair: Any) -> dict[str, Any]:
    """The fields that every `Finding` has but for its end."""
    from specdec.measure_device import machine

    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"pair": pair.target_name, "device": pair.device_name, "machine": machine(), "created": now}


class Carried:
    """An experiment that is being carried out, in the shape that the engine knows of a single run.

    steps: does the work, one step after the other. finding(finish_reason): what there is so far. stop: asked before each step.
    """

    prompt_ids: tuple[int, ...] = ()

    def __init__(self, steps: Iterator[Any], finding: Callable[[str], Finding], stop: Callable[[], bool] | None) -> None:
        self._steps, self._finding, self._stop = steps, finding, stop or (lambda: False)
        self.finish_reason: str | None = None

    def __iter__(self) -> Carried:
        return self

    def __next__(self) -> Any:
        if self.finish_reason is None:
            if self._stop():
                self.finish_reason = "stopped"
            else:
                for step in self._steps:
                    return step
                self.finish_reason = "done"
        raise StopIteration

    def trace(self) -> Finding:
        return self._finding(self.finish_reason or "stopped")


def begin(pair: Any, request: Any, stop: Callable[[], bool]) -> Any:
    """What the engine iterates over for a request with an experiment."""
    return importlib.import_module(request.experiment.module).begin(pair, request, stop)


def to_json(finding: Finding) -> str:
    return json.dumps(dataclasses.asdict(finding), ensure_ascii=False, indent=1) + "\n"


def from_json(kind: type, data: str | bytes) -> Any:
    """A finding of the given class. Raises TraceError for anything else."""
    try:
        return _made(kind, json.loads(data))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TraceError(f"This recorded measurement cannot be read ({type(error).__name__}): make it again.") from None


def _made(kind: Any, value: Any) -> Any:
    """Plain data -> the record of which it was made: dataclasses and tuples of them, to any depth."""
    import typing

    if dataclasses.is_dataclass(kind):
        types = typing.get_type_hints(kind)
        unknown = set(value) - set(types)
        if unknown:
            raise KeyError(*sorted(unknown))
        return kind(**{name: _made(types[name], part) for name, part in value.items()})
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        return (
            tuple(_made(arguments[0], part) for part in value)
            if arguments[-1:] == (...,)
            else tuple(_made(one, part) for one, part in zip(arguments, value, strict=True))
        )
    inner = [one for one in arguments if dataclasses.is_dataclass(one)]
    return _made(inner[0], value) if inner and value is not None else value


@cache
def recorded(name: str, kind: type) -> Any:
    """The shipped finding of that name, None where there is none or it cannot be read."""
    try:
        return from_json(kind, (RECORDED / f"{name}.json").read_bytes())
    except (OSError, TraceError):
        return None
