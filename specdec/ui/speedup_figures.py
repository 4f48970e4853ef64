"""The figures of the page "How much faster?" that come from three numbers: α, c, and what checking adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from specdec import metrics, theory
from specdec.texts import get, number, text
from specdec.trace import Trace
from specdec.ui import charts
from specdec.ui.charts import BONUS, EDGE, KEPT, LEFT, P, Q, View, escape
from specdec.ui.explain import origin_text
from specdec.ui.published import REPORTED, T5_RUNS

LONGEST = 24  # the longest draft on an axis
OTHERS = (0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What the sliders say. slope: what each drafted token adds to the checking pass, in plain steps: v(γ) = 1 + slope·γ."""

    alpha: float
    cost: float
    slope: float
    draft_length: int

    def verify(self, length):
        return 1 + self.slope * np.asarray(length, dtype=float)

    def speedup(self, length, alpha=None):
        return theory.speedup(self.alpha if alpha is None else alpha, length, self.cost, self.verify(length))

    @property
    def best(self) -> theory.BestDraftLength:
        return theory.best_draft_length(self.alpha, self.cost, self.verify)


def by_length(now: Inputs, measured: Mapping[str, Trace]) -> View:
    """Speed-up against γ: the α of the sliders thick, others thin, the papers' v = 1 dashed, measured runs as points."""
    x = np.arange(0, LONGEST + 1)
    names = {alpha: f"α = {number(alpha, '')}" for alpha in OTHERS}
    data = [
        charts.line(x, now.speedup(x, alpha), name, Q, width=1.2, hover=name + ", γ = %{x}: %{y:.2f}×", legend=False)
        for alpha, name in names.items()
    ]
    ideal = theory.speedup(now.alpha, x, now.cost)
    if now.slope:
        data.append(charts.line(x, ideal, text("fig.papers"), P, width=1.5, dash="dash"))
    data.append(charts.line(x, now.speedup(x), text("fig.formula_alpha", alpha=now.alpha), P, width=4, hover="γ = %{x}: %{y:.2f}×"))
    ends = [
        {
            "x": LONGEST,
            "y": float(now.speedup(LONGEST, a)),
            "text": f"α {number(a, 'g')}",
            "showarrow": False,
            "xanchor": "left",
            "font": {"size": 12},
        }
        for a in OTHERS
    ]
    found = _measured(measured)
    if found:
        data.append(
            charts.points(
                [f[1] for f in found],
                [f[2] for f in found],
                text("fig.recorded_own"),
                KEPT,
                hover=[f[3] for f in found],
            )
        )
    best = now.best
    if best.draft_length:
        data.append(charts.points([best.draft_length], [best.speedup], text("fig.best"), LEFT, symbol="star", size=17))
    shape, words = charts.flat(1, text("axis.plain"))
    notes = [*ends, words]
    if best.draft_length:
        notes.append(
            charts.note(
                best.draft_length, best.speedup, text("fig.best_note", n=best.draft_length, speed=best.speedup), ax=80, ay=-40
            )
        )
    top = max(2.0, float(np.max(now.speedup(x, 0.9))), float(np.max(ideal)), *(f[2] for f in found)) * 1.08
    figure = charts.figure(
        data,
        x=text("axis.length"),
        y=text("axis.speedup"),
        shapes=[shape],
        notes=notes,
        xaxis={"range": [0, LONGEST + 1.4], "dtick": 2},
        yaxis={"range": [0, top], "ticksuffix": "×"},
    )
    rows = [
        {
            "γ": int(n),
            **{f"α {a}": float(now.speedup(n, a)) for a in OTHERS},
            f"chosen α {now.alpha:g}": float(now.speedup(n)),
            "v = 1": float(theory.speedup(now.alpha, n, now.cost)),
        }
        for n in x
    ]
    ends_at = {"first": float(now.speedup(1)), "last": float(now.speedup(LONGEST)), "longest": LONGEST}
    alt = text("alt.length", alpha=now.alpha, cost=now.cost, best=best.draft_length, speed=best.speedup, **ends_at)
    return View(figure, alt, rows)


