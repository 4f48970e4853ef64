"""The pages of the app, by name; the name is the address, and what a card of the lesson calls the page."""

from __future__ import annotations

from typing import Any

import streamlit as st

from specdec.ui.session import ROOT

TITLES = {
    "rounds": "Run and watch",
    "race": "With and without",
    "walkthrough": "One round",
    "residual": "Why exact?",
    "speedup": "How fast?",
    "limits": "When not?",
    "measure": "Measure",
    "lesson": "Lesson",
}


def home() -> Any:
    """The default page answers at / only; a link to it by its name has to work as well, so it is there twice."""
    return st.Page(ROOT / "pages" / "rounds.py", title=TITLES["rounds"], url_path="home", default=True)


def pages() -> dict[str, Any]:
    """Every page by its name."""
    return {name: _page(name, title) for name, title in TITLES.items()}


def _page(name: str, title: str) -> Any:
    hidden = {"visibility": "hidden"} if name == "rounds" else {}
    return st.Page(ROOT / "pages" / f"{name}.py", title=title, url_path=name, **hidden)
