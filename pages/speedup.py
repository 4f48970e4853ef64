"""How much faster? Speed-up against draft length and acceptance rate: the formula, recorded runs, what others have reported."""

from __future__ import annotations

import streamlit as st

from specdec import theory
from specdec.texts import number
from specdec.ui import lesson, looks, measuring, session, speedup_view
from specdec.ui.lesson import text, texts


def playground() -> None:
    """Everything that a slider changes; the rest of the page is not sent again."""
    left, right = st.columns([1, 2.7], gap="medium")
    with left:
        now = speedup_view.sliders()
    with right:
        chosen = lesson.choose("speedup_show", texts("speedup.views"), text("speedup.view"))
        speedup_view.show(chosen, now)
    with left:
        figures = {
            "speed": f"{number(float(now.speedup(now.draft_length)), '.2f')}×",
            "tokens": number(theory.expected_tokens(now.alpha, now.draft_length), ".2f"),
            "cost": number(theory.round_cost(now.draft_length, now.cost, float(now.verify(now.draft_length))), ".2f"),
            "work": f"{number(theory.operations_factor(now.alpha, now.draft_length, now.cost), '.2f')}×",
        }
        with st.container(key="strip"):
            for name, value in figures.items():
                st.metric(text(f"speedup.m.{name}"), value, border=True)


session.lease()
with lesson.page("speedup"):
    measured = any(measuring.active(name) for name in (speedup_view.EVERY, speedup_view.ASKED))
    looks.fragment(playground, every=looks.interval(measuring.POLL) if measured else None)()
    lesson.formula("speedup")
    lesson.sources("speedup")
