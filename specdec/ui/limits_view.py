"""Controls and views of the page "When does the extra model not help?"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache

import streamlit as st

from specdec import metrics, theory
from specdec.drafter_runs import REPEATS, middle_runs, requests_of_all, with_one_plain_step
from specdec.engine import RunRequest
from specdec.errors import SpecdecError
from specdec.experiments import RECORDED, Guesses
from specdec.roofline import DEVICES, PAIRINGS, PRECISIONS, Device, Load, most_requests
from specdec.texts import number
from specdec.trace import Trace
from specdec.ui import busy_view, lesson, limits_figures, links, measuring, session, speedup_view, workload_view
from specdec.ui.charts import View
from specdec.ui.explain import literal, origin_text
from specdec.ui.lesson import text
from specdec.ui.texts import examples

DRAFTERS = "drafters"  # the series that measures every drafter
SERIES = (DRAFTERS, busy_view.BUSY)
OWN = "My own figures"
CONTEXTS = (256, 1024, 4096, 16384, 65536)


def show(name: str, *, controls: Callable[[], object]) -> None:
    """The view called `name`. controls: the place for its sliders, as a context."""
    views = {
        "poor": _poor,
        "costly": _costly,
        "busy": _busy,
        "memory": _memory,
        "reading": workload_view.reading,
        "experts": workload_view.experts,
    }
    views[name](controls)


def _poor(controls: Callable[[], object]) -> None:
    with controls():
        now = speedup_view.sliders()
    own, repeats = _own()
    prompts = [own] if own else list(recorded().values())
    if told := " ".join(filter(None, map(_one_prompt, prompts))):
        lesson.answer(text("limits.poor.same", told=told))
    needed = theory.break_even_acceptance(now.draft_length, now.cost, float(now.verify(now.draft_length)))
    first = theory.break_even_acceptance(1, now.cost, float(now.verify(1)))
    if needed != needed:  # nan: even α = 1 does not pay
        lesson.answer(text("limits.poor.never", gamma=now.draft_length), good=False)
    else:
        lesson.answer(
            text("limits.poor.from", gamma=now.draft_length, alpha=needed, first=min(first, 1.0)), good=now.alpha > needed
        )
    _view(limits_figures.poor_draft(now, lesson.runs() | ({} if own else _named(recorded()))), "poor")
    prompt = st.text_area(
        text("limits.measure.prompt"),
        next(iter(examples().values())),
        height=72,
        key="measure_prompt",
        max_chars=2000,
        bind="query-params",
        disabled=links.locked("measure_prompt"),
    )
    measuring.panel(DRAFTERS, label=text("limits.measure"), requests=lambda: _requests(prompt, now.draft_length))
    one = next((trace for runs in prompts for trace in runs.values()), None)
    said = text("limits.kind.same", repeats=repeats or REPEATS, origin=origin_text(one)) if one else ""
    lesson.kind(f"{text('limits.kind.poor')} {literal(said)}")


def _shortened(prompt: str, longest: int = 80) -> str:
    """The beginning of a prompt on one line."""
    line = " ".join(prompt.split())
    return line if len(line) <= longest else f"{line[:longest].rsplit(' ', 1)[0]} …"


def _requests(prompt: str, length: int) -> list[tuple[str, RunRequest]]:
    """What the button asks for."""
    found = requests_of_all(prompt, session.offered_drafters(), draft_length=length)
    return [(f"{name}, γ = {length}", request) for name, request in found]


def _own() -> tuple[dict[str, Trace], int]:
    """Drafter -> its run of the last series on this page, and how often each was repeated at least; nothing before every drafter has run.

    Other pictures take these runs, too, and no longer those that happened to be the last.
    """
    runs = [trace for _, trace in measuring.results(DRAFTERS)]
    counts = Counter(trace.settings.drafter for trace in runs)
    if not set(counts) >= {*session.offered_drafters(), Guesses.name}:
        return {}, 0
    found = comparable(runs)
    st.session_state.setdefault("_measured", {}).update(
        {f"{name}, γ = {trace.settings.draft_length}": trace for name, trace in found.items()}
    )
    return found, min(counts.values())


def comparable(runs: Iterable[Trace]) -> dict[str, Trace]:
    """Drafter -> its run, all against one plain step."""
    return with_one_plain_step(middle_runs(runs))


@cache
def recorded() -> dict[str, dict[str, Trace]]:
    """The shipped runs of each prompt, in the order of the prompts' names: drafter -> its run, all against one plain step."""
    found: dict[str, list[Trace]] = {}
    for path in sorted(RECORDED.glob("drafter-*.json")):
        try:
            trace = Trace.from_json(path.read_bytes())
        except SpecdecError:
            continue
        found.setdefault(trace.prompt, []).append(trace)
    return {prompt: comparable(runs) for prompt, runs in found.items()}


