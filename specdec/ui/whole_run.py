"""The whole run at a glance, below its rounds: where the time went, and how acceptance fades along the draft."""

from __future__ import annotations

import streamlit as st

from specdec import metrics
from specdec.trace import Trace
from specdec.ui import charts
from specdec.ui.charts import View
from specdec.ui.explain import literal
from specdec.ui.figures import CHART, P, Q
from specdec.ui.run_figures import acceptance_by_place
from specdec.ui.texts import text

ORANGE = "#E69F00"
MOST_ROUNDS = 400  # bars that a browser still draws at once


def time_by_round(trace: Trace) -> View:
    """Stacked bars of draft, verify and judge for each round, in milliseconds, with lines for the plain step and
    the least that a pass can take, where they were measured."""
    split = metrics.time_split(trace)[:MOST_ROUNDS]
    x = [t.index + 1 for t in split]
    parts = (("whole.drafting", "draft", Q, True), ("whole.verifying", "verify", P, False), ("whole.judging", "judge", ORANGE, False))
    data = []
    for title, part, colour, hatched in parts:
        name = text(title)
        milliseconds = [1e3 * getattr(t, part) for t in split]
        hover = [text("whole.hover", n=n, part=name, value=value) for n, value in zip(x, milliseconds, strict=True)]
        data.append(charts.bars(x, charts.numbers(milliseconds), name, colour, hatched=hatched, hover=hover))
    step = trace.plain_step_seconds
    shapes = [charts.flat(1e3 * step, "")[0]] if step else []
    if floor := metrics.memory_floor(trace):
        shape = charts.flat(1e3 * floor, "")[0]
        shapes.append(shape | {"line": shape["line"] | {"dash": "solid"}})
    figure = charts.figure(
        data, x=text("whole.round"), y=text("whole.ms"), height=300, shapes=shapes, barmode="stack", bargap=0.1, yaxis={"rangemode": "tozero"}
    )
    rows = [
        {"round": t.index + 1, "draft ms": 1e3 * t.draft, "verify ms": 1e3 * t.verify, "judge ms": 1e3 * t.judge} for t in split
    ]
    total = metrics.summary(trace)
    shares = ((total.share_draft, "whole.drafting"), (total.share_verify, "whole.verifying"), (total.share_judge, "whole.judging"))
    alt = text("whole.alt", shares=", ".join(f"{text(name)} {share:.0%}" for share, name in shares if share is not None))
    return View(figure, alt, rows)


def panel(trace: Trace | None, *, charts_ready: bool) -> None:
    """Both views in one closed box, so that they cost nothing until somebody looks."""
    if trace is None or not trace.rounds:
        return
    box = st.expander(text("whole.title"), icon=":material/monitoring:", key="whole", on_change="rerun")
    if not box.open or not charts_ready:
        return
    with box:
        left, right = st.columns(2, gap="large")
        with left:
            step = trace.plain_step_seconds
            words = text("whole.time.words") + (text("whole.time.step", step=1e3 * step) if step else "") + _floor_words(trace)
            _show(text("whole.time"), words, time_by_round(trace), key="chart_time")
        with right:
            if any(r.drafts for r in trace.rounds):
                _show(text("whole.places"), text("whole.places.words"), acceptance_by_place(trace), key="chart_places")
            else:
                st.markdown(f"**{text('whole.places')}**")
                st.caption(text("whole.places.none"))


def _floor_words(trace: Trace) -> str:
    floor = metrics.memory_floor(trace)
    if floor is None:
        return ""
    return text(
        "whole.time.floor",
        floor=1e3 * floor,
        size=floor * trace.read_bandwidth / 1e6,
        bandwidth=trace.read_bandwidth / 1e9,
        device=literal(trace.device),
        day=literal(trace.created[:10]),
    )


def _show(title: str, words: str, view: View, *, key: str) -> None:
    st.markdown(f"**{title}**")
    st.caption(words)
    st.plotly_chart(view.figure, key=key, config=CHART, alt=view.alt)
