"""The figures of the page "When does the extra model not help?": poor draft, costly draft, busy server, memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from specdec import metrics, theory
from specdec.roofline import Device, Load, Pairing, memory, most_requests
from specdec.texts import number, text
from specdec.trace import Trace
from specdec.ui import charts
from specdec.ui.charts import BONUS, KEPT, LEFT, P, Q, View
from specdec.ui.published import T5_RUNS
from specdec.ui.speedup_figures import Inputs, run_hover

REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
GIGA = 1e9


def measured(runs: Mapping[str, Trace]) -> list[tuple[str, Trace, metrics.Summary]]:
    """The runs whose speed-up was measured."""
    found = [(name, trace, metrics.summary(trace)) for name, trace in runs.items()]
    return [f for f in found if f[2].speedup is not None and f[2].acceptance_rate is not None and f[2].cost_coefficient is not None]


def poor_draft(now: Inputs, runs: Mapping[str, Trace]) -> View:
    """Speed-up against α at the γ, c and checking cost of the sliders; recorded runs as points at their own α."""
    x = np.linspace(0, 1, 101)
    chosen, here = now.speedup(now.draft_length, x), float(now.speedup(now.draft_length))
    best = theory.best_draft_length(x, now.cost, now.verify).speedup
    data = [
        charts.line(x, best, text("fig.best_alpha"), Q, dash="dash", hover="α %{x:.2f}: %{y:.2f}×"),
        charts.line(x, chosen, text("fig.formula_gamma", n=now.draft_length), P, width=4, hover="α %{x:.2f}: %{y:.2f}×"),
        charts.points([now.alpha], [here], text("fig.here"), LEFT, symbol="x", size=14),
    ]
    top = min(8.0, max(3.0, float(now.speedup(now.draft_length, 1.0)) * 1.05))
    found = measured(runs)
    if found:
        data.append(_recorded(found, [s.acceptance_rate for *_, s in found], width=1.02, height=top, mark=(now.alpha, here)))
    shape, words = charts.flat(1, text("axis.plain"), right=True)
    figure = charts.figure(
        data,
        x=text("axis.alpha"),
        y=text("axis.speedup"),
        shapes=[shape],
        notes=[words],
        xaxis={"range": [0, 1.02]},
        yaxis={"range": [0, top], "ticksuffix": "×"},
    )
    rows = [{"α": float(a), "speed-up": float(s), "at the best γ": float(b)} for a, s, b in zip(x[::5], chosen[::5], best[::5])]
    rows += [{"α": s.acceptance_rate, "speed-up": s.speedup, "at the best γ": f"measured: {name}"} for name, _, s in found]
    return View(figure, text("alt.poor", n=now.draft_length, cost=now.cost), rows)


def _recorded(found, x: list[float], *, width: float, height: float, mark: tuple[float, float]) -> charts.Figure:
    """Speed-ups of recorded runs at their own x, each with its drafter's name where there is room beside the sliders' `mark`."""
    names, speedups = [trace.settings.drafter for _, trace, _ in found], [s.speedup for *_, s in found]
    places = charts.free_places(x, speedups, names, width=width, height=height, marks=[mark])
    hover = [run_hover(*f) for f in found]
    return charts.points(x, speedups, text("fig.recorded_measured"), KEPT, hover=hover, labels=names, places=places)


def costly_draft(now: Inputs, runs: Mapping[str, Trace]) -> View:
    """Speed-up against c at the α and γ of the sliders, with the c of recorded runs marked."""
    x = np.linspace(0, 1, 101)
    chosen = theory.speedup(now.alpha, now.draft_length, x, float(now.verify(now.draft_length)))
    best, here = theory.best_draft_length(now.alpha, x, now.verify).speedup, float(now.speedup(now.draft_length))
    data = [
        charts.line(x, best, text("fig.best_c"), Q, dash="dash", hover="c %{x:.2f}: %{y:.2f}×"),
        charts.line(x, chosen, text("fig.formula_gamma", n=now.draft_length), P, width=4, hover="c %{x:.2f}: %{y:.2f}×"),
        charts.points([now.cost], [here], text("fig.here"), LEFT, symbol="x", size=14),
    ]
    found = measured(runs)
    top = max(2.0, float(chosen[0]), float(best[0]), *(s.speedup for *_, s in found)) * 1.1
    if found:
        data.append(_recorded(found, [s.cost_coefficient for *_, s in found], width=1.0, height=top, mark=(now.cost, here)))
    shape, words = charts.flat(1, text("axis.plain"))
    figure = charts.figure(
        data,
        x=text("axis.cost"),
        y=text("axis.speedup"),
        shapes=[shape],
        notes=[words],
        xaxis={"range": [-0.02, 1]},
        yaxis={"range": [0, top], "ticksuffix": "×"},
    )
    rows = [{"c": float(c), "speed-up": float(s), "at the best γ": float(b)} for c, s, b in zip(x[::5], chosen[::5], best[::5])]
    return View(figure, text("alt.costly", alpha=now.alpha, n=now.draft_length), rows)


def t5_paradox() -> View:
    """T5-XXL with three drafts: the one that agrees most is the slowest."""
    data, rows = [], []
    colours = {("English–German", 0): P, ("English–German", 1): KEPT, ("CNN/DailyMail", 0): LEFT, ("CNN/DailyMail", 1): BONUS}
    for (task, temperature), colour in colours.items():
        group = [r for r in T5_RUNS if (r.task, r.temperature) == (task, temperature)]
        name = text("fig.task", task=task, temperature=temperature)
        line = charts.line([r.alpha for r in group], [r.speedup for r in group], name, colour, width=2)
        line |= {
            "mode": "lines+markers+text",
            "marker": {"size": [9, 13, 18], "color": colour},
            "text": [r.draft.removeprefix("T5-") for r in group],
            "textposition": "top center",
            "hovertext": [
                text("hover.t5", draft=r.draft, group=name, alpha=r.alpha, n=r.draft_length, speed=r.speedup) for r in group
            ],
            "hoverinfo": "text",
        }
        line.pop("hovertemplate")
        data.append(line)
        rows += [
            {
                "task": r.task,
                "temperature": r.temperature,
                "draft": r.draft,
                "α": r.alpha,
                "γ": r.draft_length,
                "speed-up": r.speedup,
            }
            for r in group
        ]
    figure = charts.figure(
        data,
        x=text("axis.alpha"),
        y=text("axis.measured"),
        xaxis={"range": [0.48, 0.87]},
        yaxis={"range": [1, 3.8], "ticksuffix": "×"},
    )
    told = [f"{r['draft']} α {number(r['α'], '')} {number(r['speed-up'], '')}×" for r in rows]
    return View(figure, text("alt.t5", told=text("alt.semicolon").join(told)), rows)


def busy_server(load: Load, *, alpha: float, draft_length: int) -> View:
    """v, c and the speed-up that remains, against the number of requests served at once."""
    loads = [replace(load, sequences=b) for b in REQUESTS]
    ratio = [one.verify_ratio(draft_length) for one in loads]
    speed = [one.speedup(alpha, draft_length) for one in loads]
    best = [one.best(alpha) for one in loads]
    data = [
        charts.line(
            REQUESTS,
            ratio,
            text("fig.v", n=draft_length + 1),
            LEFT,
            dash="dash",
            hover="B = %{x}: v = %{y:.2f}",
        ),
        charts.line(REQUESTS, [b.speedup for b in best], text("fig.speedup_best"), Q, dash="dot", hover="B = %{x}: %{y:.2f}×"),
        charts.line(REQUESTS, speed, text("fig.speedup_gamma", n=draft_length), P, width=4, hover="B = %{x}: %{y:.2f}×"),
    ]
    for trace in data:
        trace["mode"] = "lines+markers"
    data.append(
        charts.points([load.sequences], [load.speedup(alpha, draft_length)], text("fig.here_one"), LEFT, symbol="x", size=14)
    )
    full = most_requests(load.pairing, load.device, context=load.context, bytes_per_weight=load.bytes_per_weight, drafting=True)
    if full < REQUESTS[-1]:
        top = max(2.0, *ratio, *speed)
        name = text("fig.full", n=full) if full else text("fig.no_fit")
        data.append(charts.line([max(full, 1)] * 2, [0, top], name, BONUS, width=3, dash="longdash", hover=name))
    shape, words = charts.flat(1, text("axis.plain"))
    figure = charts.figure(
        data,
        x=text("axis.requests_b"),
        y=text("axis.speedup_v"),
        shapes=[shape],
        notes=[words],
        xaxis={"type": "log", "tickvals": list(REQUESTS), "ticktext": [str(b) for b in REQUESTS]},
        yaxis={"rangemode": "tozero"},
    )
    rows = [
        {
            "B": b,
            "v": v,
            "c": one.cost_coefficient,
            f"speed-up γ {draft_length}": s,
            "best γ": g.draft_length,
            "speed-up at the best γ": g.speedup,
        }
        for b, v, one, s, g in zip(REQUESTS, ratio, loads, speed, best)
    ]
    told = " ".join(text("alt.roofline.one", b=b, ratio=float(v), speed=float(s)) for b, v, s in zip(REQUESTS, ratio, speed))
    return View(figure, text("alt.roofline", device=load.device.name, pairing=load.pairing.name, told=told), rows)


def memory_use(pairing: Pairing, device: Device, *, requests: int, context: int, bytes_per_weight: float) -> View:
    """Weights and caches of target and draft against the memory of the device, for some numbers of requests."""
    counts = sorted({1, 4, 16, 64, 256, requests})
    needs = [memory(pairing, requests=n, context=context, bytes_per_weight=bytes_per_weight) for n in counts]
    x = [str(n) for n in counts]
    parts = (
        ("fig.target_weights", "target_weights", P, False),
        ("fig.target_caches", "target_cache", "#56B4E9", False),
        ("fig.draft_weights", "draft_weights", LEFT, True),
        ("fig.draft_caches", "draft_cache", "#E69F00", True),
    )
    data = []
    for title, field, colour, hatched in parts:
        name = text(title)
        values = [getattr(n, field) / GIGA for n in needs]
        hover = [text("hover.memory", n=c, part=name, size=v) for c, v in zip(x, values)]
        data.append(charts.bars(x, charts.numbers(values), name, colour, hatched=hatched, hover=hover))
    shape, words = charts.flat(device.memory / GIGA, f"{device.name}: {device.memory / GIGA:.0f} GB")
    words |= {"yanchor": "bottom"}
    top = max(device.memory * 1.25, min(needs[-1].total, device.memory * 3)) / GIGA
    figure = charts.figure(
        data,
        x=text("axis.requests"),
        y=text("axis.memory"),
        barmode="stack",
        shapes=[shape],
        notes=[words],
        xaxis={"type": "category"},
        yaxis={"range": [0, top]},
    )
    rows = [
        {
            "requests": c,
            **{f"{text(name)} (GB)": getattr(n, field) / GIGA for name, field, *_ in parts},
            "without draft (GB)": n.plain / GIGA,
            "with draft (GB)": n.total / GIGA,
        }
        for c, n in zip(counts, needs)
    ]
    fit = [most_requests(pairing, device, context=context, bytes_per_weight=bytes_per_weight, drafting=d) for d in (False, True)]
    return View(figure, text("alt.memory.fit", device=device.name, without=fit[0], with_=fit[1]), rows)
