"""The figures of the page "Before adopting it", from the figures of a measurement or the counters of a server."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import accumulate

from specdec import measure_tables, theory
from specdec.measure import Measurement
from specdec.measure_analysis import Analysis, Figures
from specdec.measure_records import AUTO, PLAIN, Arm
from specdec.texts import number, text
from specdec.ui import charts
from specdec.ui.charts import BONUS, KEPT, LEFT, P, Q, View
from specdec.vllm_import import ServerStats

# Drafters differ in colour, in dash and in symbol.
LOOKS = ((P, "solid", "circle"), (LEFT, "dash", "square"), (KEPT, "dot", "diamond"), (BONUS, "dashdot", "triangle-up"))


def _look(drafter: str, drafters: Sequence[str]) -> tuple[str, str, str]:
    return LOOKS[list(drafters).index(drafter) % len(LOOKS)] if drafter in drafters else (Q, "solid", "x")


def _whiskers(found: Sequence[Figures]) -> dict:
    values = [f.speedup for f in found]
    return {
        "type": "data",
        "symmetric": False,
        "array": [v.high - v.value for v in values],
        "arrayminus": [v.value - v.low for v in values],
        "thickness": 2,
        "width": 6,
    }


def by_kind(analysis: Analysis) -> View:
    """The best arm of each kind with its interval."""
    known = [v for v in analysis.verdicts if v.speedup is not None][::-1]
    names = [v.kind or text("adopt.all") for v in known]
    data = []
    words = {
        True: (text("said.word.use"), P, "circle"),
        False: (text("said.word.not"), LEFT, "x"),
        None: (text("said.word.open"), Q, "diamond"),
    }
    for use, (word, colour, symbol) in words.items():
        own = [v for v in known if v.use is use]
        if not own:
            continue
        made = charts.points(
            [v.speedup.value for v in own],
            [],
            word,
            colour,
            symbol=symbol,
            hover=[escape(f"{v.name}: {v.said()}") for v in own],
        )
        made["y"] = [escape(v.kind or text("adopt.all")) for v in own]
        made["error_x"] = {
            "type": "data",
            "symmetric": False,
            "array": [v.speedup.high - v.speedup.value for v in own],
            "arrayminus": [v.speedup.value - v.speedup.low for v in own],
            "thickness": 3,
            "width": 6,
            "color": colour,
        }
        data.append(made)
    most = max([1.2, *(v.speedup.high for v in known)])
    labels = [
        {
            # All of them beside the line, never across it, and on the side where a phone has room.
            "x": 1,
            "y": escape(v.kind or text("adopt.all")),
            "text": f"{number(v.speedup.value, '.2f')}× {escape(v.best.name)}",
            "showarrow": False,
            "xanchor": "left" if most > 1.7 else "right",
            "xshift": 5 if most > 1.7 else -5,
            "yshift": 17,
            "font": {"size": 13},
        }
        for v in known
    ]
    line = {"type": "line", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1, "line": {"dash": "dot", "width": 2, "color": LEFT}}
    figure = charts.figure(
        data,
        x=text("axis.speedup"),
        y="",
        height=120 + 44 * len(known),
        shapes=[line],
        notes=labels,
        xaxis={"range": [0, most * 1.08], "ticksuffix": "×"},
        yaxis={"categoryorder": "array", "categoryarray": [escape(n) for n in names]},
    )
    rows = [
        {
            "tasks": v.kind or text("adopt.all"),
            "verdict": words[v.use][0],
            "best arm": v.best.name,
            "speed-up (×)": v.speedup.value,
            "from": v.speedup.low,
            "to": v.speedup.high,
            "prompts": v.speedup.count,
        }
        for v in reversed(known)
    ]
    return View(figure, text("alt.kinds", told=" ".join(f"{v.name}: {v.said()}" for v in reversed(known))), rows)


def by_length(analysis: Analysis, kind: str) -> View:
    """Speed-up against γ, one line a drafter, with intervals; and what the formula says with each arm's own α, c and v."""
    found = [f for f in analysis.of(kind) if f.speedup is not None]
    drafters = list(dict.fromkeys(f.arm.drafter for f in found))
    longest = max((f.arm.draft_length for f in found), default=1)

    def place(arm: Arm) -> int:
        """ "auto" stands behind the longest draft."""
        return longest + 2 if arm.draft_length == AUTO else arm.draft_length

    data = []
    for drafter in drafters:
        own = sorted((f for f in found if f.arm.drafter == drafter), key=lambda f: place(f.arm))
        colour, dash, symbol = _look(drafter, drafters)
        made = charts.line([place(f.arm) for f in own], [f.speedup.value for f in own], escape(drafter), colour, width=3, dash=dash)
        made |= {
            "mode": "lines+markers",
            "marker": {"symbol": symbol, "size": 11, "color": colour},
            "error_y": {**_whiskers(own), "color": colour},
        }
        made |= {"hovertext": [f"{escape(f.arm.name)}: {number(f.speedup.value, '.2f')}×" for f in own], "hoverinfo": "text"}
        made.pop("hovertemplate")
        data.append(made)
    formula = [f for f in found if f.predicted_speedup is not None]
    if formula:
        data.append(
            charts.points(
                [place(f.arm) for f in formula],
                [f.predicted_speedup for f in formula],
                text("m.formula"),
                Q,
                symbol="line-ew-open",
                size=16,
                hover=[text("hover.by_formula", arm=escape(f.arm.name), speed=f.predicted_speedup) for f in formula],
            )
        )
        data[-1]["marker"]["line"] = {"width": 3, "color": Q}
    shape, words = charts.flat(1, text("axis.plain"))
    ticks = {place(f.arm): f.arm.length_name for f in sorted(found, key=lambda f: place(f.arm))} or {1: "1"}
    figure = charts.figure(
        data,
        x=text("axis.length"),
        y=text("axis.speedup"),
        shapes=[shape],
        notes=[words],
        xaxis={"tickvals": list(ticks), "ticktext": list(ticks.values()), "range": [min(ticks) - 0.6, max(ticks) + 0.6]},
        yaxis={"rangemode": "tozero", "ticksuffix": "×"},
    )
    told = text("alt.comma").join(f"{f.arm.name} {number(f.speedup.value, '.2f')}" for f in found)
    drafts = {row["arm"]: row for row in measure_tables.acceptance(analysis, kind)}
    rows = [row | drafts[row["arm"]] for row in measure_tables.speed(analysis, kind) if row["arm"] in drafts]
    return View(figure, text("alt.lengths", told=told), rows)


