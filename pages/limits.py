"""When does the extra model not help? Poor draft, costly draft, busy server, memory, long prompt, experts."""

from __future__ import annotations

import streamlit as st

from specdec.ui import lesson, limits_view, looks, measuring, session
from specdec.ui.lesson import text, texts


def playground() -> None:
    """Everything that a control changes; the rest of the page is not sent again."""
    chosen = lesson.choose("limits_show", texts("limits.views"), text("limits.view"))
    left, right = st.columns([1, 2.7], gap="medium")
    with right:
        limits_view.show(chosen, controls=lambda: left)


session.lease()
with lesson.page("limits"):
    measured = any(measuring.active(name) for name in limits_view.SERIES)
    looks.fragment(playground, every=looks.interval(measuring.POLL) if measured else None)()
    lesson.formula("limits")
    lesson.sources("limits")
