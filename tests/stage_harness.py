"""A small page around the stage, for tests and for looking at it: `?sample=rejected&mode=recorded`.

It is copied to a folder of its own beside a copy of specdec/ui/static and served by Streamlit from there. All data is made up.
sample: a name of `sample_traces`. mode: recorded, live (with a button that appends a round), away (a switch takes the stage off
the page), or a state of the stage without any round. big: base font size in px. quiet: nothing below the stage.
"""

from __future__ import annotations

import streamlit as st
from sample_traces import SAMPLES

from specdec.ui.stage import StageView, stage

LABEL = "Made-up test data · 29 Nov 2026 · cpu"
MESSAGES = {
    "failed": "The models need 9.1 GB and 6.2 GB are free: choose a smaller pair.",
    "loading": "Reading weights, 61 of 98 MB",
}

st.set_page_config(page_title="Stage", layout="wide")
query = st.query_params
name = query.get("sample", "rejected")
mode = query.get("mode", "recorded")
trace = SAMPLES[name]()
css = ".block-container{padding:3.75rem 3rem 1rem !important}"
css += "@media(max-width:700px){.block-container{padding:3.75rem 1rem !important}}"
if "big" in query:
    css += f"html{{font-size:{int(query['big'])}px !important}}"
st.html(f"<style>{css}</style>")


def live_view() -> StageView:
    have = st.session_state.setdefault("have", int(query.get("have", 1)))
    with st.container(horizontal=True):
        if st.button("append"):
            have = st.session_state.have = min(len(trace.rounds), have + int(query.get("by", 1)))
        st.button("rerun")
    if have == len(trace.rounds):
        return StageView.from_trace(trace, run=name, label=LABEL, kind="live", play=True)
    return StageView.live(
        run=name,
        label=LABEL,
        prompt=trace.prompt,
        settings=trace.settings,
        state="running",
        rounds=trace.rounds[:have],
        plain_step_seconds=trace.plain_step_seconds,
    )


if mode == "live":
    view = live_view()
elif mode == "empty":
    view = StageView.empty()
elif mode in ("recorded", "away"):
    view = StageView.from_trace(trace, run=name, label=LABEL, play="play" in query)
else:
    view = StageView.live(
        run=f"{name}-{mode}",
        label=LABEL,
        prompt="Why is the sky blue?",
        settings=trace.settings,
        state=mode,
        message=MESSAGES.get(mode, ""),
        queue=2 if mode == "queued" else None,
        progress=0.62 if mode == "loading" else None,
        rounds=trace.rounds[: int(query.get("have", 0))],
        plain_step_seconds=trace.plain_step_seconds,
    )

if mode != "away" or not st.toggle("away"):
    selected = stage(view)
    if "quiet" not in query:
        st.text(f"selected: {selected}")
