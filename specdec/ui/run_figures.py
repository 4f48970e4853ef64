"""Figures of one recorded run as a whole: every other draft length, acceptance by place, by round and along the text."""

from __future__ import annotations

from collections.abc import Sequence

from specdec import metrics, replay, theory
from specdec.texts import number, text
from specdec.trace import Trace
from specdec.ui import charts
from specdec.ui.charts import KEPT, LEFT, P, Q, View, escape
from specdec.ui.explain import visible


def one_run_every_length(
    trace: Trace,
    found: tuple[replay.Replays, ...],
    costs: replay.Costs | None,
    measured_now: Sequence[tuple[int, metrics.Summary]] = (),
) -> View:
    """The speed-up (or tokens per round, where no time is known) of the same text with every other γ.

    measured_now: γ and figures of runs of the same text that were measured to compare.
    """
    figures = metrics.summary(trace)
    x = [r.likely.draft_length for r in found]

    def value(one: replay.Replay) -> float:
        return one.speedup(costs) if costs else one.tokens_per_round

    likely, low, high = ([value(getattr(r, which)) for r in found] for which in ("likely", "low", "high"))

    def said(digits: str) -> str:
        return f"{digits}×" if costs else text("hover.per_round", value=digits)

    formula = [theory.expected_tokens(figures.acceptance_rate, n) for n in x]
    if costs:
        formula = [e / costs.of(rounds=1, drafted=n) for e, n in zip(formula, x)]
    band = {
        "type": "scatter",
        "mode": "lines",
        "x": [*x, *reversed(x)],
        "y": charts.numbers([*high, *reversed(low)]),
        "fill": "toself",
        "fillcolor": "rgba(0,114,178,0.18)",
        "line": {"width": 0},
        "hoverinfo": "skip",
        "name": text("fig.open"),
    }
    data = [
        band,
        charts.line(
            x,
            formula,
            text("fig.everywhere", alpha=figures.acceptance_rate),
            Q,
            dash="dash",
            hover=text("hover.formula", n="%{x}", value=said("%{y:.2f}")),
        ),
        charts.line(x, likely, text("fig.replayed"), P, width=4, hover="γ %{x}: " + said("%{y:.2f}")),
    ]
    measured = figures.speedup if costs else figures.mean_acceptance_length
    if measured is not None:
        data.append(
            charts.points(
                [metrics.usual_draft_length(trace)],
                [measured],
                text("fig.measured"),
                KEPT,
                hover=[text("hover.measured", value=said(number(measured, ".2f")))],
            )
        )
    again = [(n, s.speedup if costs else s.mean_acceptance_length) for n, s in measured_now]
    again = [(n, v) for n, v in again if v is not None]
    if again:
        hover = [text("hover.now", n=n, value=said(number(v, ".2f"))) for n, v in again]
        data.append(
            charts.points([n for n, _ in again], [v for _, v in again], text("fig.now"), LEFT, symbol="circle", hover=hover)
        )
    shape, words = charts.flat(1, text("axis.plain") if costs else text("axis.plain_one"))
    figure = charts.figure(
        data,
        x=text("axis.length"),
        y=text("axis.speedup") if costs else text("axis.per_round"),
        shapes=[shape],
        notes=[words],
        xaxis={"range": [0.5, 16.5], "dtick": 1},
        yaxis={"rangemode": "tozero", "ticksuffix": "×" if costs else ""},
    )
    rows = [
        {"γ": n, "likely": a, "at least": b, "at most": c, "formula": f, "exact": "yes" if r.exact else "within bounds"}
        for n, a, b, c, f, r in zip(x, likely, low, high, formula, found)
    ]
    best = max(range(len(x)), key=likely.__getitem__)
    return View(figure, text("alt.replay", n=x[best], value=said(number(likely[best], ".2f"))), rows)


