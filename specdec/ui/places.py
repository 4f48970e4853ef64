"""The pages of the app, by name; the name is the address, and what a card of the lesson calls the page."""

from __future__ import annotations

from typing import Any

import streamlit as st

from specdec.ui.session import ROOT
from specdec.ui.texts import text

NAMES = ("rounds", "race", "walkthrough", "residual", "speedup", "limits", "measure", "lesson")


def home() -> Any:
    """The default page answers at / only; a link to it by its name has to work as well, so it is there twice."""
    return st.Page(ROOT / "pages" / "rounds.py", title=text("nav.rounds"), url_path="home", default=True)


def pages() -> dict[str, Any]:
    """Every page by its name."""
    return {name: _page(name) for name in NAMES}


def _page(name: str) -> Any:
    hidden = {"visibility": "hidden"} if name == "rounds" else {}
    return st.Page(ROOT / "pages" / f"{name}.py", title=text(f"nav.{name}"), url_path=name, **hidden)
