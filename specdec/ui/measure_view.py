"""Results of the page "Before adopting it": verdicts first, then pictures, tables and downloads. They show and never measure."""

from __future__ import annotations

import html

import streamlit as st

from specdec import measure_report, measure_store, measure_tables
from specdec.measure import Measurement
from specdec.measure_analysis import ALL, Analysis, Figures, Verdict
from specdec.ui import lesson, links, measure_controls, measure_figures, server_view
from specdec.ui.charts import View
from specdec.ui.explain import day, literal, visible
from specdec.ui.lesson import text, texts


def show() -> None:
    """The chosen view of the chosen measurement."""
    chosen = lesson.choose("adopt_show", texts("adopt.views"), text("adopt.view"))
    if chosen == "server":
        server_view.show()
        return
    found = measure_controls.chosen()
    if found is None:
        st.info(text("adopt.none"))
        return
    label, measurement = found
    analysis = measure_controls.analysis_of(measurement)
    views = {"verdict": _verdicts, "lengths": _lengths, "waiting": _waiting, "time": _time, "load": _load, "memory": _memory}
    views[chosen](measurement, analysis)
    st.caption(literal(_origin(label, measurement)))
    downloads(measurement, analysis)


def _origin(label: str, m: Measurement) -> str:
    """When, where and how: nobody shall take a recording for a measurement of this machine."""
    design, origin = m.design, m.origin
    part = "" if m.complete else text("adopt.part", done=len(m.records), total=design.total)
    return text(
        "adopt.origin",
        origin=label,
        device=origin.device,
        machine=origin.machine,
        threads=origin.threads,
        day=day(origin.created),
        pair=origin.pair,
        dtype=origin.dtype,
        method="greedy" if design.greedy else f"temperature {design.temperature:g}",
        prompts=len(design.prompts),
        runs=len(m.runs),
        tokens=design.new_tokens,
        part=part,
    )


def _verdicts(_: Measurement, analysis: Analysis) -> None:
    lesson.answer(f"**{analysis.overall.name}:** {analysis.overall.said()}", good=analysis.overall.use is not False)
    kinds = analysis.verdicts[1:]
    if kinds:
        st.html(f'<ul class="adopt-verdicts">{"".join(map(_item, kinds))}</ul>')
    if analysis.overall.speedup is not None:
        _view(measure_figures.by_kind(analysis), "verdicts")
        lesson.kind(text("adopt.kind.verdict"))


def _item(verdict: Verdict) -> str:
    look = {True: "use", False: "not", None: "open"}[verdict.use]
    words = verdict.said()
    return f'<li class="adopt-{look}"><strong>{html.escape(verdict.kind)}:</strong> {html.escape(words)}</li>'


def _kind(analysis: Analysis) -> str:
    """Which tasks a picture is of."""
    kinds = list(dict.fromkeys(f.kind for f in analysis.figures))
    if len(kinds) < 2:
        return ALL
    if st.session_state.get("adopt_kind") not in kinds:
        st.session_state["adopt_kind"] = ALL
    return st.selectbox(
        text("adopt.kind"),
        kinds,
        **links.choice("kind", kinds, key="adopt_kind"),
        format_func=lambda k: k or text("adopt.all"),
        persist_state="session",
    )


def _best(analysis: Analysis, kind: str) -> Figures | None:
    known = [f for f in analysis.of(kind) if f.speedup is not None]
    return max(known, key=lambda f: f.speedup.value, default=None)


def _plain(analysis: Analysis, kind: str) -> Figures | None:
    return next((f for f in analysis.of(kind) if not f.arm.drafter), None)


def _lengths(_: Measurement, analysis: Analysis) -> None:
    kind = _kind(analysis)
    best = _best(analysis, kind)
    if best is None:
        st.info(text("adopt.none"))
        return
    values = {"alpha": best.acceptance_rate, "tau": best.mean_acceptance_length, "c": best.cost_coefficient, "v": best.verify_ratio}
    lesson.answer(
        text(
            "adopt.lengths.answer",
            arm=best.arm.name,
            speed=best.speedup.value,
            low=best.speedup.low,
            high=best.speedup.high,
            **{name: value if value is not None else float("nan") for name, value in values.items()},
        ),
        good=best.speedup.value > 1,
    )
    _view(measure_figures.by_length(analysis, kind), "lengths")
    lesson.kind(text("adopt.kind.lengths"))


def _waiting(measurement: Measurement, analysis: Analysis) -> None:
    kind = _kind(analysis)
    best, plain = _best(analysis, kind), _plain(analysis, kind)
    if best is not None and plain is not None and best.gaps and plain.gaps:
        gaps = {"p50": best.gaps[0], "p99": best.gaps[2], "plain50": plain.gaps[0], "plain99": plain.gaps[2]}
        lesson.answer(
            text("adopt.waiting.answer", arm=best.arm.name, **{name: 1e3 * g for name, g in gaps.items()}),
            good=best.gaps[2] <= plain.gaps[2] * 2,
        )
    _view(measure_figures.waiting(analysis, kind), "waiting")
    lesson.kind(text("adopt.kind.waiting"))
    arms = [a for a in measure_figures.shown_arms(analysis, kind) if best is None or a.drafter in ("", best.arm.drafter)]
    design = measurement.design
    prompt = next((r.prompt for r in measurement.runs if kind in (ALL, design.prompts[r.prompt].kind) and r.new_tokens > 8), None)
    if prompt is not None:
        _view(measure_figures.bursts(measurement, arms, prompt), "bursts")
        lesson.kind(literal(text("adopt.kind.bursts", prompt=visible(design.prompts[prompt].text))))