def acceptance_by_place(trace: Trace) -> View:
    found = metrics.acceptance_by_position(trace)
    alpha = metrics.summary(trace).acceptance_rate or 0.0
    x = [f"{p.position}." for p in found]
    hover = [text("places.hover", n=p.position, accepted=p.accepted, judged=p.judged, drafted=p.drafted) for p in found]
    data = [charts.bars(x, charts.numbers([p.rate for p in found]), text("places.name"), KEPT, hover=hover)]
    shape, _ = charts.flat(alpha, "")
    figure = charts.figure(
        data,
        x=text("places.x"),
        y=text("places.name"),
        height=300,
        shapes=[shape],
        legend=False,
        yaxis={"range": [0, 1.05]},
        xaxis={"type": "category"},
    )
    rows = [{"place": p.position, "judged": p.judged, "accepted": p.accepted, "rate": p.rate, "drafted": p.drafted} for p in found]
    return View(figure, text("places.alt") + " " + " ".join(hover), rows)


def accepted_per_round(trace: Trace) -> View:
    """How many drafts a round kept, beside what independent acceptance would give (capped geometric)."""
    length = max(metrics.draft_lengths(trace).items(), key=lambda item: item[1] if item[0] else 0)[0]
    counts = metrics.accepted_per_round(trace, draft_length=length)
    rounds = max(1, sum(counts))
    rounds_of = [r for r in trace.rounds if len(r.drafts) == length]
    judged = max(1, sum(r.judged for r in rounds_of))
    alpha = sum(r.accepted for r in rounds_of) / judged
    wanted = theory.accepted_distribution(alpha, length)
    x = [str(n) for n in range(length + 1)]
    data = [
        charts.bars(
            x,
            [c / rounds for c in counts],
            text("fig.run"),
            P,
            hover=[text("hover.kept", n=n, count=c, rounds=rounds) for n, c in zip(x, counts)],
        ),
        charts.bars(
            x,
            charts.numbers(wanted),
            text("fig.independent"),
            Q,
            hatched=True,
            hover=[text("hover.expected", n=n, value=float(w)) for n, w in zip(x, wanted)],
        ),
    ]
    figure = charts.figure(
        data,
        x=text("axis.accepted_of", n=length),
        y=text("axis.share_rounds"),
        height=300,
        barmode="group",
        yaxis={"rangemode": "tozero"},
        xaxis={"type": "category"},
    )
    rows = [{"accepted": int(n), "rounds": c, "share": c / rounds, "independent": float(w)} for n, c, w in zip(x, counts, wanted)]
    return View(figure, text("alt.kept"), rows)


def along_the_text(trace: Trace, *, window: int = 12) -> View:
    """Each judged draft as a mark at its place in the output, and the acceptance of the last `window` judged drafts."""
    place, verdicts = 0, []
    for round_ in trace.rounds:
        for draft in round_.drafts:
            if draft.status != "discarded":
                verdicts.append((place, draft.status == "accepted", draft.text))
                place += 1
        place += round_.outcome.kind == "bonus"
    x = [v[0] + 1 for v in verdicts]
    smooth = [sum(v[1] for v in verdicts[max(0, i - window + 1) : i + 1]) / min(i + 1, window) for i in range(len(verdicts))]
    data = [charts.line(x, smooth, text("fig.last", n=window), P, width=3)]
    for accepted, name, colour, symbol in (
        (True, text("explain.latex.accepted"), KEPT, "circle"),
        (False, text("explain.latex.rejected"), LEFT, "x"),
    ):
        chosen = [v for v in verdicts if v[1] is accepted]
        hover = [text("hover.along", n=v[0] + 1, token=escape(v[2]), verdict=name) for v in chosen]
        data.append(
            charts.points(
                [v[0] + 1 for v in chosen],
                [1.06 if accepted else -0.06] * len(chosen),
                name,
                colour,
                symbol=symbol,
                size=8,
                hover=hover,
            )
        )
    figure = charts.figure(
        data, x=text("axis.place"), y=text("axis.share_accepted"), height=300, yaxis={"range": [-0.14, 1.14], "dtick": 0.25}
    )
    rows = [
        {"token": a, "text": visible(v[2]), "verdict": "accepted" if v[1] else "rejected", "share of last": s}
        for a, v, s in zip(x, verdicts, smooth)
    ]
    return View(figure, text("alt.along", accepted=sum(v[1] for v in verdicts), judged=len(verdicts)), rows)