def run_hover(name: str, trace: Trace, s: metrics.Summary) -> str:
    """A run whose speed-up and α were measured: its name, its figures, and where and when they were measured."""
    values = {"speed": s.speedup, "alpha": s.acceptance_rate, "cost": s.cost_coefficient or 0.0, "ratio": s.verify_ratio or 0.0}
    return f"<b>{escape(name, longest=None)}</b><br>{text('hover.run', **values)}<br>{escape(origin_text(trace), longest=None)}"


def _measured(runs: Mapping[str, Trace]) -> list[tuple[str, float, float, str, float]]:
    """name, γ, measured speed-up, hover, α of the runs whose plain step was measured."""
    found = []
    for name, trace in runs.items():
        s = metrics.summary(trace)
        if s.speedup is None or s.acceptance_rate is None:
            continue
        found.append((name, trace.settings.draft_length, s.speedup, run_hover(name, trace, s), s.acceptance_rate))
    return found


def alpha_by_length(now: Inputs, measured: Mapping[str, Trace]) -> View:
    """Map of the speed-up over α and γ, with break-even and the ridge of the best γ."""
    lengths, alphas = np.arange(1, 17), np.linspace(0, 1, 51)
    z = now.speedup(lengths[None, :], alphas[:, None])
    ridge = theory.best_draft_length(alphas, now.cost, now.verify, longest=16).draft_length
    data = charts.heat(lengths, alphas, z, label=text("fig.speedup"), hover="γ %{x}, α %{y:.2f}: %{customdata:.2f}×")
    inside = ridge > 0
    data.append(charts.line(ridge[inside], alphas[inside], text("fig.ridge"), BONUS, width=4))
    data[-1]["line"]["shape"] = "vh"
    data.append(charts.points([now.draft_length], [now.alpha], text("fig.here"), LEFT, symbol="x", size=14))
    found = _measured(measured)
    if found:
        data.append(
            charts.points([f[1] for f in found], [f[4] for f in found], text("fig.recorded"), KEPT, hover=[f[3] for f in found])
        )
    figure = charts.figure(
        data,
        x=text("axis.length"),
        y=text("axis.alpha"),
        height=440,
        xaxis={"range": [0.5, 16.5], "dtick": 1},
        yaxis={"range": [0, 1]},
    )
    rows = [{"α": float(a), **{f"γ {n}": float(v) for n, v in zip(lengths, row)}} for a, row in zip(alphas[::5], z[::5])]
    return View(figure, text("alt.map", cost=now.cost, speed=float(now.speedup(now.draft_length))), rows)


