"""Views of the page "When does the extra model not help?" about the work itself: a long prompt with a short answer, many experts."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import streamlit as st

from specdec import theory
from specdec.experts import MIXTURES
from specdec.measure import Measurement
from specdec.measure_records import PLAIN
from specdec.ui import lesson, links, measure_controls, speedup_view, workload_figures
from specdec.ui.lesson import text


def reading(controls: Callable[[], object]) -> None:
    """Reading the prompt takes as long with speculation as without: what is left of the speed-up."""
    with controls():
        steps = _select("limits.reading.steps", "reading", workload_figures.READING, 100)
        length = _select("limits.reading.length", "answer_tokens", workload_figures.LENGTHS, 64)
        now = speedup_view.sliders()
    if words := _measured():
        lesson.answer(words)
    alone = float(now.speedup(now.draft_length))
    whole = float(theory.answer_speedup(alone, length, steps, now.cost))
    from_ = theory.break_even_answer(alone, steps, now.cost)
    values = {"steps": steps, "length": length, "whole": whole, "alone": alone, "from_": from_}
    which = "never" if alone <= 1 else "always" if from_ < 1 else "from"
    lesson.answer(text(f"limits.reading.{which}", **values), good=whole > 1)
    view = workload_figures.whole_answer(now, reading=steps, length=length)
    lesson.chart(view.figure, view.alt, key="chart_reading")
    lesson.table(view.rows, name="limits-reading")
    lesson.kind(text("limits.kind.reading"))


def _measured() -> str:
    """What reading the prompt left of the speed-up in the first measurement there is."""
    for label, made in measure_controls.measurements().items():
        verdict = measure_controls.analysis_of(made).overall
        if verdict.best is not None and (found := read_and_decoded(made, verdict.best)) is not None:
            steps, decoding, whole = found
            values = {"label": label, "arm": verdict.best.name, "tokens": made.design.new_tokens}
            return text("limits.reading.measured", steps=steps, alone=decoding, whole=whole, **values)
    return ""


def read_and_decoded(made: Measurement, arm: object) -> tuple[float, float, float] | None:
    """Medians over the pairs of runs: plain steps that reading takes, speed-up of decoding alone, and of the whole answer."""
    plain = {(r.prompt, r.repeat): r for r in made.runs if r.arm == PLAIN and r.new_tokens and r.seconds_verify}
    pairs = [(r, plain[r.prompt, r.repeat]) for r in made.runs if r.arm == arm and r.new_tokens and (r.prompt, r.repeat) in plain]
    if not pairs:
        return None
    return (
        statistics.median(p.seconds_prefill * len(p.round_seconds) / p.seconds_verify for _, p in pairs),
        statistics.median(p.seconds_decode / p.new_tokens / (r.seconds_decode / r.new_tokens) for r, p in pairs),
        statistics.median(p.seconds_total / p.new_tokens / (r.seconds_total / r.new_tokens) for r, p in pairs),
    )


def experts(controls: Callable[[], object]) -> None:
    """Each drafted token wakes experts of its own: checking reads more than a plain step, until all are read anyway."""
    with controls():
        name = st.selectbox(
            text("limits.experts.model"),
            list(MIXTURES),
            key="mixture",
            bind="query-params",
            disabled=links.locked("mixture"),
            persist_state="session",
        )
        requests = _select("limits.requests", "expert_requests", workload_figures.REQUESTS, 1)
        now = speedup_view.sliders(take=False, checking=False)
    chosen = MIXTURES[name]
    speeds = {b: float(chosen.speedup(now.alpha, now.draft_length, now.cost, b)) for b in workload_figures.REQUESTS}
    worst = min(speeds, key=speeds.get)
    values = {
        "name": name,
        "requests": requests,
        "gamma": now.draft_length,
        "ratio": float(chosen.verify_ratio(now.draft_length, requests)),
        "speed": speeds[requests],
        "dense": float(theory.speedup(now.alpha, now.draft_length, now.cost)),
        "worst": worst,
        "least": speeds[worst],
    }
    words = [text("limits.experts.answer", **values)]
    if requests != worst:
        words.append(text("limits.experts.least", **values))
    lesson.answer(" ".join(words), good=values["speed"] > 1)
    view = workload_figures.experts(chosen, alpha=now.alpha, draft_length=now.draft_length, cost=now.cost, requests=requests)
    lesson.chart(view.figure, view.alt, key="chart_experts")
    lesson.table(view.rows, name="limits-experts")
    sizes = {"total": chosen.total / 1e9, "active": chosen.active / 1e9, "experts": chosen.experts, "chosen": chosen.chosen}
    lesson.kind(text("limits.kind.experts", name=name, **sizes))


def _select(label: str, key: str, options: tuple[int, ...], value: int) -> int:
    return st.select_slider(
        text(label), options, value, key=key, bind="query-params", disabled=links.locked(key), persist_state="session"
    )
