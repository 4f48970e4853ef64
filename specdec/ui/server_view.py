"""The view for somebody's own vLLM server: its counters, what they call acceptance rate, and what α is."""

from __future__ import annotations

import streamlit as st

from specdec.errors import SettingsError
from specdec.texts import number
from specdec.ui import lesson, measure_figures
from specdec.ui.charts import View
from specdec.ui.explain import literal
from specdec.ui.lesson import text
from specdec.vllm_import import ServerStats, read


def show() -> None:
    """Where to get the counters, and what they say."""
    st.markdown(text("adopt.server.text"))
    left, right = st.columns(2, gap="large")
    with left:
        files = st.file_uploader(
            text("adopt.server.file"), type=["txt", "prom", "json", "jsonl"], accept_multiple_files=True, key="server_files"
        )
    with right:
        pasted = st.text_area(text("adopt.server.paste"), key="server_text", height=130, persist_state="session")
    try:
        stats = _stats(files, pasted)
    except SettingsError as error:
        st.error(literal(str(error)), icon=":material/error:")
        return
    if stats is None:
        st.caption(text("adopt.server.none"))
        return
    _results(stats)


def _stats(files: list, pasted: str) -> ServerStats | None:
    if not files:
        return read(pasted, name="the pasted text") if pasted.strip() else None
    found = [read(file.getvalue(), name=file.name) for file in files]
    if len(found) == 1:
        return found[0]
    if len(found) == 2 and not any(one.responses for one in found):
        return found[1].since(found[0])
    raise SettingsError(f"These are {len(found)} files: give one, or two /metrics texts of which the first is the earlier one.")


def _results(stats: ServerStats) -> None:
    model = f"{stats.model}: " if stats.model else ""
    if stats.acceptance_rate is None:
        st.info(f"{literal(model)}τ = {number(stats.mean_acceptance_length or 1, '.2f')}")
        return
    values = {"tau": stats.mean_acceptance_length, "utilisation": stats.utilisation or 0.0, "alpha": stats.acceptance_rate}
    lesson.answer(text("adopt.server.answer", model=model, sign="=" if stats.exact else "≥", **values))
    counts = {"drafted": stats.drafted, "judged": stats.judged, "discarded": stats.drafted - stats.judged}
    st.markdown(text("adopt.server.why", **counts) if stats.exact else text("adopt.server.least", alpha=stats.acceptance_rate))
    left, right = st.columns(2)
    with left:
        _view(measure_figures.accepted_per_round(stats), "rounds", text("adopt.server.rounds"))
    with right:
        _view(measure_figures.by_position(stats), "places", text("adopt.server.places"))
    if stats.latencies:
        st.markdown(f"**{text('adopt.server.latency')}**")
        rows = [
            {
                "what": name,
                **{
                    p: f"{number(v, '.3g')} s" if v is not None else "–"
                    for p, v in zip(("P50", "P90", "P99"), stats.percentiles(name), strict=True)
                },
            }
            for name in stats.latencies
        ]
        st.table(lesson.headed(rows), hide_index=True)
    lesson.kind(text("adopt.server.kind"))


def _view(view: View, name: str, title: str) -> None:
    st.markdown(f"**{title}**")
    lesson.chart(view.figure, view.alt, key=f"chart_server_{name}")
    lesson.table(view.rows, name=f"server-{name}")
