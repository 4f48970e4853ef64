"""Run and watch: a prompt decoded with two real models, round by round."""

from __future__ import annotations

import streamlit as st

from specdec.ui import controls, later, panels, present, session, whole_run
from specdec.ui.explain import literal
from specdec.ui.stage import stage

POLL = {"queued": 1.0, "running": 0.5}  # seconds between two looks at the engine

session.lease()
shown = session.shown()
job = shown.job if shown is not None else None
state = job.state if job is not None else None

st.title("Run and watch: speculative decoding, round by round", anchor=False)
ended = shown.result if shown is not None and (job is None or not job.active) else None
with st.sidebar:
    controls.settings()
    controls.runs(ended, name=shown.run if shown is not None else "")
controls.prompt_bar(active=job is not None and job.active)
if message := session.take_notice():
    st.error(literal(message), icon=":material/error:")


@st.fragment(run_every=POLL.get(state))
def live() -> None:
    """What changes while a run goes on. The inputs stay outside, so that a look at the engine never disturbs them."""
    selected = stage(panels.view_of(shown))
    trace = shown.result if shown is not None else None
    panels.strip(trace)
    panels.verdict(trace, ended=job is None or not job.active)
    if not present.on("predict"):  # it tells verdicts
        panels.detail(trace, selected, charts=later.ready())
    whole_run.panel(trace, charts_ready=later.ready())
    panels.origin(trace)
    if job is not None and job.state != state:
        st.rerun()  # once, so that the buttons follow and the polling stops


live()
later.wait()
