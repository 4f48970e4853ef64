"""Prompts to measure with: the shipped ones by kind, and a person's own from .txt, .jsonl, .csv or pasted text.

A row that cannot be used is left out and named in `PromptSet.problems`, by its place in the file; the others are used.

.txt and pasted text   one prompt on each line; where a line holds nothing but ---, such lines separate prompts of several lines
.jsonl                 one object on each line: {"prompt": "...", "kind": "..."}; the kind may be left out
.csv                   a first line with the names of the columns, one of them "prompt"; a column "kind" may be there
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from specdec.errors import SettingsError
from specdec.tokens import surrogate

SHIPPED = Path(__file__).resolve().parents[1] / "assets" / "prompts.jsonl"
OWN = "own"  # the kind of a prompt that names none
MOST = 500  # prompts of one file
LONGEST = 20_000  # characters of one prompt
FORMATS = (".txt", ".jsonl", ".csv")


@dataclass(frozen=True)
class Prompt:
    """One task. kind: what sort of task, a verdict is given for each."""

    kind: str
    text: str


@dataclass(frozen=True)
class PromptSet:
    """prompts: those that can be used. problems: a sentence for each row that cannot."""

    prompts: tuple[Prompt, ...]
    problems: tuple[str, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """In order of appearance."""
        return tuple(dict.fromkeys(p.kind for p in self.prompts))

    def choose(self, kinds: Sequence[str] | None = None, per_kind: int | None = None) -> PromptSet:
        """Only these kinds (None: all), and of each the first `per_kind` prompts (None: all)."""
        taken: list[Prompt] = []
        for prompt in self.prompts:
            wanted = kinds is None or prompt.kind in kinds
            if wanted and (per_kind is None or sum(p.kind == prompt.kind for p in taken) < per_kind):
                taken.append(prompt)
        return PromptSet(tuple(taken), self.problems)


def shipped() -> PromptSet:
    """The prompts that were written for this project."""
    return read(SHIPPED)


def read(path: Path | str) -> PromptSet:
    """The prompts of a file, by the ending of its name. Raises SettingsError when there is nothing to use."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"The prompts in {path} cannot be read: {error.strerror or error}.") from None
    return parse(data, name=path.name)


def paste(text: str) -> PromptSet:
    """The prompts of a text field."""
    return _collect(_plain(text), name="the pasted text")


def parse(data: bytes, *, name: str) -> PromptSet:
    """The prompts in the contents of a file called `name`. Raises SettingsError when there is nothing to use."""
    ending = Path(name).suffix.lower()
    if ending not in FORMATS:
        raise SettingsError(f"{name} is no prompt file: its name has to end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{name} is not UTF-8 text (byte {error.start + 1}): save it as UTF-8.") from None
    rows = {".txt": _plain, ".jsonl": _jsonl, ".csv": _csv}[ending](text)
    return _collect(rows, name=name)


# One row: where it stands, and the prompt or what is wrong with it.
_Row = tuple[str, Prompt | str]


def _collect(rows: Iterator[_Row], *, name: str) -> PromptSet:
    prompts: list[Prompt] = []
    problems: list[str] = []
    for place, found in rows:
        if isinstance(found, Prompt) and (wrong := _wrong(found)):
            found = wrong
        if isinstance(found, str):
            problems.append(f"{place} of {name} was left out: {found}.")
        elif len(prompts) == MOST:
            problems.append(f"{place} of {name} and all behind it were left out: {MOST} prompts are the most.")
            break
        else:
            prompts.append(found)
    if not prompts:
        detail = f" {problems[0]}" if problems else ""
        raise SettingsError(f"There is no prompt in {name}: write at least one.{detail}")
    return PromptSet(tuple(prompts), tuple(problems))


def _wrong(prompt: Prompt) -> str:
    if not prompt.text.strip():
        return "its prompt is empty"
    if len(prompt.text) > LONGEST:
        return f"its prompt has {len(prompt.text):,} characters, {LONGEST:,} are the most"
    if surrogate(prompt.text) or surrogate(prompt.kind):
        return "it holds half a surrogate pair, which is no character"
    return ""


def _plain(text: str) -> Iterator[_Row]:
    lines = text.splitlines()
    if any(line.strip() == "---" for line in lines):
        start, block = 1, list[str]()
        for number, line in enumerate([*lines, "---"], start=1):
            if line.strip() != "---":
                block.append(line)
                continue
            if "".join(block).strip():
                yield f"The prompt from line {start}", Prompt(OWN, "\n".join(block).strip("\n"))
            start, block = number + 1, []
        return
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield f"Line {number}", Prompt(OWN, line.strip())


def _jsonl(text: str) -> Iterator[_Row]:
    for number, line in enumerate(text.split("\n"), start=1):  # a JSON text may hold other ends of a line
        if not line.strip():
            continue
        place = f"Line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield place, f"it is no JSON ({error})"
            continue
        if not isinstance(row, dict):
            yield place, 'it is no object like {"prompt": "..."}'
        elif not isinstance(row.get("prompt"), str):
            yield place, 'it has no text under "prompt"'
        elif not isinstance(row.get("kind", OWN), str):
            yield place, f'its "kind" is {row["kind"]!r} and should be a text'
        else:
            yield place, Prompt(row.get("kind", "").strip() or OWN, row["prompt"])


def _csv(text: str) -> Iterator[_Row]:
    reader = csv.DictReader(io.StringIO(text), strict=True)
    try:
        names = [(n or "").strip().lower() for n in reader.fieldnames or []]
        if "prompt" not in names:
            raise SettingsError(
                f'The first line of a .csv names its columns, one of them "prompt"; here they are: {", ".join(names) or "none"}.'
            )
        reader.fieldnames = names
        for row in reader:
            place = f"The row that ends in line {reader.line_num}"
            if row.get(None):
                yield place, f"it has {len(names) + len(row[None])} fields and the first line names {len(names)}: quote its commas"
            else:
                yield place, Prompt((row.get("kind") or "").strip() or OWN, row["prompt"] or "")
    except csv.Error as error:
        yield f"Everything from line {reader.line_num}", f"it is no CSV ({error})"
