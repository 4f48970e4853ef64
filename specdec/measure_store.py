"""Measurements as files: one JSON line for what is measured and where, then one for each record, written as it comes.

A process that dies leaves every record but the one that it was making. `Store` is such a file on a disk; `dump` and `load` are the
same in memory, for downloads and uploads.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from specdec.errors import SettingsError
from specdec.measure import Design, Measurement, Origin
from specdec.measure_records import BatchRecord, Memory, Record, RunRecord
from specdec.prompt_sets import Prompt
from specdec.tokens import surrogate

SHORTEST = 1e-6  # seconds that anything with tokens takes; a clock that says less is none to divide by
SCHEMA = 1


def dump(measurement: Measurement) -> str:
    """The whole measurement as JSON lines."""
    return "".join(line + "\n" for line in [_head(measurement), *map(_line, measurement.records)])


def load(text: str | bytes) -> Measurement:
    """What `dump` made. Raises SettingsError with one sentence when it is something else.

    A last line that is cut off is left out: the process that wrote it was ended.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError:
            raise SettingsError("This file is no measurement: it is not text. Choose a runs.jsonl that was made here.") from None
    lines = text.split("\n")[: -1 if text.endswith("\n") else None]  # a prompt may hold other ends of a line
    if lines and not text.endswith("\n"):
        lines.pop()
    try:
        head = json.loads(lines[0])
        if not isinstance(head, dict) or head.get("measurement") != SCHEMA:
            raise ValueError
    except (IndexError, ValueError, RecursionError):
        raise SettingsError("This file is no measurement of this version: choose a runs.jsonl that was made here.") from None
    try:
        design = dict(head["design"])
        prompts = tuple(Prompt(kind, words) for kind, words in design.pop("prompts"))
        lists = {name: tuple(design.pop(name)) for name in ("drafters", "draft_lengths", "at_once")}
        for prompt in prompts:
            _check_fields(prompt)
        made = Measurement(
            design=Design(prompts=prompts, **lists, **design), origin=Origin(**head["origin"]), title=str(head.get("title", ""))
        )
        _check("title", made.title, "str")
        _check_fields(made.design)
        _check_fields(made.origin)
        records = tuple(_record(json.loads(line)) for line in lines[1:] if line.strip())
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise SettingsError(f"This measurement is damaged ({str(error)[:200]}): choose another file, or measure again.") from None
    for record in records:
        if isinstance(record, RunRecord) and record.prompt >= len(prompts):
            raise SettingsError(f"This measurement is damaged (there is no prompt {record.prompt}): choose another file.")
    return dataclasses.replace(made, records=records)


def _head(measurement: Measurement) -> str:
    design = dataclasses.asdict(measurement.design)
    design["prompts"] = [[p.kind, p.text] for p in measurement.design.prompts]
    return _json(
        {
            "measurement": SCHEMA,
            "title": measurement.title,
            "design": design,
            "origin": dataclasses.asdict(measurement.origin),
        }
    )


def _line(record: Record) -> str:
    return _json({"record": "run" if isinstance(record, RunRecord) else "batch", **dataclasses.asdict(record)})


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _record(data: dict[str, Any]) -> Record:
    kind = {"run": RunRecord, "batch": BatchRecord}[data.pop("record")]
    data["memory"] = Memory(**data["memory"])
    record = kind(**{name: tuple(v) if isinstance(v, list) else v for name, v in data.items()})
    _check_fields(record)
    _check_fields(record.memory)
    _check_sums(record)
    return record