def _named(prompts: dict[str, dict[str, Trace]]) -> dict[str, Trace]:
    """The same under names for a list of runs."""
    return {
        f"{name}, γ = {trace.settings.draft_length}: {_shortened(prompt, 30)}": trace
        for prompt, runs in prompts.items()
        for name, trace in runs.items()
    }


def _one_prompt(found: dict[str, Trace]) -> str:
    """"“Write a short …”: head 1.31× (α 0.45), …, random 0.85× (α 0.00).", the fastest first."""
    figures = {name: metrics.summary(trace) for name, trace in found.items()}
    timed = sorted((f for f in figures.items() if f[1].speedup is not None), key=lambda f: -f[1].speedup)
    told = ", ".join(f"**{name} {number(f.speedup, '.2f')}×** (α {number(f.acceptance_rate or 0, '.2f')})" for name, f in timed)
    prompt = next(iter(found.values())).prompt if found else ""
    return text("limits.poor.one", prompt=_shortened(prompt, 45), drafters=told) if told else ""


def _costly(controls: Callable[[], object]) -> None:
    with controls():
        now = speedup_view.sliders()
    limit = theory.break_even_cost(now.alpha, now.draft_length, float(now.verify(now.draft_length)))
    if limit <= 0:
        lesson.answer(text("limits.costly.never", alpha=now.alpha, gamma=now.draft_length), good=False)
    else:
        values = {"alpha": now.alpha, "gamma": now.draft_length, "cost": limit, "share": 1 / limit}
        lesson.answer(text("limits.costly.upto", **values), good=now.cost < limit)
    _view(limits_figures.costly_draft(now, lesson.runs()), "costly")
    lesson.kind(text("limits.kind.costly"))
    st.markdown(f"**{text('limits.t5')}**")
    st.markdown(text("limits.t5.text"))
    _view(limits_figures.t5_paradox(), "t5")
    lesson.kind(text("limits.kind.t5"))


def _hardware() -> tuple[Device, str, float, int]:
    """device, name of the pair, bytes per weight, context: what both views of hardware share."""
    name = st.selectbox(
        text("limits.device"),
        [*DEVICES, OWN],
        key="device",
        bind="query-params",
        disabled=links.locked("device"),
        persist_state="session",
    )
    pairing = st.selectbox(
        text("limits.pair"),
        list(PAIRINGS),
        key="pairing",
        bind="query-params",
        disabled=links.locked("pairing"),
        persist_state="session",
    )
    precision = st.selectbox(
        text("limits.precision"),
        list(PRECISIONS),
        key="precision",
        bind="query-params",
        disabled=links.locked("precision"),
        persist_state="session",
    )
    context = st.select_slider(
        text("limits.context"),
        CONTEXTS,
        1024,
        key="context",
        bind="query-params",
        disabled=links.locked("context"),
        persist_state="session",
        format_func=lambda n: f"{n:,}",
    )
    if name != OWN:
        return DEVICES[name], pairing, PRECISIONS[precision], context
    rate = st.number_input(
        text("limits.own.rate"),
        0.01,
        100_000.0,
        0.2,
        key="own_rate",
        bind="query-params",
        disabled=links.locked("own_rate"),
        persist_state="session",
    )
    band = st.number_input(
        text("limits.own.band"),
        0.1,
        100_000.0,
        20.0,
        key="own_band",
        bind="query-params",
        disabled=links.locked("own_band"),
        persist_state="session",
    )
    room = st.number_input(
        text("limits.own.room"),
        0.5,
        100_000.0,
        24.0,
        key="own_room",
        bind="query-params",
        disabled=links.locked("own_room"),
        persist_state="session",
    )
    own = Device(name=OWN, operations=rate * 1e12, bandwidth=band * 1e9, memory=room * 1e9, source=text("limits.own.source"))
    return own, pairing, PRECISIONS[precision], context


