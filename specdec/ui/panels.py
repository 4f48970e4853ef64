"""The parts of a page that look at a run: its state, its figures, one token of it. They show and never compute."""

from __future__ import annotations

import streamlit as st

from specdec import metrics
from specdec.engine import Job, Progress, shared
from specdec.trace import Round, Trace
from specdec.ui.explain import FINISHED, against_plain, explain
from specdec.ui.figures import distribution_figure, overlap_figure
from specdec.ui.session import Shown
from specdec.ui.stage import Selection, StageView
from specdec.ui.texts import text

STRIP = (
    "tokens_per_second",
    "speedup",
    "acceptance_rate",
    "mean_acceptance_length",
    "draft_utilisation",
    "seconds_to_first_token",
    "share_draft",
)
CHART = {"displayModeBar": False, "responsive": True}


def view_of(shown: Shown | None) -> StageView:
    """What the stage shows of `shown`."""
    if shown is None:
        return StageView.empty(text("first"))
    if shown.job is None:
        return StageView.from_trace(shown.trace, run=shown.run, label=shown.label)
    job = shown.job
    if job.state in ("done", "stopped") and job.trace is not None:
        return StageView.from_trace(job.trace, run=shown.run, label="Live", kind="live", play=True)
    engine = shared()
    waiting = job.state == "queued"
    return StageView.live(
        run=shown.run,
        label="Live",
        prompt=job.request.prompt,
        settings=job.trace.settings if job.trace else job.request.settings,
        state="loading" if waiting and engine.state == "loading" else job.state,
        rounds=tuple(job.rounds),
        method=job.request.method,
        message=job.message or (loading_text(job.progress) if waiting and job.progress else ""),
        queue=job.position if waiting else None,
        progress=job.progress.fraction if job.progress else None,
        plain_step_seconds=job.trace.plain_step_seconds if job.trace else None,
    )


def loading_text(progress: Progress) -> str:
    """ "Fetching the model: 34 of 93 MB, about 20 s left"."""
    parts = progress.stage
    if progress.total:
        mega = progress.total >= 1_000_000
        parts += (
            f": {progress.done / 1e6:.0f} of {progress.total / 1e6:.0f} MB" if mega else f": {progress.done} of {progress.total}"
        )
    left = progress.seconds_left
    return parts if left is None else f"{parts}, about {max(1, round(left))} s left"


def status(shown: Shown | None) -> None:
    """One line that says where the run stands; its height never changes, so that nothing below it jumps."""
    with st.container(key="status", gap=None):
        if shown is None:
            st.caption(text("first"))
        elif shown.job is None:
            st.caption(text(f"status.{shown.kind}", label=shown.label))
        else:
            _job_status(shown.job)


def _job_status(job: Job) -> None:
    tokens, rounds = sum(len(r.new_ids) for r in job.rounds), len(job.rounds)
    if job.state == "failed":
        st.caption(text("status.failed"))
    elif job.state == "stopped":
        st.caption(text("status.stopped", tokens=tokens, rounds=rounds) + (f" {job.message}" if job.message else ""))
    elif job.state == "done":
        st.caption(text("status.done", tokens=tokens, rounds=rounds, reason=FINISHED[job.trace.finish_reason]))
    elif job.state == "running":
        limit = job.request.settings.max_new_tokens
        st.progress(min(1.0, tokens / limit), text("status.running", tokens=tokens, limit=limit, rounds=rounds))
    elif job.progress is not None:
        st.progress(job.progress.fraction or 0.0, loading_text(job.progress))
    else:
        name = "status.starting" if not job.position else "status.queued.one" if job.position == 1 else "status.queued"
        st.progress(0.0, text(name, count=job.position) if job.position > 1 else text(name))


def strip(trace: Trace | None) -> None:
    """The run's own figures; what each means shows on hover. Before there are any, the same boxes with a dash."""
    figures = metrics.summary(trace) if trace is not None else None
    with st.container(key="strip", horizontal=True, gap="small"):
        for name in STRIP:
            metric = metrics.METRICS[name]
            value = metrics.show(name, getattr(figures, name) if figures is not None else None)
            st.metric(metric.title, value, help=metric.definition, border=True, width="stretch")


def verdict(trace: Trace) -> None:
    """Was speculation worth it, and why."""
    faster, sentence = against_plain(trace)
    icon = {True: ":material/trending_up:", False: ":material/trending_down:", None: ":material/info:"}[faster]
    {True: st.success, False: st.warning, None: st.info}[faster](sentence, icon=icon)


def default_selection(rounds: tuple[Round, ...] | list[Round]) -> Selection | None:
    """The first rejected draft, for it has most to show; else the first draft; else the first token of all."""
    for wanted in ("rejected", "accepted"):
        for round_ in rounds:
            for i, draft in enumerate(round_.drafts):
                if draft.status == wanted:
                    return {"round": round_.index, "token": i}
    return {"round": 0, "token": "outcome"} if rounds else None


def detail(trace: Trace | None, selected: Selection | None) -> None:
    """p and q at the selected token's place, the rule with its numbers, and what the target drew from."""
    selected = selected or (default_selection(trace.rounds) if trace else None)
    if trace is None or selected is None or selected["round"] >= len(trace.rounds):
        st.caption(text("detail.pick"))
        return
    round_ = trace.rounds[selected["round"]]
    token = len(round_.drafts) if selected["token"] == "outcome" else selected["token"]
    said = explain(trace.settings, round_, token)
    rejected = next((i for i, d in enumerate(round_.drafts) if d.status == "rejected"), None)
    place = token if token < len(round_.drafts) else rejected
    st.markdown(f"#### Round {round_.index + 1}: {said.title}")
    left, right = st.columns(2, gap="large")
    with left:
        if place is not None:
            _chart(text("detail.chart"), *overlap_figure(round_, round_.drafts[place]), key="chart_overlap")
        elif (found := distribution_figure(round_.outcome)) is not None:
            _chart(text("detail.source"), *found, key="chart_source")
    with right:
        st.markdown(said.words)
        st.latex(said.formula)
        if said.exact:
            st.caption(said.exact)
        if place is not None and place == rejected and round_.outcome.residual_mass is not None:
            found = distribution_figure(round_.outcome)
            if found is not None:
                _chart(text("detail.left"), *found, key="chart_left")


def _chart(title: str, figure: dict, alt: str, *, key: str) -> None:
    st.markdown(f"**{title}**")
    st.plotly_chart(figure, key=key, config=CHART, alt=alt)


def download(trace: Trace | None, run: str) -> None:
    """The trace as a file, made when the button is pressed and not with every picture."""
    st.download_button(
        text("download"),
        data=trace.to_json if trace is not None else b"",
        file_name=f"run-{run}.json",
        mime="application/json",
        icon=":material/download:",
        help=text("download.help"),
        disabled=trace is None,
        on_click="ignore",
        key="download",
    )
