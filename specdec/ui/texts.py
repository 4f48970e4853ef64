"""Texts on screen, by name, from assets/texts."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from specdec.ui.session import ROOT


@cache
def _all(language: str) -> dict[str, str]:
    return json.loads((ROOT / "assets" / "texts" / f"{language}.json").read_text(encoding="utf-8"))


def text(name: str, /, **values: Any) -> str:
    """The text called `name` with `values` put in."""
    found = _all("en")[name]
    return found.format(**values) if values else found


@cache
def examples() -> dict[str, str]:
    """Example prompts by kind."""
    rows = json.loads((ROOT / "assets" / "examples.json").read_text(encoding="utf-8"))
    return {row["kind"]: row["prompt"] for row in rows}