def _busy(controls: Callable[[], object]) -> None:
    with controls():
        requests = st.select_slider(
            text("limits.requests"),
            limits_figures.REQUESTS,
            1,
            key="requests",
            bind="query-params",
            disabled=links.locked("requests"),
            persist_state="session",
        )
        alpha, gamma = speedup_view.alpha_and_gamma()
        device, pairing, width, context = _hardware()
    st.markdown(f"**{text('limits.busy.head')}**")
    busy_view.measured(alpha=alpha)
    st.markdown(f"**{text('limits.busy.roofline')}**")
    load = Load(pairing=PAIRINGS[pairing], device=device, sequences=requests, context=context, bytes_per_weight=width)
    full = most_requests(load.pairing, device, context=context, bytes_per_weight=width, drafting=True)
    loads = {b: replace(load, sequences=b) for b in limits_figures.REQUESTS if b <= full}
    paying = [b for b, one in loads.items() if one.speedup(alpha, gamma) > 1]
    free = [b for b, one in loads.items() if one.verify_ratio(gamma) < 1.05]
    values = {
        "device": device.name,
        "requests": requests,
        "speed": load.speedup(alpha, gamma),
        "ratio": load.verify_ratio(gamma),
        "gamma": gamma,
        "free": text("limits.busy.free", free=max(free)) if free else text("limits.busy.never_free"),
        "paying": max(paying, default=0),
        "full": full,
        "target": load.pairing.target.name,
    }
    which = "nowhere" if not loads else "all" if len(paying) == len(loads) else "some" if paying else "none"
    room = "" if not loads or full >= limits_figures.REQUESTS[-1] else text("limits.busy.room", full=full)
    lesson.answer(" ".join(filter(None, (text(f"limits.busy.{which}", **values), room))), good=values["speed"] >= 1 and requests <= full)
    _view(limits_figures.busy_server(load, alpha=alpha, draft_length=gamma), "busy")
    lesson.kind(text("limits.kind.busy", c=load.cost_coefficient, source=device.source))


def _memory(controls: Callable[[], object]) -> None:
    with controls():
        requests = st.select_slider(
            text("limits.requests"),
            limits_figures.REQUESTS,
            16,
            key="memory_requests",
            bind="query-params",
            disabled=links.locked("memory_requests"),
            persist_state="session",
        )
        device, name, width, context = _hardware()
    pairing = PAIRINGS[name]
    fit = [most_requests(pairing, device, context=context, bytes_per_weight=width, drafting=d) for d in (False, True)]
    values = {"device": device.name, "context": context, "without": fit[0], "with_": fit[1], "target": pairing.target.name}
    which = "none" if not fit[0] else "alone" if not fit[1] else "both"
    lesson.answer(text(f"limits.memory.{which}", **values), good=fit[1] >= requests)
    view = limits_figures.memory_use(pairing, device, requests=requests, context=context, bytes_per_weight=width)
    _view(view, "memory")
    lesson.kind(text("limits.kind.memory", source=device.source))


def _view(view: View, name: str) -> None:
    lesson.chart(view.figure, view.alt, key=f"chart_{name}")
    lesson.table(view.rows, name=f"limits-{name}")