def _time(measurement: Measurement, analysis: Analysis) -> None:
    kind = _kind(analysis)
    best, plain = _best(analysis, kind), _plain(analysis, kind)
    if best is not None and plain is not None and best.first_token and plain.first_token:
        lesson.answer(
            text(
                "adopt.time.answer",
                arm=best.arm.name,
                answer=best.answer.value,
                plain=plain.answer.value,
                first=1e3 * best.first_token.value,
                plain_first=1e3 * plain.first_token.value,
            ),
            good=best.answer.value <= plain.answer.value,
        )
    _view(measure_figures.times(analysis, kind), "times")
    lesson.kind(text("adopt.kind.time"))
    design, tokens = measurement.design, {}
    for run in measurement.runs:
        if kind in (ALL, design.prompts[run.prompt].kind):
            tokens[run.arm] = tokens.get(run.arm, 0) + run.new_tokens
    _view(measure_figures.time_split(analysis, kind, tokens), "time-split")
    lesson.kind(text("adopt.kind.split"))


def _load(measurement: Measurement, analysis: Analysis) -> None:
    price = st.slider(
        text("adopt.price"),
        0.0,
        20.0,
        2.0,
        0.1,
        key="m_price",
        bind="query-params",
        disabled=links.locked("m_price"),
        persist_state="session",
        format="%.2f",
    )
    if not analysis.loads:
        st.markdown(text("adopt.load.none"))
        rows = [
            {"arm": f.arm.name, "with the prompt (tokens/s)": f.served_per_second, "cost of a million tokens": cost}
            for f in analysis.of(ALL)
            if (cost := measure_tables.cost_alone(f, price)) is not None
        ]
        st.dataframe(lesson.headed(rows), hide_index=True, key="cost_alone")
        return
    count = max(one.at_once for one in analysis.loads)
    here = [one for one in analysis.loads if one.at_once == count]
    plain = next((one for one in here if not one.arm.drafter), None)
    best = max((one for one in here if one.arm.drafter), key=lambda one: one.tokens_per_second, default=None)
    if plain is not None and best is not None:
        ahead = best.tokens_per_second > plain.tokens_per_second
        first, second = (best, plain) if ahead else (plain, best)
        lesson.answer(
            text(
                "adopt.load.answer",
                count=count,
                arm=first.arm.name,
                speed=first.tokens_per_second,
                cost=first.cost(price),
                other=second.arm.name,
                other_speed=second.tokens_per_second,
                other_cost=second.cost(price),
            ),
            good=ahead,
        )
    left, right = st.columns(2)
    with left:
        view = measure_figures.loads(analysis, price, cost=False)
        lesson.chart(view.figure, view.alt, key="chart_measure_throughput")
    with right:
        view = measure_figures.loads(analysis, price, cost=True)
        lesson.chart(view.figure, view.alt, key="chart_measure_cost")
    lesson.table(view.rows, name="measure-load")
    lesson.kind(text("adopt.kind.load", requests=measurement.design.requests))


def _memory(_: Measurement, analysis: Analysis) -> None:
    best, plain = _best(analysis, ALL), _plain(analysis, ALL)
    if best is not None and plain is not None and plain.memory.weights:
        most = [(f.memory.weights or 0) + (f.memory.cache or 0) for f in (best, plain)]
        lesson.answer(text("adopt.memory.answer", arm=best.arm.name, more=(most[0] - most[1]) / 1e6, share=most[0] / most[1] - 1))
    _view(measure_figures.memory(analysis), "memory")
    lesson.kind(text("adopt.kind.memory"))


def _view(view: View, name: str) -> None:
    lesson.chart(view.figure, view.alt, key=f"chart_measure_{name}")
    lesson.table(view.rows, name=f"measure-{name}")


def downloads(measurement: Measurement, analysis: Analysis) -> None:
    """The report in three forms, and the runs themselves; made when a button is pressed."""
    price = st.session_state.get("m_price", 0.0)
    made = {
        "html": (lambda: measure_report.to_html(measurement, analysis, price=price), "text/html", "article"),
        "csv": (lambda: measure_report.to_csv(measure_tables.records(measurement)), "text/csv", "table"),
        "json": (lambda: measure_report.to_json(measurement, analysis), "application/json", "data_object"),
        "jsonl": (lambda: measure_store.dump(measurement), "application/jsonl", "history"),
    }
    with st.container(horizontal=True, gap="small"):
        for name, (make, mime, icon) in made.items():
            st.download_button(
                text(f"adopt.{name}"),
                data=make,
                file_name=f"{'runs' if name == 'jsonl' else 'report'}.{name}",
                mime=mime,
                icon=f":material/{icon}:",
                on_click="ignore",
                key=f"measure_{name}",
            )
        with st.popover(text("adopt.open_file"), icon=":material/folder_open:"):
            st.file_uploader(text("adopt.open_file"), type=["jsonl"], key="measurement_file", on_change=measure_controls.open_file)