def _check_sums(record: Record) -> None:
    """What an analysis divides by, and shares that cannot be above 1."""
    if record.accepted > record.judged:
        raise ValueError(f"{record.accepted} of {record.judged} accepted")
    if isinstance(record, BatchRecord):
        if record.seconds < SHORTEST or min(record.at_once, record.new_tokens, record.requests) < 1:
            raise ValueError(f"{record.new_tokens} tokens, {record.at_once} requests at once in {record.seconds} s")
        if not len(record.first_token_seconds) == len(record.answer_seconds) == record.requests:
            raise ValueError(f"{len(record.first_token_seconds)} and {len(record.answer_seconds)} times of {record.requests} requests")
        return
    if not record.rounds_with_drafts <= record.judged <= record.drafted:
        raise ValueError(f"{record.judged} of {record.drafted} drafts judged in {record.rounds_with_drafts} rounds")
    if len(record.round_seconds) != len(record.round_tokens):
        raise ValueError(f"{len(record.round_seconds)} times of {len(record.round_tokens)} rounds")
    if record.rounds_with_drafts > min(record.drafted, len(record.round_tokens)) or (
        record.drafted and not record.rounds_with_drafts
    ):
        raise ValueError(f"{record.drafted} drafts in {record.rounds_with_drafts} of {len(record.round_tokens)} rounds")
    if record.rounds_with_drafts and record.seconds_verify_drafts < SHORTEST:
        raise ValueError(f"{record.rounds_with_drafts} rounds with drafts, and no time of the target for them")
    if sum(record.round_tokens) != record.new_tokens:
        raise ValueError(f"{record.new_tokens} tokens, {sum(record.round_tokens)} of them in rounds")
    if record.new_tokens and min(record.seconds_decode, record.seconds_verify) < SHORTEST:
        raise ValueError(f"{record.new_tokens} tokens in {record.seconds_decode} s, {record.seconds_verify} s of the target")


def _check_fields(made: Any) -> None:
    for field in dataclasses.fields(made):
        _check(field.name, getattr(made, field.name), str(field.type))


def _check(name: str, value: Any, kind: str) -> None:
    """A record is arithmetic waiting to happen: what is no number has to be found here."""
    values = value if kind.startswith("tuple") else (value,)
    if value is None and "None" in kind:
        return
    if "int" in kind or "float" in kind:
        wanted = int | float if "float" in kind else int
        if any(isinstance(v, bool) or not isinstance(v, wanted) or not 0 <= v < 1e15 for v in values):
            raise ValueError(f"{name} is {str(value)[:40]}")
    elif "str" in kind and not all(_is_text(v) for v in ((*value, *value.values()) if kind.startswith("dict") else values)):
        raise ValueError(f"{name} is {str(value)[:40]}")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not surrogate(value)


class Store:
    """A measurement on a disk, in `path`. Opening it reads what is there; what is there has to be of the same design."""

    def __init__(self, path: Path, measurement: Measurement) -> None:
        """measurement: without records, what is wanted. Raises SettingsError when `path` holds another one, or cannot be used."""
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{self.path} cannot be used: {getattr(error, 'strerror', None) or error}.") from None
        if not text.strip():
            self.measurement = measurement
            self._write(dump(measurement))
            return
        found = load(text)
        if changed := _difference(found, measurement):
            raise SettingsError(f"{self.path} holds another measurement ({changed}): name another folder, or ask for the same.")
        self.measurement = found
        if not text.endswith("\n"):
            self._write(dump(found))

    def _write(self, text: str) -> None:
        partial = self.path.with_name(self.path.name + ".partial")
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, self.path)

    def keep(self, record: Record) -> None:
        """Append, at once."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(_line(record) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.measurement = self.measurement.plus(record)


def _difference(found: Measurement, wanted: Measurement) -> str:
    """The first thing in which two measurements differ so much that their records do not belong together, or ""."""
    for name in (f.name for f in dataclasses.fields(Design)):
        here, asked = getattr(found.design, name), getattr(wanted.design, name)
        if here != asked:
            return f"its {name.replace('_', ' ')} differ" if name == "prompts" else f"{name.replace('_', ' ')} {here}, not {asked}"
    for name in ("target", "dtype", "device", "machine", "threads", "versions", "weights"):
        here, asked = getattr(found.origin, name), getattr(wanted.origin, name)
        if here != asked:
            return f"made with {name} {here}, here {asked}"
    return ""
