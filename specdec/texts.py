"""Texts for people by name and language, from assets/texts. No Streamlit here: the command line speaks English with the same names.

A language has any number of files: `LANGUAGE.json` and `PART.LANGUAGE.json`. A text that a language lacks is taken from English.
`{name}` in a text is a place for a value, with the format of Python ("{speed:.2f}"); numbers come out as the language writes them.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "assets" / "texts"
LANGUAGES = MappingProxyType({"en": "English", "de": "Deutsch", "es": "Español", "zh": "中文"})
ENGLISH = "en"
COMMA = frozenset({"de", "es"})  # languages with a decimal comma
SWAP = str.maketrans({".": ",", ",": "."})

_asked: list[Callable[[], str]] = [lambda: ENGLISH]


def speak(which: Callable[[], str]) -> None:
    """From now on `which()` says the language of whoever looks at the moment."""
    _asked[0] = which


_forced: ContextVar[str] = ContextVar("_forced", default="")


@contextmanager
def spoken(code: str) -> Iterator[None]:
    """Texts of this block are in this language, whoever looks."""
    token = _forced.set(code)
    try:
        yield
    finally:
        _forced.reset(token)


def language() -> str:
    return _forced.get() or _asked[0]()


@cache
def table(code: str) -> Mapping[str, Any]:
    """All texts of one language: strings, lists and tables of strings by name. Raises ValueError where a name is given twice."""
    found: dict[str, Any] = {}
    for path in sorted(FOLDER.glob("*.json")):
        if path.stem.rpartition(".")[2] == code:
            part = json.loads(path.read_text(encoding="utf-8"))
            if twice := found.keys() & part.keys():
                raise ValueError(f"{path.name} has a text that another file of {code} has: {', '.join(sorted(twice))}.")
            found |= part
    return MappingProxyType(found)


def get(name: str) -> Any:
    """The text, the list or the table called `name`; what is missing in it is English."""
    usual = table(ENGLISH)[name]
    return _merged(usual, table(language()).get(name))


def _merged(usual: Any, found: Any) -> Any:
    if found is None or type(found) is not type(usual):
        return usual
    if isinstance(usual, dict):
        return {name: _merged(words, found.get(name)) for name, words in usual.items()}
    if isinstance(usual, list):
        return [_merged(one, other) for one, other in zip(usual, found, strict=True)] if len(found) == len(usual) else usual
    return found


def text(name: str, /, **values: Any) -> str:
    """The text called `name` with `values` put in."""
    found = get(name)
    return fill(found, **values) if values else found


def fill(template: str, /, **values: Any) -> str:
    return _FORMATTER.vformat(template, (), values)


def count(name: str, number: int, /, **values: Any) -> str:
    """A text that depends on a number: `name.one` for 1, `name.many` else; {n} is the number."""
    return text(f"{name}.one" if number == 1 else f"{name}.many", n=number, **values)


def number(value: float, spec: str) -> str:
    """A number as the language writes it: number(2.5, ".2f") is "2.50", in German "2,50"."""
    return localised(format(value, spec))


def localised(digits: str) -> str:
    """Digits that Python wrote, with the marks of the language."""
    return digits.translate(SWAP) if language() in COMMA else digits


def separators() -> str:
    """Decimal mark and mark of thousands, for Plotly."""
    return ",." if language() in COMMA else ".,"


class _Formatter(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        shown = format(value, format_spec)
        numeric = isinstance(value, (int, float)) and not isinstance(value, bool) and (format_spec or isinstance(value, float))
        return localised(shown) if numeric else shown


_FORMATTER = _Formatter()


def placeholders(template: str) -> frozenset[str]:
    """The names of the places in a text."""
    return frozenset(re.split(r"[.\[]", field)[0] for _, field, _, _ in string.Formatter().parse(template) if field is not None)
