"""Texts on screen, in the language of the tab: what `?lang=` says, else what the browser prefers, else English."""

from __future__ import annotations

import json
from functools import cache

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from specdec import texts as _texts
from specdec.texts import ENGLISH, LANGUAGES, text
from specdec.ui.session import ROOT

__all__ = ["LANGUAGES", "choose_language", "examples", "language", "text"]


def language() -> str:
    """The language of this tab; English where nobody looks."""
    if get_script_run_ctx(suppress_warning=True) is None:
        return ENGLISH
    state = st.session_state
    if "_language" not in state:
        asked = st.query_params.get("lang")
        state["_language"] = asked if asked in LANGUAGES else _browser()
    return state["_language"]


def choose_language(code: str) -> None:
    st.session_state["_language"] = code


def _browser() -> str:
    preferred = (st.context.locale or ENGLISH).split("-")[0].lower()
    return preferred if preferred in LANGUAGES else ENGLISH


_texts.speak(language)


@cache
def examples() -> dict[str, str]:
    """Example prompts by kind."""
    rows = json.loads((ROOT / "assets" / "examples.json").read_text(encoding="utf-8"))
    return {row["kind"]: row["prompt"] for row in rows}
