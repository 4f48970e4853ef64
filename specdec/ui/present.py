"""In front of a class: the switch "Present", its look and its keys, and "predict first". Both stand in the address, on every page.

Present (`?present=1`) shows the page in large type with nothing around it and is led by keys alone (assets/present.js). Predict
first (`?predict=1`) lets the stage ask before each verdict (static/ask.js); the answers are counted in the browser and come to
nobody else.
"""

from __future__ import annotations

from typing import Any

import streamlit as st

from specdec.ui.session import ROOT
from specdec.ui.texts import text

FLAGS = ("present", "predict")
YES = ("1", "true")
ASK = (  # texts of the questions, as the stage names them
    *("switch", "help", "show", "right", "wrong", "score", "spoken"),
    *(f"{kind}.{mode}{part}" for kind in ("verdict", "replacement") for mode in ("sampled", "greedy") for part in ("", ".title")),
    *(f"{name}.{mode}" for name in ("accept", "reject") for mode in ("sampled", "greedy")),
)


def on(flag: str) -> bool:
    """Whether "present" or "predict" is switched on in this tab."""
    return bool(st.session_state.get(f"_{flag}"))


def switch(flag: str, value: bool) -> None:
    """Set it here and in the address. Predicting runs the page again: what stands below the stage tells verdicts."""
    st.session_state[f"_{flag}"] = value
    _to_link(flag)
    if flag == "predict":
        st.rerun()


def _to_link(flag: str) -> None:
    """The address says it on every page; a page switch empties it."""
    if on(flag):
        if st.query_params.get(flag) != "1":
            st.query_params[flag] = "1"
    elif flag in st.query_params:
        del st.query_params[flag]


def begin() -> None:
    """What the address asks for, at the start of every page. What it does not say stays as it was."""
    for flag in FLAGS:
        if st.query_params.get(flag, "").lower() in YES:
            st.session_state[f"_{flag}"] = True
        _to_link(flag)


def _switched() -> None:
    switch("present", st.session_state.present_switch)


def toggle() -> None:
    """The switch. The lesson says which keys there are."""
    st.session_state.present_switch = on("present")
    st.toggle(text("present.switch"), key="present_switch", on_change=_switched)


def look() -> None:
    """The look of a page that is shown to a class. Always the same elements, so that nothing else moves."""
    sheets = ("cards", "present") if on("present") else ("cards",)
    styles = [(ROOT / "assets" / f"{name}.css").read_text(encoding="utf-8") for name in sheets]
    st.html(f"<style>{''.join(styles)}</style>")


def script() -> None:
    """The keys; once a tab."""
    code = (ROOT / "assets" / "present.js").read_text(encoding="utf-8")
    st.html(f"<script>{code}</script>", unsafe_allow_javascript=True)


def for_stage() -> dict[str, Any]:
    """What a stage is told besides its run."""
    return {
        "present": on("present"),
        "predict": {"on": on("predict"), "texts": {name: text(f"predict.{name}") for name in ASK}},
    }
