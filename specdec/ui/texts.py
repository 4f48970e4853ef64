"""Texts on screen, by name, from assets/texts."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from specdec.ui.session import ROOT


@cache
def _all(language: str) -> dict[str, str]:
    folder = ROOT / "assets" / "texts"
    files = (folder / f"{name}{language}.json" for name in ("", "present."))
    return {name: found for file in files for name, found in json.loads(file.read_text(encoding="utf-8")).items()}


def text(name: str, /, **values: Any) -> str:
    """The text called `name` with `values` put in."""
    found = _all("en")[name]
    return found.format(**values) if values else found


@cache
def examples() -> dict[str, str]:
    """Example prompts by kind."""
    rows = json.loads((ROOT / "assets" / "examples.json").read_text(encoding="utf-8"))
    return {row["kind"]: row["prompt"] for row in rows}