def shown_arms(analysis: Analysis, kind: str) -> list[Arm]:
    """Plain decoding and the best draft length of each drafter: as many as a picture bears."""
    found = [f for f in analysis.of(kind) if f.speedup is not None]
    best: dict[str, Figures] = {}
    for f in found:
        if f.arm.drafter not in best or f.speedup.value > best[f.arm.drafter].speedup.value:
            best[f.arm.drafter] = f
    return [PLAIN, *(f.arm for f in best.values())]


def waiting(analysis: Analysis, kind: str) -> View:
    """P50, P90 and P99 of the time between two visible tokens."""
    arms = shown_arms(analysis, kind)
    found = [f for f in analysis.of(kind) if f.arm in arms and f.gaps]
    drafters = [a.drafter for a in arms[1:]]
    data = []
    for f in found:
        colour, _, _ = _look(f.arm.drafter, drafters)
        values = [g * 1e3 for g in f.gaps]
        data.append(
            charts.bars(
                ["P50", "P90", "P99"],
                values,
                escape(f.arm.name),
                colour,
                hatched=not f.arm.drafter,
                hover=[f"{escape(f.arm.name)}: {number(v, '.1f')} ms" for v in values],
                text=[f"{v:.0f}" for v in values],
                textposition="outside",
                cliponaxis=False,
            )
        )
    figure = charts.figure(data, x=text("m.share_wait"), y=text("m.between"), yaxis={"rangemode": "tozero"})
    told = text("alt.semicolon").join(f"{f.arm.name} {', '.join(f'{g * 1e3:.0f}' for g in f.gaps)}" for f in found)
    return View(figure, text("alt.waiting", told=told), measure_tables.waiting(analysis, kind))


