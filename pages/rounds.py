"""Run and watch: a prompt decoded live with two real models and animated round by round."""

from __future__ import annotations

import streamlit as st

from specdec.ui import controls, later, looks, panels, present, session, whole_run
from specdec.ui.explain import literal
from specdec.ui.stage import chosen, stage
from specdec.ui.texts import text

session.lease()
shown = session.shown()
job = shown.job if shown is not None else None
active = job is not None and job.active
every = looks.pause(job)

st.title(text("rounds.title"), anchor=False)
ended = shown.result if shown is not None and not active else None
with st.sidebar:
    controls.settings()
    controls.runs(ended, name=shown.run if shown is not None else "")
controls.prompt_bar(active=active)
if message := session.take_notice():
    st.error(literal(message), icon=":material/error:")


def live() -> None:
    """What changes while a run goes on, and nothing else: every tab of a class looks at it all the time. The inputs stay outside,
    so that a look at the engine never disturbs them."""
    stage(panels.view_of(shown), on_select=lambda: st.rerun("detail"))
    panels.strip(shown.result if shown is not None else None)
    if looks.outgrown(every, job):
        st.rerun()  # so that the buttons follow, the looks become rarer or more frequent, and end with the run


def detail() -> None:
    """What is worked out when somebody asks for it, or when the run has ended."""
    trace = panels.made_so_far(shown)
    panels.verdict(trace, ended=not active)
    if not present.on("predict"):  # it tells verdicts
        panels.detail(trace, chosen(panels.view_of(shown)), charts=later.ready(), any_token=not active)
    whole_run.panel(trace, charts_ready=later.ready())
    panels.origin(trace)


looks.fragment(live, every=every)()
looks.fragment(detail, key="detail")()
later.wait()
