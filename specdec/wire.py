"""The records of `specdec.jobs` as they travel between an app and the machines that decode: JSON, and nothing that could be code.

A request is one JSON object (`request_to_dict`, `request_from_json`). What becomes of it is a stream of events, one JSON
object a line (`specdec.endpoint` sends them, `specdec.remote_run` reads them):

    {"event": "state", "state": "queued", "position": 2, "ahead": 0, "due": 3.1, "progress": null}     also as a sign of life
    {"event": "round", "leg": "run", "at": 0.42, "round": {...}}      at: seconds of the run
    {"event": "trace", "leg": "run", "at": 0.42, "rounds": 7, "trace": {...}}      without its rounds, which have been sent
    {"event": "finding", "kind": "LawFinding", "finding": {...}}      of an experiment, in place of a trace
    {"event": "end", "state": "done", "message": ""}                  the last line
    {"event": "lost", "message": "..."}                               the last line where another machine has to begin again

The leg is "plain" in the first half of a race and "run" everywhere else.

Whatever a stranger sends is checked field by field: names, types, sizes. No torch here.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

from specdec.errors import SettingsError, TraceError
from specdec.experiments import Experiment, _made
from specdec.jobs import Limits, RunRequest
from specdec.trace import Round, Totals, Trace, _decode, _encode, counts
from specdec.trace_check import check

WIRE = 1  # version of all this
MAX_BODY = 2**20  # bytes of a request
MOST = 10_000  # of any number in an experiment
# Less of what a single step of one takes: that must not keep a machine for minutes.
BOUNDS = {"at_once": 64, "tokens": 512, "new_tokens": 512, "block": 64, "longest": 32, "draft_lengths": 32}
LONGEST_LIST = 8192  # entries of a list in a request; token ids of a run are the longest ones

# What can be asked for besides runs: name on the wire -> module and class of the request, and of what comes of it.
EXPERIMENTS: Mapping[str, tuple[str, str]] = {
    "Law": ("specdec.law", "LawFinding"),
    "Busy": ("specdec.busy", "BusyFinding"),
    "Precision": ("specdec.precision", "PrecisionFinding"),
    "EveryPlace": ("specdec.asked", "AskedFinding"),
    "Guesses": ("specdec.experiments", ""),
}
FINDINGS = {finding: module for module, finding in EXPERIMENTS.values() if finding}


# Requests


def request_to_dict(request: RunRequest) -> dict[str, Any]:
    """Plain data; `request_from_dict` makes the same request of it."""
    data = {field.name: getattr(request, field.name) for field in dataclasses.fields(request)}
    data |= {"wire": WIRE, "settings": dataclasses.asdict(request.settings), "together": list(request.together)}
    if request.experiment is not None:
        data["experiment"] = {"kind": type(request.experiment).__name__, **dataclasses.asdict(request.experiment)}
    return data


def request_from_json(body: bytes, *, limits: Limits, pairs: tuple[str, ...]) -> RunRequest:
    """The request that a client sends. pairs: names that are offered. Raises SettingsError with one sentence for anything that
    is no request, or beyond the limits."""
    if len(body) > MAX_BODY:
        raise SettingsError(f"The request has {len(body):,} bytes, {MAX_BODY:,} are allowed: shorten it.")
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        raise SettingsError("The request is no JSON text: send what specdec.wire.request_to_dict makes.") from None
    request = request_from_dict(data)
    if request.pair not in pairs:
        raise SettingsError(f"The pair {request.pair[:60]!r} is not offered here: take {', '.join(pairs)}.")
    limits.check(request)
    return request


def request_from_dict(data: Any) -> RunRequest:
    """Raises SettingsError for a missing or unknown field, a wrong type, or a number out of its range."""
    if not isinstance(data, dict):
        raise SettingsError("The request is no JSON object: send what specdec.wire.request_to_dict makes.")
    data = dict(data)
    if (version := data.pop("wire", None)) != WIRE:
        found = str(version)[:20]
        raise SettingsError(f"The request has format {found} and this machine reads {WIRE}: install the same version on both.")
    asked = data.pop("experiment", None)
    request = _strict(RunRequest, data, "request", left_out=("experiment",))
    if request.together or request.at_once != 1:
        raise SettingsError("Several prompts at once are for measurements, which need a machine to themselves: send one prompt.")
    return request if asked is None else dataclasses.replace(request, experiment=_experiment(asked))


def _experiment(data: Any) -> Experiment:
    kind = data.get("kind") if isinstance(data, dict) else data
    if not isinstance(data, dict) or not isinstance(kind, str) or kind not in EXPERIMENTS:
        raise SettingsError(f"There is no experiment {str(kind)[:40]!r}: take {', '.join(EXPERIMENTS)}.")
    module, _ = EXPERIMENTS[kind]
    fields = {name: value for name, value in data.items() if name != "kind"}
    made = _strict(getattr(importlib.import_module(module), kind), fields, "experiment")
    for field in dataclasses.fields(made):
        value = getattr(made, field.name)
        numbers = value if isinstance(value, tuple) else (value,)
        most = BOUNDS.get(field.name, 2**31 if field.name.endswith(("_ids", "seed")) else MOST)
        if any(isinstance(n, (int, float)) and not 0 <= n <= most for n in numbers):
            raise SettingsError(f"experiment.{field.name} is {str(value)[:40]}: take numbers from 0 to {most:,}.")
    if made.total > MOST:
        raise SettingsError(f"The experiment would take {made.total:,} steps, {MOST:,} are allowed: ask for fewer.")
    return made


def _strict(kind: Any, value: Any, where: str, *, left_out: tuple[str, ...] = ()) -> Any:
    """`value`, plain data, as `kind`; unlike a trace, which may come from a newer version, nothing unknown may be in it."""
    origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise SettingsError(f"{where} should be an object.")
        hints = typing.get_type_hints(kind)
        fields = {field.name: field for field in dataclasses.fields(kind) if field.name not in left_out}
        if unknown := sorted(str(name)[:40] for name in value.keys() - fields.keys()):
            raise SettingsError(f"{where} has an unknown field {unknown[0]!r}: send what specdec.wire.request_to_dict makes.")
        for name, field in fields.items():
            if name not in value and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                raise SettingsError(f"{where} lacks {name!r}.")
        return kind(**{name: _strict(hints[name], part, f"{where}.{name}") for name, part in value.items()})
    if origin is tuple:
        if not isinstance(value, list) or len(value) > LONGEST_LIST:
            raise SettingsError(f"{where} should be a list of at most {LONGEST_LIST:,}.")
        inner = typing.get_args(kind)[0]
        return tuple(_strict(inner, part, f"{where}[{i}]") for i, part in enumerate(value))
    if origin is Literal:
        if not isinstance(value, str) or value not in typing.get_args(kind):
            raise SettingsError(f"{where} is {str(value)[:40]!r}: take {', '.join(typing.get_args(kind))}.")
        return value
    if origin in (typing.Union, types.UnionType):
        inner = next(t for t in typing.get_args(kind) if t is not type(None))
        return None if value is None else _strict(inner, value, where)
    accepted = (int, float) if kind is float else kind
    if isinstance(value, bool) != (kind is bool) or not isinstance(value, accepted):
        words = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
        raise SettingsError(f"{where} should be {words[kind]}.")
    if kind is str and any("\ud800" <= c <= "\udfff" for c in value):
        raise SettingsError(f"{where} has half a character: send UTF-8 text.")
    return value


# Events


def line(event: str, **data: Any) -> bytes:
    """One event as it travels."""
    return json.dumps({"event": event, **data}, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def round_to_data(round_: Any) -> Any:
    """A round; a step of an experiment only counts and travels as None."""
    return _encode(round_) if isinstance(round_, Round) else None


def round_from_data(data: Any) -> Round | None:
    """Raises TraceError for a damaged one."""
    return None if data is None else _decode(Round, data, "a round")


def result_to_line(result: Any, *, leg: str, at: float) -> bytes:
    """What there is of a run so far: a trace, or the finding of an experiment."""
    if isinstance(result, Trace):
        head = dataclasses.replace(result, rounds=()).to_dict()
        return line("trace", leg=leg, at=round(at, 6), rounds=len(result.rounds), trace=head)
    return line("finding", kind=type(result).__name__, finding=dataclasses.asdict(result))


def head_from_data(data: Any) -> Trace:
    """A trace whose rounds are still missing. Raises TraceError."""
    return _decode(Trace, data, "trace")


def finding_from_data(kind: Any, data: Any) -> Any:
    """Raises TraceError for one that is not known or damaged."""
    if not isinstance(kind, str) or kind not in FINDINGS:
        raise TraceError(f"This is no finding: {str(kind)[:40]!r}.")
    try:
        return _made(getattr(importlib.import_module(FINDINGS[kind]), kind), data)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TraceError(f"This finding cannot be read ({type(error).__name__}).") from None


# A trace of rounds that came one by one


def complete(head: Trace, rounds: list[Round] | tuple[Round, ...]) -> Trace:
    """`head` with its rounds. Raises TraceError when they do not belong together."""
    trace = dataclasses.replace(head, rounds=tuple(rounds))
    check(trace)
    return trace


def made_so_far(head: Trace, known: int, rounds: list[Round], *, seconds: float) -> Trace:
    """The trace of a run that ended on the way to here: `head` speaks of the first `known` rounds, the others came after it.

    seconds: measured from the head to the last round, on the clock of the machine that decoded.
    """
    later, all_ids = rounds[known:], tuple(i for r in rounds for i in r.new_ids)
    parts = [part for r in later for part in (*(d for d in r.drafts if d.status == "accepted"), r.outcome) if part.id is not None]
    text = b"".join(bytes.fromhex(part.bytes) if part.bytes else part.text.encode() for part in parts).decode("utf-8", "ignore")
    times = {name: sum(getattr(r.seconds, name) for r in later) for name in ("verify", "judge", "record")}
    times["draft"] = sum(sum(r.seconds.draft) for r in later)
    before = head.totals
    seconds = max(seconds, sum(times.values()))
    more = {f"seconds_{name}": round(getattr(before, f"seconds_{name}") + value, 7) for name, value in times.items()}
    totals = Totals(
        prompt_tokens=before.prompt_tokens,
        new_tokens=len(all_ids),
        seconds=round(before.seconds + seconds, 7),
        seconds_prefill=before.seconds_prefill,
        seconds_other=round(before.seconds_other + seconds - sum(times.values()), 7),
        **counts(rounds),
        **more,
    )
    return dataclasses.replace(
        head, rounds=tuple(rounds), output_ids=all_ids, output_text=head.output_text + text, totals=totals, finish_reason="stopped"
    )


def same_round(a: Round | None, b: Round | None) -> bool:
    """Whether two machines decoded the same: tokens, verdicts and draws. Probabilities may differ in their last digits, for they
    depend on the shape of the passes; times may differ."""
    if a is None or b is None:
        return a is b
    return _telling(a) == _telling(b)


def _telling(one: Round) -> tuple[Any, ...]:
    drafts = tuple((d.id, d.status, d.u, d.draw_u) for d in one.drafts)
    return one.index, one.start, drafts, one.outcome.kind, one.outcome.id, one.outcome.u