def bursts(measurement: Measurement, arms: Sequence[Arm], prompt: int) -> View:
    """One answer appearing: visible tokens against the seconds since the request, a step for every round."""
    drafters = [a.drafter for a in arms if a.drafter]
    data, rows = [], []
    for arm in arms:
        run = next((r for r in measurement.runs if r.arm == arm and r.prompt == prompt), None)
        if run is None:
            continue
        clock = list(accumulate(run.round_seconds, initial=run.seconds_prefill))
        tokens = list(accumulate(run.round_tokens, initial=0))
        colour, dash, _ = _look(arm.drafter, drafters)
        hover = text("hover.visible", seconds="%{x:.2f}", n="%{y}")
        made = charts.line(clock, tokens, escape(arm.name), colour, width=2.5, dash=dash, hover=hover)
        made["line"]["shape"] = "hv"
        data.append(made)
        rows += [{"arm": arm.name, "seconds": s, "visible tokens": n} for s, n in zip(clock, tokens, strict=True)]
    figure = charts.figure(
        data,
        x=text("m.since"),
        y=text("m.visible"),
        height=320,
        xaxis={"rangemode": "tozero"},
        yaxis={"rangemode": "tozero"},
    )
    return View(figure, text("alt.bursts"), rows)


def times(analysis: Analysis, kind: str) -> View:
    """Time to the first token and to the complete answer, every arm."""
    found = analysis.of(kind)[::-1]
    names = [escape(f.arm.name) for f in found]
    data = []
    for name, colour, hatched in (("first_token", BONUS, True), ("answer", P, False)):
        title = text("m.first") if name == "first_token" else text("m.complete")
        values = [getattr(f, name) for f in found]
        made = charts.bars(
            [v.value if v else None for v in values],
            names,
            title,
            colour,
            hatched=hatched,
            orientation="h",
            hover=[
                text("hover.range", arm=n, what=title, value=v.value, low=v.low, high=v.high) if v else ""
                for n, v in zip(names, values, strict=False)
            ],
        )
        data.append(made)
    figure = charts.figure(
        data, x=text("m.median"), y="", height=130 + 44 * len(found), xaxis={"rangemode": "tozero"}, barmode="group"
    )
    told = text("alt.comma").join(f"{f.arm.name} {number(f.answer.value, '.2f')}" for f in reversed(found) if f.answer)
    return View(figure, text("alt.times", told=told), measure_tables.speed(analysis, kind))


def time_split(analysis: Analysis, kind: str, tokens: dict[Arm, int]) -> View:
    """Where the time went, in milliseconds a token. tokens: made by each arm on this kind."""
    found = [f for f in analysis.of(kind) if tokens.get(f.arm)][::-1]
    parts = (
        ("whole.drafting", "seconds_draft", LEFT, True),
        ("whole.verifying", "seconds_verify", P, False),
        ("whole.judging", "seconds_judge", KEPT, False),
        ("fig.other", "seconds_other", Q, False),
    )
    data = []
    for words, name, colour, hatched in parts:
        title = text(words)
        values = [getattr(f, name) / tokens[f.arm] * 1e3 for f in found]
        arms = [escape(f.arm.name) for f in found]
        hover = [text("hover.per_token", arm=arm, part=title, value=v) for arm, v in zip(arms, values, strict=True)]
        data.append(charts.bars(values, arms, title, colour, hatched=hatched, orientation="h", hover=hover))
    figure = charts.figure(
        data,
        x=text("m.per_token"),
        y="",
        height=130 + 34 * len(found),
        barmode="stack",
        xaxis={"rangemode": "tozero"},
    )
    return View(figure, text("alt.split"), measure_tables.time_split(analysis, kind))


def loads(analysis: Analysis, price: float, *, cost: bool) -> View:
    """Throughput, or the cost of a million tokens, against the number of requests at once."""
    arms = sorted({one.arm for one in analysis.loads})
    drafters = [a.drafter for a in arms if a.drafter]
    data = []
    for arm in arms:
        own = [one for one in analysis.loads if one.arm == arm]
        colour, dash, symbol = _look(arm.drafter, drafters)
        values = [one.cost(price) if cost else one.tokens_per_second for one in own]
        hover = text("hover.load.cost" if cost else "hover.load", b="%{x}", value="%{y:.3g}")
        made = charts.line([one.at_once for one in own], values, escape(arm.name), colour, width=3, dash=dash, hover=hover)
        data.append(made | {"mode": "lines+markers", "marker": {"symbol": symbol, "size": 10, "color": colour}})
    counts = sorted({one.at_once for one in analysis.loads})
    figure = charts.figure(
        data,
        x=text("m.at_once"),
        y=text("m.cost") if cost else text("m.throughput"),
        height=340,
        xaxis={"type": "log", "tickvals": counts, "ticktext": [str(c) for c in counts]},
        yaxis={"rangemode": "tozero"},
    )
    told = text("alt.semicolon").join(
        text("alt.load.one", arm=one.arm.name, b=one.at_once, value=one.cost(price) if cost else one.tokens_per_second)
        for one in analysis.loads
    )
    return View(figure, text("alt.load.cost" if cost else "alt.load", told=told), measure_tables.loads(analysis, price))


