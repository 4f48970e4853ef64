"""When does the extra model not help? Poor draft, costly draft, busy server, memory."""

from __future__ import annotations

import streamlit as st

from specdec.ui import lesson, limits_view
from specdec.ui.lesson import text, texts


@st.fragment
def playground() -> None:
    """Everything that a control changes; the rest of the page is not sent again."""
    chosen = lesson.choose("limits_show", texts("limits.views"), text("limits.view"))
    left, right = st.columns([1, 2.7], gap="medium")
    with right:
        limits_view.show(chosen, controls=lambda: left)


with lesson.page("limits"):
    playground()
    lesson.formula("limits")
    lesson.sources("limits")
