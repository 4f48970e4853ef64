"""The figures of the page "How much faster?" that come from three numbers: α, c, and what checking adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from specdec import metrics, theory
from specdec.texts import text
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
    data = [
        charts.line(
            x, now.speedup(x, alpha), f"α = {alpha}", Q, width=1.2, hover=f"α = {alpha}, γ = %{{x}}: %{{y:.2f}}×", legend=False
        )
        for alpha in OTHERS
    ]
    ideal = theory.speedup(now.alpha, x, now.cost)
    if now.slope:
        data.append(charts.line(x, ideal, text("fig.papers"), P, width=1.5, dash="dash"))
    data.append(charts.line(x, now.speedup(x), text("fig.formula_alpha", alpha=now.alpha), P, width=4, hover="γ = %{x}: %{y:.2f}×"))
    ends = [
        {
            "x": LONGEST,
            "y": float(now.speedup(LONGEST, a)),
            "text": f"α {a}",
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
    alt = (
        f"Speed-up by the formula against the draft length, for α {now.alpha:g}, c {now.cost:g}. It is 1 at γ 0, "
        f"{float(now.speedup(1)):.2f} at γ 1, best at γ {best.draft_length} with {best.speedup:.2f}, "
        f"and {float(now.speedup(LONGEST)):.2f} at γ {LONGEST}."
    )
    return View(figure, alt, rows)


def _measured(runs: Mapping[str, Trace]) -> list[tuple[str, float, float, str, float]]:
    """name, γ, measured speed-up, hover, α of the runs whose plain step was measured."""
    found = []
    for name, trace in runs.items():
        s = metrics.summary(trace)
        if s.speedup is None or s.acceptance_rate is None:
            continue
        hover = (
            f"<b>{escape(name)}</b><br>measured: {s.speedup:.2f}×, α {s.acceptance_rate:.2f}, c {s.cost_coefficient or 0:.2f}, "
            f"v {s.verify_ratio or 0:.2f}<br>{escape(origin_text(trace))}"
        )
        found.append((name, trace.settings.draft_length, s.speedup, hover, s.acceptance_rate))
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
    here = float(now.speedup(now.draft_length))
    alt = f"Map of the formula's speed-up over draft length and acceptance rate at c {now.cost:g}; at the sliders {here:.2f}."
    return View(figure, alt, rows)


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
            f"<b>{escape(n)}</b><br>α {s.acceptance_rate:.2f}, c {s.cost_coefficient:.2f}, measured {s.speedup or 0:.2f}×"
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
    return View(
        figure,
        "Map of the formula's speed-up at the best draft length, over cost and acceptance rate. It pays above the line.",
        rows,
    )


def tokens_and_cost(now: Inputs) -> View:
    """What a round brings and what it takes, both against γ; and the extra arithmetic."""
    x = np.arange(0, LONGEST + 1)
    tokens = theory.expected_tokens(now.alpha, x)
    cost = theory.round_cost(x, now.cost, now.verify(x))
    work = theory.operations_factor(now.alpha, x, now.cost)
    data = [
        charts.line(x, tokens, text("fig.brings"), KEPT, width=4, hover="γ = %{x}: %{y:.2f} tokens"),
        charts.line(x, cost, text("fig.takes"), LEFT, width=4, dash="dash", hover="γ = %{x}: %{y:.2f} plain steps"),
        charts.line(x, work, text("fig.work"), Q, dash="dot", hover="γ = %{x}: %{y:.2f} times"),
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
    alt = f"Tokens per round level off at {limit:.2f} while the time of a round grows in a straight line with the draft length."
    return View(figure, alt, rows)


def published() -> View:
    """Speed-ups that others have reported, longest bar first."""
    rows = sorted(REPORTED, key=lambda r: r.speedup)
    rows_t5 = [r for r in T5_RUNS if (r.task, r.temperature) == ("English–German", 0)]
    names = [r.what for r in rows] + [f"T5-XXL 11B + {r.draft}, translating (α {r.alpha})" for r in rows_t5]
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
            hover=[f"{names[i]}: {values[i]:.2f}×<br>{notes[i]}" for i in order],
            text=[f"{values[i]:.2f}×" for i in order],
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
    return View(figure, "Published speed-ups. " + " ".join(f"{names[i]}: {values[i]}." for i in reversed(order)), table)