@lru_cache(maxsize=64)
def _best_map(slope: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """c [41], α [41], speed-up at the best γ [α, c]. Takes a tenth of a second, and only the cost of checking changes it."""
    axis = np.linspace(0, 1, 41)
    z = theory.best_draft_length(axis[:, None], axis[None, :], lambda n: 1 + slope * n, longest=LONGEST).speedup
    return axis, axis, z


def alpha_by_cost(now: Inputs, measured: Mapping[str, Trace]) -> View:
    """Map of the best speed-up over c and α: below the line no γ pays."""
    costs, alphas, z = _best_map(now.slope)
    data = charts.heat(
        costs, alphas, z, label=text("fig.speedup_best"), hover="c %{x:.2f}, α %{y:.2f}: %{customdata:.2f}×", edge=False
    )
    # Where no γ pays the best is γ = 0 and exactly 1, a plateau. Its edge is where γ = 1 breaks even: each further draft brings
    # less than the first and costs as much.
    edge = theory.break_even_acceptance(1, costs, float(now.verify(1)))
    data.append(charts.line(costs, edge, text("fig.edge"), EDGE, width=3, dash="dash"))
    data.append(charts.points([now.cost], [now.alpha], text("fig.here"), LEFT, symbol="x", size=14))
    figures = {name: metrics.summary(t) for name, t in measured.items()}
    known = {name: s for name, s in figures.items() if s.cost_coefficient is not None and s.acceptance_rate is not None}
    if known:
        hover = [
            f"<b>{escape(n, longest=None)}</b><br>"
            + text("hover.run.map", alpha=s.acceptance_rate, cost=s.cost_coefficient, speed=s.speedup or 0.0)
            for n, s in known.items()
        ]
        values = list(known.values())
        data.append(
            charts.points(
                [s.cost_coefficient for s in values], [s.acceptance_rate for s in values], text("fig.recorded"), KEPT, hover=hover
            )
        )
    figure = charts.figure(
        data,
        x=text("axis.cost"),
        y=text("axis.alpha"),
        height=440,
        xaxis={"range": [0, 1]},
        yaxis={"range": [0, 1]},
    )
    rows = [
        {"α": float(a), **{f"c {c:.1f}": float(v) for c, v in zip(costs[::4], row[::4])}} for a, row in zip(alphas[::4], z[::4])
    ]
    return View(figure, text("alt.map.cost"), rows)


def tokens_and_cost(now: Inputs) -> View:
    """What a round brings and what it takes, both against γ; and the extra arithmetic."""
    x = np.arange(0, LONGEST + 1)
    tokens = theory.expected_tokens(now.alpha, x)
    cost = theory.round_cost(x, now.cost, now.verify(x))
    work = theory.operations_factor(now.alpha, x, now.cost)
    at = {"n": "%{x}", "value": "%{y:.2f}"}  # places that Plotly fills in
    data = [
        charts.line(x, tokens, text("fig.brings"), KEPT, width=4, hover=text("hover.brings", **at)),
        charts.line(x, cost, text("fig.takes"), LEFT, width=4, dash="dash", hover=text("hover.takes", **at)),
        charts.line(x, work, text("fig.work"), Q, dash="dot", hover=text("hover.work", **at)),
    ]
    limit = 1 / (1 - now.alpha) if now.alpha < 1 else float("inf")
    figure = charts.figure(
        data,
        x=text("axis.length"),
        y=text("axis.balance"),
        xaxis={"range": [0, LONGEST], "dtick": 2},
        yaxis={"rangemode": "tozero"},
    )
    rows = [
        {
            "γ": int(n),
            "tokens a round": float(e),
            "plain steps a round": float(s),
            "speed-up": float(e / s),
            "arithmetic per token": float(w),
        }
        for n, e, s, w in zip(x, np.atleast_1d(tokens), np.atleast_1d(cost), np.atleast_1d(work))
    ]
    return View(figure, text("alt.balance", limit=limit), rows)


def published() -> View:
    """Speed-ups that others have reported, longest bar first."""
    rows = sorted(REPORTED, key=lambda r: r.speedup)
    rows_t5 = [r for r in T5_RUNS if (r.task, r.temperature) == ("English–German", 0)]
    known = get("published.names")
    names = [known[r.what] for r in rows] + [text("published.t5", draft=r.draft, alpha=r.alpha) for r in rows_t5]
    values = [r.speedup for r in rows] + [r.speedup for r in rows_t5]
    notes = [r.source for r in rows] + ["Leviathan et al. 2023, Table 2"] * len(rows_t5)
    order = sorted(range(len(names)), key=lambda i: values[i])
    data = [
        charts.bars(
            [values[i] for i in order],
            [names[i] for i in order],
            text("fig.reported"),
            P,
            orientation="h",
            hover=[f"{names[i]}: {number(values[i], '.2f')}×<br>{notes[i]}" for i in order],
            text=[f"{number(values[i], '.2f')}×" for i in order],
            textposition="auto",
        )
    ]
    line = {
        "type": "line",
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "x0": 1,
        "x1": 1,
        "line": {"dash": "dot", "width": 2, "color": LEFT},
    }
    figure = charts.figure(
        data,
        x=text("axis.speedup"),
        y="",
        height=520,
        shapes=[line],
        legend=False,
        xaxis={"ticksuffix": "×"},
        yaxis={"tickfont": {"size": 13}},
    )
    table = [{"what": names[i], "speed-up": values[i], "source": notes[i]} for i in reversed(order)]
    told = charts.sentences([f"{names[i]}: {number(values[i], '')}" for i in reversed(order)])
    return View(figure, text("alt.published", told=told), table)
