"""With and without: one request decoded plainly and speculatively, one after the other, then replayed on one clock."""

from __future__ import annotations

import streamlit as st

from specdec.ui import controls, later, looks, race_view, session
from specdec.ui.explain import literal
from specdec.ui.race_stage import race_stage
from specdec.ui.texts import text

session.lease()
shown = race_view.shown()
job = shown.job if shown is not None else None
every = looks.pause(job)

st.title(text("race.title"), anchor=False)
with st.sidebar:
    controls.settings()
    race_view.kept(shown.result if shown is not None else None, name=shown.run if shown is not None else "")
controls.prompt_bar(active=job is not None and job.active, run="race.run", start=race_view.start)
if message := session.take_notice():
    st.error(literal(message), icon=":material/error:")


def live() -> None:
    """What changes while a race goes on. The inputs stay outside, so that a look at the engine never disturbs them."""
    race_view.banner(shown)
    race_stage(race_view.stage_of(shown))
    if looks.outgrown(every, job):
        st.rerun()  # so that the buttons follow, and the looks end with the race


looks.fragment(live, every=every)()
race = shown.result if shown is not None else None
race_view.figures(race)
st.fragment(race_view.timelines)(race, ready=later.ready())
later.wait()
