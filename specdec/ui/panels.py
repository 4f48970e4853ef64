"""The parts of a page that look at a run: its state, its figures, one token of it. They show and never compute."""

from __future__ import annotations

import dataclasses
import time

import streamlit as st

from specdec import metrics
from specdec.engine import Job, Progress, shared
from specdec.trace import Round, Trace
from specdec.ui.explain import against_plain, day, explain, literal, origin_text
from specdec.ui.figures import CHART, distribution_figure, overlap_figure
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
)


def view_of(shown: Shown | None) -> StageView:
    """What the stage shows of `shown`."""
    if shown is None:
        return StageView.empty(text("first"))
    if shown.job is None:
        # A recording opens at the round that has most to show, which is the one that the figures below speak of.
        first = default_selection(shown.trace.rounds) if shown.kind == "recording" else None
        start = first["round"] if first else 0
        return StageView.from_trace(shown.trace, run=shown.run, label=_kept_label(shown), start_round=start)
    job = shown.job
    if job.state in ("done", "stopped") and job.trace is not None:
        return StageView.from_trace(job.trace, run=shown.run, label=text("label.run"), kind="live", play=True)
    engine = shared()
    waiting = job.state == "queued"
    return StageView.live(
        run=shown.run,
        label=text("label.run"),
        prompt=job.request.prompt,
        settings=job.trace.settings if job.trace else job.request.settings,
        state="loading" if waiting and engine.state == "loading" else job.state,
        rounds=tuple(job.rounds),
        method=job.request.method,
        message=job.message or _waiting_text(job),
        queue=job.position + 1 if waiting else None,
        progress=job.progress.fraction if job.progress else None,
        plain_step_seconds=job.trace.plain_step_seconds if job.trace else None,
    )


def _waiting_text(job: Job) -> str:
    """What somebody reads whose run has no round yet: how loading goes, or its place, and the time left where that can be told."""
    if job.state == "queued" and job.progress:
        return loading_text(job.progress)
    left = round(job.due - time.time()) if job.due is not None else 0
    if job.rounds or not job.active or left < 2:
        return ""
    if job.state == "queued":
        return text("wait.queue", before=job.position, seconds=left)
    return text("wait.first", before=job.ahead, seconds=left) if job.ahead else text("wait.next", seconds=left)


def _kept_label(shown: Shown) -> str:
    """ "Recording · 29 Nov 2026 · cpu": what is no live run says when and where it was one."""
    return " · ".join([text(f"label.{shown.kind}"), day(shown.trace.created), shown.trace.device.split(" (")[0][:20]])


def loading_text(progress: Progress) -> str:
    """ "Fetching the model: 34 of 93 MB, about 20 s left"."""
    parts = progress.stage[:1].upper() + progress.stage[1:]
    if progress.total:
        mega = 1e6 if progress.total >= 1_000_000 else 1
        name = "loading.mega" if mega > 1 else "loading.steps"
        parts = text(name, stage=parts, done=progress.done / mega, total=progress.total / mega)
    left = progress.seconds_left
    return parts if not left else text("loading.left", stage=parts, seconds=max(1, round(left)))


def made_so_far(shown: Shown | None) -> Trace | None:
    """The trace of what the stage shows, with all rounds that there are: that of a run that goes on may be a few rounds behind."""
    job, trace = (shown.job, shown.result) if shown is not None else (None, None)
    return dataclasses.replace(trace, rounds=tuple(job.rounds)) if trace is not None and job is not None and job.active else trace


def strip(trace: Trace | None) -> None:
    """The run's own figures; what each means shows on hover. Before there are any, the same boxes with a dash."""
    figures = metrics.summary(trace) if trace is not None else None
    with st.container(key="strip", horizontal=True, gap="xsmall"):
        for name in STRIP:
            metric = metrics.METRICS[name]
            value = metrics.show(name, getattr(figures, name) if figures is not None else None)
            st.metric(metric.title, value, help=metric.definition, border=True, width="stretch")


def verdict(trace: Trace | None, *, ended: bool) -> None:
    """Was speculation worth it, and why. One box of the same kind before there is an answer, so that nothing jumps."""
    faster, sentence = against_plain(trace) if trace is not None and ended else (None, text("verdict.later"))
    icon = {True: ":material/trending_up:", False: ":material/trending_down:", None: ":material/info:"}[faster]
    {True: st.success, False: st.warning, None: st.info}[faster](sentence, icon=icon)


def origin(trace: Trace | None) -> None:
    """Where a run comes from: models, settings, device, day."""
    if trace is not None:
        st.caption(literal(origin_text(trace)))


def default_selection(rounds: tuple[Round, ...] | list[Round]) -> Selection | None:
    """The first rejected draft that the two models partly agreed on, for it has most to show; else any; else the first token."""
    drafts = [(r.index, i, d) for r in rounds for i, d in enumerate(r.drafts)]
    rejected = [found for found in drafts if found[2].status == "rejected"]
    telling = [found for found in rejected if 0.05 < found[2].overlap < 0.95 and found[2].q > 0.05]
    for found in (*telling[:1], *rejected[:1], *drafts[:1]):
        return {"round": found[0], "token": found[1]}
    return {"round": 0, "token": "outcome"} if rounds else None


def detail(trace: Trace | None, selected: Selection | None, *, charts: bool = True, any_token: bool = True) -> None:
    """p and q at the selected token's place, the rule with its numbers, and what the target drew from.

    charts: False leaves their places empty. any_token: show a telling one when none was selected.
    """
    selected = selected or (default_selection(trace.rounds) if trace and any_token else None)
    if trace is None or selected is None or selected["round"] >= len(trace.rounds):
        st.caption(text("detail.pick"))
        return
    round_ = trace.rounds[selected["round"]]
    token = len(round_.drafts) if selected["token"] == "outcome" else selected["token"]
    said = explain(trace.settings, round_, token)
    rejected = next((i for i, d in enumerate(round_.drafts) if d.status == "rejected"), None)
    place = token if token < len(round_.drafts) else rejected
    st.markdown(f"#### {text('detail.round', round=round_.index + 1, title=said.title)}")
    left, right = st.columns(2, gap="large")
    with left:
        if place is not None:
            _chart(text("detail.chart"), *overlap_figure(round_, round_.drafts[place]), key="chart_overlap" if charts else None)
        elif (found := distribution_figure(round_.outcome)) is not None:
            _chart(text("detail.source"), *found, key="chart_source" if charts else None)
    with right:
        st.markdown(said.words)
        st.latex(said.formula)
        if said.exact:
            st.caption(said.exact)
        if place is not None and place == rejected and round_.outcome.residual_mass is not None:
            found = distribution_figure(round_.outcome)
            if found is not None:
                _chart(text("detail.left"), *found, key="chart_left" if charts else None)


def _chart(title: str, figure: dict, alt: str, *, key: str | None) -> None:
    """Without a key an empty place of the same height."""
    st.markdown(f"**{title}**")
    if key is None:
        st.container(height=figure["layout"]["height"], border=False)
    else:
        st.plotly_chart(figure, key=key, config=CHART, alt=alt)
