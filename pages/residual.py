"""Why is the result exactly the target's? Drag p and q, see what is accepted and what is left, throw dice, try the mistakes."""

from __future__ import annotations

import streamlit as st

from specdec.ui import law_view, lesson, looks, measuring, residual_view, session
from specdec.ui.lesson import text, texts

REAL = {"real": residual_view.real, "law": law_view.law, "precision": law_view.precision}  # views that the sliders do not change
LAST = 100  # ticks: 100,000 draws are enough for every eye


def _throwing() -> bool:
    return bool(st.session_state.get("keep")) and st.session_state.get("residual_show") == "draws"


def playground() -> None:
    """Everything that a slider changes. While the dice keep falling it runs by itself, twice a second."""
    left, right = st.columns([1, 2.2], gap="medium")
    with left:
        two = residual_view.sliders()
    with right:
        chosen = lesson.choose("residual_show", texts("residual.views"), text("residual.view"))
        if chosen == "draws":
            before = _throwing()
            st.session_state["_ticks"] = min(LAST, st.session_state.get("_ticks", 0) + 1) if before else 0
            residual_view.draws(two, ticks=st.session_state["_ticks"])
            if st.session_state.pop("_turned", False) or (before and st.session_state["_ticks"] >= LAST and not _ended()):
                st.rerun()  # starts or stops the clock of the fragment
        elif chosen == "mistakes":
            residual_view.errors(two)
        elif chosen in REAL:
            left.caption(text("residual.unused"))
            REAL[chosen]()
        else:
            residual_view.parts(two)


def _ended() -> bool:
    """True from the second look on: the clock has been stopped."""
    ended = st.session_state.get("_stopped_clock", False)
    st.session_state["_stopped_clock"] = True
    return ended


session.lease()
running = _throwing() and st.session_state.get("_ticks", 0) < LAST
if running:
    st.session_state["_stopped_clock"] = False
measured = any(measuring.active(n) for n in (residual_view.THREE, *law_view.SERIES))
pace = looks.interval() if running else looks.interval(measuring.POLL) if measured else None
with lesson.page("residual"):
    looks.fragment(playground, every=pace)()
    lesson.formula("residual")
    lesson.sources("residual")
