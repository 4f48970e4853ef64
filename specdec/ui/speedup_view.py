"""Controls and views of the page "How much faster?"."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from specdec import experiments, metrics, replay, theory
from specdec.asked import AskedFinding, EveryPlace
from specdec.busy import BusyFinding
from specdec.catalogue import DEFAULT_PAIR
from specdec.engine import RunRequest
from specdec.experiments import Guesses
from specdec.measure_analysis import ALL
from specdec.trace import Trace
from specdec.ui import lesson, links, measure_controls, measuring, run_figures, speedup_figures
from specdec.ui.charts import View
from specdec.ui.explain import literal, origin_text
from specdec.ui.lesson import text
from specdec.ui.speedup_figures import Inputs

EVERY = "every"  # the series that measures some γ
ASKED = "asked"  # the one that asks the drafter at every place
MEASURED = (1, 2, 4, 8, 16)


def _take() -> None:
    """Put the sliders where a recorded run, or a measurement, was."""
    state, name = st.session_state, st.session_state.take
    taken = _of_run(name) or measured_values().get(name)
    if taken is None:
        return
    state.alpha, state.gamma = round(taken.alpha, 2), max(1, min(24, taken.draft_length))
    if taken.cost is not None:
        state.cost, state.slope = min(1.0, round(taken.cost, 2)), min(0.5, round(max(0.0, taken.slope or 0.0), 2))
    words = "speedup.taken" if taken.cost is not None else "speedup.taken.part"
    said = text(words, name=literal(name), origin=literal(taken.origin))
    if taken.share < 0.9:  # the last round of many answers has none
        said += " " + text("speedup.taken.share", share=taken.share)
    state["_taken"] = (said, _values())


@dataclass(frozen=True)
class Taken:
    """Where a run or a measurement puts the sliders. draft_length: of the rounds with drafts, which are a `share` of all. cost, slope:
    None where no plain step was measured.
    """

    alpha: float
    draft_length: int
    cost: float | None
    slope: float | None
    origin: str
    share: float = 1.0


def _of_run(name: str) -> Taken | None:
    trace = lesson.runs().get(name)
    if trace is None:
        return None
    figures, costs = metrics.summary(trace), replay.costs_of(trace)
    return Taken(
        figures.acceptance_rate or 0.0,
        round(metrics.usual_draft_length(trace)),
        costs.draft if costs else None,
        costs.verify if costs else None,
        origin_text(trace),
        sum(bool(r.drafts) for r in trace.rounds) / max(1, len(trace.rounds)),
    )


def measured_values() -> dict[str, Taken]:
    """What was measured on many prompts: the arms of the measurements, and the batched passes over a single request."""
    found = {}
    busy = measuring.finding("busy", BusyFinding) or experiments.recorded("busy", BusyFinding)
    if busy is not None and busy.passes and busy.passes[0].at_once == 1:
        at, lengths = busy.passes[0], busy.draft_lengths
        # The straight line through v(0) = 1 that lies nearest to the measured v(γ).
        slope = sum(n * (v - 1) for n, v in zip(lengths, at.ratios, strict=True)) / sum(n * n for n in lengths)
        length = busy.best(at)[0]
        found[text("speedup.take.passes", drafter=busy.drafter)] = Taken(busy.alpha, length, at.cost, slope, busy.where)
    for label, made in measure_controls.measurements().items():
        for figures in measure_controls.analysis_of(made).of(ALL):
            if not figures.arm.drafter or figures.acceptance_rate is None or not figures.mean_draft_length:
                continue
            share, ratio = figures.drafting_share, figures.verify_ratio
            length = figures.mean_draft_length / share
            slope = None if ratio is None else (ratio - 1) / length
            origin = f"{made.origin.target}, {made.origin.machine}, {made.origin.created[:10]}"
            name = text("speedup.take.arm", arm=figures.arm.name, label=label)
            found[name] = Taken(figures.acceptance_rate, round(length), figures.cost_coefficient, slope, origin, share)
    return found


def _values() -> tuple[float, ...]:
    return tuple(st.session_state.get(key) for key in ("alpha", "gamma", "cost", "slope"))


def alpha_and_gamma() -> tuple[float, int]:
    """The two sliders that more than one page has; one name and one range everywhere."""
    alpha = st.slider(
        text("alpha.label"),
        0.0,
        1.0,
        0.8,
        0.01,
        key="alpha",
        help=text("alpha.help"),
        bind="query-params",
        disabled=links.locked("alpha"),
        persist_state="session",
    )
    gamma = st.slider(
        text("gamma.label"),
        1,
        24,
        4,
        key="gamma",
        help=text("gamma.help"),
        bind="query-params",
        disabled=links.locked("gamma"),
        persist_state="session",
    )
    return alpha, gamma


def sliders(*, take: bool = True, checking: bool = True) -> Inputs:
    """α, γ, c and the cost of checking; their names in the address are alpha, gamma, cost and slope on every page. checking: False
    where something else says what checking costs; the slope is 0 then.
    """
    alpha, gamma = alpha_and_gamma()
    cost = st.slider(
        text("cost.label"),
        0.0,
        1.0,
        0.05,
        0.01,
        key="cost",
        help=text("cost.help"),
        bind="query-params",
        disabled=links.locked("cost"),
        persist_state="session",
    )
    slope = 0.0
    if checking:
        slope = st.slider(
            text("slope.label"),
            0.0,
            0.5,
            0.0,
            0.01,
            key="slope",
            help=text("slope.help"),
            bind="query-params",
            disabled=links.locked("slope"),
            persist_state="session",
        )
    runs = [*lesson.runs(), *measured_values()] if take else []
    if runs:
        st.menu_button(text("speedup.take"), runs, icon=":material/tune:", key="take", on_click=_take, width="stretch")
        words, values = st.session_state.get("_taken", ("", ()))
        if values == _values():  # said only while it is true
            st.caption(words)
    return Inputs(alpha=round(alpha, 3), cost=round(cost, 3), slope=round(slope, 3), draft_length=gamma)


def answer(now: Inputs) -> None:
    best = now.best
    if best.draft_length:
        words = text(
            "speedup.pays",
            gamma=now.draft_length,
            speed=float(now.speedup(now.draft_length)),
            best=best.draft_length,
            best_speed=best.speedup,
        )
        lesson.answer(words, good=float(now.speedup(now.draft_length)) >= 1)
        return
    needed = theory.break_even_acceptance(1, now.cost, float(now.verify(1)))
    lesson.answer(text("speedup.never", alpha=needed) if needed <= 1 else text("speedup.never.any"), good=False)


def show(name: str, now: Inputs) -> None:
    """The view called `name`: its answer in a sentence, its picture and table, and what sort of figure it is."""
    runs = lesson.runs()
    simple = {
        "length": lambda: speedup_figures.by_length(now, runs),
        "balance": lambda: speedup_figures.tokens_and_cost(now),
        "map": lambda: speedup_figures.alpha_by_length(now, runs),
        "costs": lambda: speedup_figures.alpha_by_cost(now, runs),
    }
    if name in simple:
        answer(now)
        _view(simple[name](), name)
        lesson.kind(text(f"speedup.kind.{name}"))
    elif name == "published":
        lesson.answer(text("speedup.published"))
        _view(speedup_figures.published(), name)
        lesson.kind(text("speedup.kind.published"))
    elif not runs:
        st.info(text("run.none"))
    else:
        chosen = st.selectbox(text("run.choose"), list(runs), key="which")
        {"replay": _replay, "text": _closely}[name](runs[chosen])


def _view(view: View, name: str) -> None:
    lesson.chart(view.figure, view.alt, key=f"chart_{name}")
    lesson.table(view.rows, name=f"speedup-{name}")


def _replay(trace: Trace) -> None:
    asked = measuring.finding(ASKED, AskedFinding)
    exact = asked is not None and asked.fits(trace)
    found = asked.every_draft_length() if exact else replay.every_draft_length(trace)
    if not found:
        st.info(text("run.none"))
        return
    costs, figures = replay.costs_of(trace), metrics.summary(trace)
    if costs is not None:
        best = max(found, key=lambda r: r.likely.speedup(costs)).likely
        values = {"best": best.draft_length, "speed": best.speedup(costs), "own": round(metrics.usual_draft_length(trace))}
        lesson.answer(text("speedup.replayed", **values, measured=figures.speedup or 0.0), good=best.speedup(costs) >= 1)
    measured = [
        (t.settings.draft_length, metrics.summary(t)) for _, t in measuring.results(EVERY) if t.prompt_ids == trace.prompt_ids
    ]
    clockless = costs is None or st.toggle(
        text("speedup.clockless"),
        key="clockless",
        bind="query-params",
        disabled=links.locked("clockless"),
        help=text("speedup.clockless.help"),
    )
    _view(run_figures.one_run_every_length(trace, found, None if clockless else costs, measured), "replay")
    if trace.pair.name == DEFAULT_PAIR and trace.settings.drafter != Guesses.name:
        measuring.panel(EVERY, label=text("speedup.measure"), requests=lambda: _requests(trace))
        if trace.settings.greedy:
            measuring.panel(ASKED, label=text("speedup.ask"), requests=lambda: [_ask(trace)])
    if exact:
        lesson.kind(" ".join([_asked(asked, trace), literal(origin_text(trace))]))
        return
    notes = [text("speedup.kind.replay.exact" if trace.settings.greedy else "speedup.kind.replay.sampled")]
    if trace.settings.drafter in replay.LOOKING_BACK:
        notes.append(text("speedup.kind.replay.back"))
    notes.append(text("speedup.kind.replay.time" if costs else "speedup.kind.replay.notime"))
    if measured:
        notes.append(text("speedup.kind.replay.now"))
    lesson.kind(" ".join([*notes, literal(origin_text(trace))]))


def _asked(asked: AskedFinding, trace: Trace) -> str:
    """What sort of figure it is, and whether it tells the rounds that the run itself had."""
    words = text("speedup.kind.asked", count=len(asked.proposed))
    if trace.settings.adaptive:
        return words
    told, had = int(asked.replay(trace.settings.draft_length).rounds), len(trace.rounds)
    which = "same" if told == had else "other"
    return f"{words} {text(f'speedup.asked.{which}', gamma=trace.settings.draft_length, told=told, had=had)}"


def _ask(trace: Trace) -> tuple[str, RunRequest]:
    asked = EveryPlace(prompt_ids=trace.prompt_ids, output_ids=trace.output_ids)
    return text("speedup.ask.name"), RunRequest(prompt=trace.prompt, settings=trace.settings, experiment=asked)


def _requests(trace: Trace) -> list[tuple[str, RunRequest]]:
    """The same text with some other γ. The longest is last: from it the replay of all others is exact."""
    return [
        (
            f"γ = {n}, {trace.settings.drafter}",
            RunRequest(prompt=trace.prompt, settings=trace.settings.replace(draft_length=n, adaptive=False)),
        )
        for n in MEASURED
    ]


def _closely(trace: Trace) -> None:
    figures = metrics.summary(trace)
    lesson.answer(
        text(
            "speedup.closely",
            accepted=figures.accepted,
            judged=figures.judged,
            alpha=figures.acceptance_rate or 0.0,
            tokens=figures.mean_acceptance_length or 0.0,
        )
    )
    left, right = st.columns(2)
    for column, name, view in (
        (left, "place", run_figures.acceptance_by_place(trace)),
        (right, "counts", run_figures.accepted_per_round(trace)),
    ):
        with column:
            st.markdown(f"**{text(f'speedup.{name}', alpha=figures.acceptance_rate or 0.0)}**")
            _view(view, name)
    st.markdown(f"**{text('speedup.along')}**")
    _view(run_figures.along_the_text(trace), "along")
    lesson.kind(f"{text('speedup.kind.text')} {literal(origin_text(trace))}")