def memory(analysis: Analysis) -> View:
    """Weights and caches of every arm, and the peak of the process as a mark."""
    rows = measure_tables.memory(analysis)
    names = [escape(r["arm"]) for r in rows]
    data = [
        charts.bars(names, [r["weights (MB)"] for r in rows], text("m.weights"), P),
        charts.bars(names, [r["keys and values (MB)"] for r in rows], text("m.values"), KEPT, hatched=True),
        charts.points([], [r["peak of the process (MB)"] for r in rows], text("m.peak"), LEFT, symbol="line-ew-open", size=22),
    ]
    data[2]["x"] = names
    data[2]["marker"]["line"] = {"width": 3, "color": LEFT}
    figure = charts.figure(data, x="", y=text("m.memory"), barmode="stack", yaxis={"rangemode": "tozero"})
    return View(figure, text("alt.memory"), rows)


# A server's counters


def accepted_per_round(stats: ServerStats) -> View:
    """Rounds by how many drafts they accepted, against what one α everywhere would give."""
    counts = stats.accepted_per_round
    shares = [c / stats.rounds for c in counts]
    x = list(range(len(counts)))
    wanted = list(theory.accepted_distribution(stats.acceptance_rate, len(counts) - 1))
    data = [
        charts.bars(
            x,
            shares,
            text("fig.counted"),
            P,
            hover=[text("hover.rounds", n=n, count=c, share=s) for n, c, s in zip(x, counts, shares, strict=False)],
        ),
        charts.points(x, wanted, text("fig.one_alpha", alpha=stats.acceptance_rate), LEFT),
    ]
    figure = charts.figure(
        data,
        x=text("m.accepted"),
        y=text("m.share_rounds"),
        xaxis={"dtick": 1},
        yaxis={"tickformat": ".0%", "rangemode": "tozero"},
    )
    rows = [
        {"accepted": n, "rounds": c, "share": s, "with one α": float(w)}
        for n, c, s, w in zip(x, counts, shares, wanted, strict=True)
    ]
    told = text("alt.comma").join(f"{n}: {number(s, '.2f')}" for n, s in zip(x, shares, strict=True))
    return View(figure, text("alt.rounds", told=told), rows)


def by_position(stats: ServerStats) -> View:
    """At each place of the draft: accepted of those judged there (what α means), and accepted of all rounds (what vLLM logs)."""
    before = (stats.rounds, *stats.reached)
    judged = [a / b if b else None for a, b in zip(stats.reached, before, strict=False)]
    of_all = [a / stats.rounds for a in stats.reached]
    x = list(range(1, len(stats.reached) + 1))
    data = [
        charts.bars(
            x,
            judged,
            text("m.of_judged"),
            P,
            hover=[text("hover.judged", n=n, share=v or 0.0) for n, v in zip(x, judged, strict=False)],
        ),
        charts.bars(
            x,
            of_all,
            text("m.of_all"),
            Q,
            hatched=True,
            hover=[text("hover.of_all", n=n, share=v) for n, v in zip(x, of_all, strict=False)],
        ),
    ]
    figure = charts.figure(
        data, x=text("places.x"), y=text("axis.share_accepted"), xaxis={"dtick": 1}, yaxis={"range": [0, 1]}, barmode="group"
    )
    rows = [
        {"place": n, "judged here": b, "accepted": a, "of those judged": v, "of all rounds": w}
        for n, a, b, v, w in zip(x, stats.reached, before, judged, of_all, strict=False)
    ]
    told = text("alt.comma").join(f"{n}: {number(v or 0, '.2f')}" for n, v in zip(x, judged, strict=True))
    return View(figure, text("alt.judged", told=told), rows)
