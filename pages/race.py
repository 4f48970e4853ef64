"""With and without: one request decoded plainly and speculatively, one after the other, then replayed on one clock."""

from __future__ import annotations

import streamlit as st

from specdec.ui import controls, later, race_view, session
from specdec.ui.explain import literal
from specdec.ui.race_stage import race_stage
from specdec.ui.texts import text

POLL = {"queued": 1.0, "running": 0.5}  # seconds between two looks at the engine

session.lease()
shown = race_view.shown()
job = shown.job if shown is not None else None
state = job.state if job is not None else None

st.title(text("race.title"), anchor=False)
with st.sidebar:
    controls.settings()
    race_view.kept(shown.result if shown is not None else None, name=shown.run if shown is not None else "")
controls.prompt_bar(active=job is not None and job.active, run="race.run", start=race_view.start)
if message := session.take_notice():
    st.error(literal(message), icon=":material/error:")


@st.fragment(run_every=POLL.get(state))
def live() -> None:
    """What changes while a race goes on. The inputs stay outside, so that a look at the engine never disturbs them."""
    race_view.banner(shown)
    race_stage(race_view.stage_of(shown))
    if job is not None and job.state != state:
        st.rerun()  # once, so that the buttons follow and the polling stops


live()
race = shown.result if shown is not None else None
race_view.figures(race)
st.fragment(race_view.timelines)(race, ready=later.ready())
later.wait()
