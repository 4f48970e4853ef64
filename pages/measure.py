"""Before adopting it: every drafter and draft length on one's own tasks, with verdicts, reports, and a server's own counters."""

from __future__ import annotations

import streamlit as st

from specdec.ui import lesson, looks, measure_controls, measure_view, session
from specdec.ui.explain import literal
from specdec.ui.lesson import text

session.lease()
was = measure_controls.active()


def progress() -> None:
    """What changes while a measurement goes on. Inputs and pictures stay outside, so that a look at it never disturbs them."""
    measure_controls.state()
    if measure_controls.active() != was:
        st.rerun()  # once, so that the results come and the polling stops


with lesson.page("adopt"):
    if message := session.take_notice():
        st.error(literal(message), icon=":material/error:")
    with st.expander(text("adopt.controls"), icon=":material/timer:"):
        measure_controls.controls()
    looks.fragment(progress, every=looks.interval(measure_controls.POLL) if was else None)()
    measure_view.show()
    lesson.formula("adopt")
    lesson.sources("adopt")
