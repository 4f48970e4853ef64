"""A small page around the stage, for tests and for looking at it: `?sample=rejected&mode=recorded|live&...`.

It is copied to a folder of its own, beside a copy of specdec/ui/static, and served by Streamlit from there. All data is made up.
"""

from __future__ import annotations

import streamlit as st
from sample_traces import SAMPLES

from specdec.ui.stage import StageView, stage

st.set_page_config(layout="wide")
st.html("<style>.block-container{padding:3.75rem 3rem 1rem !important} @media(max-width:700px){.block-container{padding:3.75rem 1rem !important}}</style>")
query = st.query_params
name = query.get("sample", "rejected")
mode = query.get("mode", "recorded")
if "big" in query:
    st.html(f"<style>html{{font-size:{int(query['big'])}px !important}}</style>")
label = "Made-up test data · 29 Nov 2026 · cpu"

if mode == "recorded":
    view = StageView.from_trace(SAMPLES[name](), run=name, label=label, play="play" in query)
elif mode == "live":
    trace = SAMPLES[name]()
    have = st.session_state.setdefault("have", int(query.get("have", 1)))
    if st.button("append"):
        have = st.session_state.have = min(len(trace.rounds), have + int(query.get("by", 1)))
    if st.button("rerun"):
        pass
    state = "running" if have < len(trace.rounds) else "done"
    view = StageView.live(
        run=name, label=label, prompt=trace.prompt, settings=trace.settings, state=state, rounds=trace.rounds[:have],
        plain_step_seconds=trace.plain_step_seconds,
    )  # fmt: skip
elif mode == "empty":
    view = StageView.empty()
else:
    message = {"failed": "The models need 9.1 GB and 6.2 GB are free: choose a smaller pair.", "loading": "Reading weights, 61 of 98 MB"}
    trace = SAMPLES[name]()
    view = StageView.live(
        run=f"{name}-{mode}", label=label, prompt="Why is the sky blue?", settings=trace.settings, state=mode,
        message=message.get(mode, ""), queue=2 if mode == "queued" else None, progress=0.62 if mode == "loading" else None,
        rounds=trace.rounds[: int(query.get("have", 0))], plain_step_seconds=0.019,
    )  # fmt: skip

selected = stage(view)
if "quiet" not in query:
    st.text(f"selected: {selected}")
