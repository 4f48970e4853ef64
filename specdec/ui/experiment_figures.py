"""Figures of what was measured by experiments: batched passes, drafters down to a random one, laws, number formats."""

from __future__ import annotations

from specdec.busy import BusyFinding
from specdec.law import Comparison
from specdec.precision import Text
from specdec.texts import localised, text
from specdec.ui import charts
from specdec.ui.charts import BONUS, KEPT, LEFT, P, Q, View
from specdec.ui.explain import visible

V_COLOURS = ("#E69F00", LEFT, "#7a3e00")


def busy_measured(found: BusyFinding, *, alpha: float) -> View:
    """v(γ, B) as measured, and the speed-up of the best measured γ that remains, at the α of the passes and of the slider."""
    counts = [at.at_once for at in found.passes]
    data = []
    for index, length in enumerate(found.draft_lengths):
        ratios = [at.ratios[index] for at in found.passes]
        line = charts.line(
            counts, ratios, f"v, γ = {length}", V_COLOURS[index % 3], dash="dash", hover=f"B = %{{x}}, γ = {length}: v = %{{y:.2f}}"
        )
        data.append(line | {"mode": "lines+markers"})
    best = [found.best(at) for at in found.passes]
    other = [found.best(at, alpha=alpha) for at in found.passes]
    hover = [text("hover.busy", b=b, speed=speed, n=n) for b, (n, speed) in zip(counts, other, strict=True)]
    line = charts.line(counts, [s for _, s in other], text("fig.slider_alpha", alpha=alpha), Q, dash="dot")
    data.append(line | {"mode": "lines+markers", "hovertext": hover, "hoverinfo": "text", "hovertemplate": None})
    hover = [text("hover.busy", b=b, speed=speed, n=n) for b, (n, speed) in zip(counts, best, strict=True)]
    line = charts.line(counts, [s for _, s in best], text("fig.measured_alpha", alpha=found.alpha), P, width=4)
    spread = [found.spread(at, length) for at, (length, _) in zip(found.passes, best, strict=True)]
    bars = {
        "type": "data",
        "symmetric": False,
        "array": [max(0.0, high - s) for (_, high), (_, s) in zip(spread, best, strict=True)],
        "arrayminus": [max(0.0, s - low) for (low, _), (_, s) in zip(spread, best, strict=True)],
    }
    data.append(line | {"mode": "lines+markers", "hovertext": hover, "hoverinfo": "text", "hovertemplate": None, "error_y": bars})
    stops = found.stops_at()
    if stops is not None:
        speed = dict(zip(counts, best, strict=True))[stops][1]
        data.append(charts.points([stops], [speed], text("fig.stops"), BONUS, symbol="x", size=15))
    shape, words = charts.flat(1, text("axis.plain"))
    figure = charts.figure(
        data,
        x=text("axis.in_pass"),
        y=text("axis.speedup_v"),
        shapes=[shape],
        notes=[words],
        xaxis={"type": "log", "tickvals": counts, "ticktext": [str(b) for b in counts]},
        yaxis={"rangemode": "tozero"},
    )
    rows = [
        {
            "B": at.at_once,
            "plain pass (ms)": 1000 * at.plain,
            "fastest (ms)": 1000 * at.fastest,
            "slowest (ms)": 1000 * at.slowest,
            "c": at.cost,
            **{f"v, γ {n}": v for n, v in zip(found.draft_lengths, at.ratios, strict=True)},
            "best γ": length,
            "speed-up": speed,
            "lower quartile": low,
            "upper quartile": high,
            "turns": at.turns,
        }
        for at, (length, speed), (low, high) in zip(found.passes, best, spread, strict=True)
    ]
    told = " ".join(text("alt.busy.one", b=b, speed=speed, n=n) for b, (n, speed) in zip(counts, best, strict=True))
    return View(figure, text("alt.busy", told=told), rows)


def law_bars(seen: Comparison, counts: tuple[int, int]) -> View:
    """Shares of the commonest tokens (or texts), speculative beside alone; the target's own probability where it is known."""
    x = [charts.escape(label) for label in seen.labels]
    shares = [[n / max(1, total) for n in kind] for kind, total in zip((seen.speculative, seen.alone), counts, strict=True)]
    data = []
    for name, values, numbers, colour, hatched in (
        (text("race.speculative"), shares[0], seen.speculative, KEPT, False),
        (text("fig.alone"), shares[1], seen.alone, P, True),
    ):
        hover = [text("hover.law", label=label, who=name, n=n, share=v) for label, n, v in zip(x, numbers, values, strict=True)]
        data.append(charts.bars(x, charts.numbers(values), name, colour, hatched=hatched, hover=hover))
    if seen.exact is not None:
        hover = [text("hover.law.exact", label=label, p=p) for label, p in zip(x, seen.exact, strict=True)]
        line = {"color": BONUS, "width": 3}
        points = charts.points([], [], text("fig.exact"), BONUS, hover=hover)
        marker = {"symbol": "line-ew-open", "size": 26, "color": BONUS, "line": line}
        data.append(points | {"x": x, "y": charts.numbers(seen.exact), "marker": marker})
    figure = charts.figure(
        data, x=text("axis.came"), y=text("axis.share"), xaxis={"type": "category"}, yaxis={"rangemode": "tozero"}
    )
    rows = [
        {"text": visible(label), "speculative": a, "alone": b, **({"target p": seen.exact[i]} if seen.exact is not None else {})}
        for i, (label, a, b) in enumerate(zip(seen.labels, seen.speculative, seen.alone, strict=True))
    ]
    told = [text("alt.law.one", label=visible(r["text"]), speculative=r["speculative"], alone=r["alone"]) for r in rows]
    return View(figure, text("alt.law", told=text("alt.semicolon").join(told)), rows)


def two_logits(one: Text) -> View:
    """The two tokens at the place where texts part, as the one-token pass and as the verifying pass computed their logits.

    Only the difference decides, so what is drawn is the lead of the first token over the second one.
    """
    parted = one.passes
    leads = [a - b if a is not None and b is not None else None for a, b in (parted.first_logits, parted.second_logits)]
    x = [text("fig.one"), text("fig.several")]
    first, second = charts.escape(parted.first), charts.escape(parted.second)
    logits = (parted.first_logits, parted.second_logits)
    hover = [f"{name}: {first} {_number(a)}, {second} {_number(b)}" for name, (a, b) in zip(x, logits, strict=True)]
    data = [charts.bars(x, leads, text("fig.lead"), P, hover=hover)]
    data[0]["marker"]["color"] = [KEPT if (lead or 0) > 0 else LEFT for lead in leads]
    data[0] |= {"text": [f"{first} {_number(a)} · {second} {_number(b)}" for a, b in logits], "textposition": "outside"}
    data[0] |= {"cliponaxis": False}
    shape, _ = charts.flat(0, "")
    most = max(abs(lead or 0) for lead in leads) or 1.0
    figure = charts.figure(
        data,
        x="",
        y=text("axis.logits", first=first, second=second),
        height=280,
        shapes=[shape],
        legend=False,
        yaxis={"range": [-1.5 * most, 1.5 * most]},
        xaxis={"type": "category"},
    )
    rows = [{"pass": name, "first": a, "second": b} for name, (a, b) in zip(x, logits, strict=True)]
    # Every digit of the leads: near a tie they are tiny.
    one_token, verifying = ("–" if lead is None else lead for lead in leads)
    return View(figure, text("alt.logits", one=one_token, several=verifying), rows)


def _number(value: float | None) -> str:
    return "–" if value is None else localised(f"{value:.5f}".rstrip("0").rstrip("."))
