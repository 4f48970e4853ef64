"""The figures of the page "Why is the result exactly the target's?": p and q of a few words, what is accepted, what is left."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specdec.goodness import band
from specdec.mistakes import MISTAKES, Rule, residual
from specdec.texts import number, text
from specdec.ui import charts
from specdec.ui.charts import KEPT, LEFT, Figure, P, Q, View, escape
from specdec.ui.figures import OTHERS

HEIGHT = 330


def _said(word: str) -> str:
    """A token for a label, or the words for all others."""
    return text("figure.others") if word == OTHERS else escape(word)


def _words(words: Sequence[str]) -> Figure:
    """An axis of words. They are told apart by their place, for two tokens may look alike."""
    labels = [f"<i>{_said(w)}</i>" if w == OTHERS else _said(w) for w in words]
    return {"tickvals": list(range(len(words))), "ticktext": labels, "range": [-0.6, len(words) - 0.4], "tickfont": {"size": 15}}


def _top(*rows: np.ndarray) -> Figure:
    return {"range": [0, min(1.02, max(0.3, *(float(r.max()) for r in rows)) * 1.12)]}


def two_distributions(words: Sequence[str], p: np.ndarray, q: np.ndarray) -> View:
    """q and p side by side, the part that both have laid over them."""
    x, common = np.arange(len(words)), np.minimum(p, q)
    values = [(number(a, ".3f"), number(b, ".3f"), number(c, ".3f")) for a, b, c in zip(p, q, common)]
    hover = [f"{_said(w)}<br>{text('figure.hover', p=a, q=b, common=c)}" for w, (a, b, c) in zip(words, values)]
    shade = charts.bars(
        x.tolist(),
        charts.numbers(common),
        text("figure.common", overlap=number(common.sum(), ".2f")),
        KEPT,
        hover=hover,
        width=0.84,
    )
    shade["marker"] |= {"opacity": 0.4, "line": {"width": 1.5, "color": KEPT}}
    data = [
        charts.bars((x - 0.2).tolist(), charts.numbers(q), text("figure.q"), Q, hatched=True, hover=hover, width=0.38),
        charts.bars((x + 0.2).tolist(), charts.numbers(p), text("figure.p"), P, hover=hover, width=0.38),
        shade,
    ]
    figure = charts.figure(
        data,
        x=text("axis.next"),
        y=text("figure.probability"),
        height=HEIGHT,
        xaxis=_words(words),
        yaxis=_top(p, q),
        barmode="overlay",
    )
    rows = [
        {"token": w, "p": float(a), "q": float(b), "min(p, q)": float(c), "chance to be kept": float(c / b) if b else None}
        for w, a, b, c in zip(words, p, q, common)
    ]
    return View(figure, text("alt.both", told=charts.sentences(hover)), rows)


def two_parts(words: Sequence[str], p: np.ndarray, q: np.ndarray) -> View:
    """Accepted part and replaced part of each token, one on the other: together they are p."""
    x, common, rest = list(range(len(words))), np.minimum(p, q), np.maximum(0, p - q)
    left, mass = residual(p, q)
    said = [_said(w) for w in words]
    kept_hover = [text("hover.accepted", token=w, value=float(c)) for w, c in zip(said, common)]
    shares = [{"mass": float(mass), "share": float(b), "value": float(r)} for b, r in zip(left, rest)]
    left_hover = [text("hover.replaced", token=w, **share) for w, share in zip(said, shares)]
    p_hover = [f"{w}<br>p {number(a, '.3f')}" for w, a in zip(said, p)]
    data = [
        charts.bars(x, charts.numbers(common), text("fig.accepted", value=float(common.sum())), KEPT, hover=kept_hover, width=0.6),
        charts.bars(
            x, charts.numbers(rest), text("fig.replaced", value=float(rest.sum())), LEFT, hatched=True, hover=left_hover, width=0.6
        ),
        charts.points(x, p, text("figure.p"), P, symbol="line-ew-open", size=46, hover=p_hover),
    ]
    data[-1]["marker"] = {"color": P, "symbol": "line-ew-open", "size": 46, "line": {"width": 4, "color": P}}
    figure = charts.figure(
        data,
        x=text("axis.emitted"),
        y=text("figure.probability"),
        height=HEIGHT,
        xaxis=_words(words),
        yaxis=_top(p, q),
        barmode="stack",
    )
    rows = [
        {"token": w, "accepted": float(c), "replaced": float(r), "together": float(c + r), "p": float(a), "residual": float(b)}
        for w, c, r, a, b in zip(words, common, rest, p, left)
    ]
    sums = [{"kept": float(c), "left": float(r), "both": float(c + r)} for c, r in zip(common, rest)]
    told = " ".join(text("alt.sum.one", token=w, **one) for w, one in zip(said, sums))
    return View(figure, text("alt.sum", told=told), rows)


def drawn(words: Sequence[str], rule: Rule, counts: np.ndarray) -> View:
    """What the dice gave, beside what should come out with its 95 % band, and, for a mistake, what it leads to."""
    x, total = list(range(len(words))), max(1, int(counts.sum()))
    share, reach = counts / total, band(rule.wanted, total)
    hover = [
        text("hover.drawn", token=_said(w), n=int(c), total=total, share=float(s), wanted=float(a), band=float(b))
        for w, c, s, a, b in zip(words, counts, share, rule.wanted, reach)
    ]
    wanted = charts.points(x, rule.wanted, text("fig.wanted"), P, symbol="line-ew-open", size=40, hover=hover)
    wanted["marker"] = {"color": P, "symbol": "line-ew-open", "size": 40, "line": {"width": 4, "color": P}}
    wanted["error_y"] = {"type": "data", "array": charts.numbers(reach), "color": P, "thickness": 2, "width": 8}
    data = [charts.bars(x, charts.numbers(share), text("fig.drawn", n=total), KEPT, hover=hover, width=0.6)]
    data[0]["marker"] |= {"opacity": 0.5}  # the band has to be seen on it
    if rule.bias > 1e-9:
        data[0]["marker"]["color"] = LEFT
        law = charts.points(x, rule.law, text("fig.mistake"), LEFT, symbol="x", size=11)
        data.append(law)
    data.append(wanted)
    figure = charts.figure(
        data,
        x=text("axis.emitted"),
        y=text("axis.drawn"),
        height=HEIGHT + 40,
        xaxis=_words(words),
        yaxis=_top(share, rule.wanted),
    )
    rows = [
        {"token": w, "drawn": int(c), "share": float(s), "wanted": float(a), "± 95 %": float(b), "law of the rule": float(e)}
        for w, c, s, a, b, e in zip(words, counts, share, rule.wanted, reach, rule.law)
    ]
    return View(figure, text("alt.drawn", told=charts.sentences(hover)), rows)


def promised(chances: np.ndarray, kept: np.ndarray, *, promise: str, seen: str, x: str) -> View:
    """What a run brought so far, beside the sum of its chances with the 95 % band. Both [n], in the order of the run.

    promise, seen: names of the two lines; x: title of the axis.
    """
    places, expected, count = list(range(1, len(chances) + 1)), chances.cumsum(), np.cumsum(kept)
    reach = 1.96 * np.sqrt((chances * (1 - chances)).cumsum())
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [*places, *reversed(places)],
            "y": charts.numbers([*(expected + reach), *reversed(expected - reach)]),
            "fill": "toself",
            "fillcolor": "rgba(0,114,178,0.2)",
            "line": {"width": 0},
            "hoverinfo": "skip",
            "name": text("fig.band"),
        },
        charts.line(places, expected, promise, P, dash="dash", hover=text("hover.promised", n="%{x}", value="%{y:.1f}")),
        charts.line(places, count, seen, KEPT, width=4, hover=text("hover.came", n="%{x}", value="%{y}")),
    ]
    figure = charts.figure(data, x=x, y=text("axis.so_far"), height=HEIGHT - 50)
    rows = [
        {"place": n, "chance": float(c), "came": "yes" if k else "no", "promised so far": float(e), "so far": int(s)}
        for n, c, k, e, s in zip(places, chances, kept, expected, count)
    ]
    values = {"count": int(count[-1]), "expected": float(expected[-1])}
    return View(figure, text("alt.promised", seen=seen, promise=promise, **values), rows)


def all_mistakes(titles: dict[str, str], p: np.ndarray, q: np.ndarray) -> View:
    """How many tokens come out wrong with each mistake, for this p and q."""
    found = {name: make(p, q).bias for name, make in MISTAKES.items()}
    order = sorted(found, key=lambda n: (found[n], n != "exact"))
    values = [100 * found[n] for n in order]
    data = [
        charts.bars(
            charts.numbers(values),
            [titles[n] for n in order],
            text("fig.bias"),
            LEFT,
            orientation="h",
            text=[number(v, ".1f") for v in values],
            textposition="outside",
            cliponaxis=False,
            hover=[text("hover.bias", rule=titles[n], value=float(found[n])) for n in order],
        )
    ]
    data[0]["marker"]["color"] = [KEPT if n == "exact" else LEFT for n in order]
    figure = charts.figure(
        data,
        x=text("axis.wrong"),
        y="",
        height=HEIGHT + 40,
        legend=False,
        xaxis={"rangemode": "tozero"},
        yaxis={"tickfont": {"size": 14}},
    )
    rows = [{"rule": titles[n], "total variation": found[n]} for n in reversed(order)]
    told = charts.sentences([f"{titles[n]}: {number(found[n], '.3f')}" for n in reversed(order)])
    return View(figure, text("alt.bias", told=told), rows)
