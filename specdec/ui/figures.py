"""Plotly figures of one token of a trace, as plain dictionaries (building them costs a millisecond, Plotly Express forty).

Colour is never alone: q is hatched, p solid, the common part lies over both, and every bar has its numbers on hover and in `alt`.
Token text is data: Plotly reads a little HTML in labels, so it is escaped.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

from specdec.texts import separators, text
from specdec.trace import TOP, Draft, Outcome, Round, TokenProbability
from specdec.ui.explain import number, plain, visible

# Okabe-Ito, and a grey; each has at least 3:1 on the light and on the dark background.
P, Q, KEPT, LEFT, BONUS = "#0072B2", "#8A94A3", "#009E73", "#D55E00", "#CC79A7"
ROWS = 7  # tokens a figure shows by name; all others share one more row
OTHERS = "all others"  # stands for them in a list of tokens; on screen it is text("figure.others")
ROW_HEIGHT, MARGINS = 34, 78  # pixels

CHART = {"displayModeBar": False, "responsive": True}  # how st.plotly_chart shows them

Figure = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One token of a figure. None where the trace only knows that the value is below the smallest one it kept."""

    label: str
    p: float | None
    q: float | None
    common: float = 0.0
    mark: str = ""
    others: bool = False


def rows_of(round_: Round, draft: Draft, *, limit: int = ROWS) -> list[Row]:
    """The most probable tokens of p and q at this draft's position, the drafted token and its replacement always among them."""
    p, q = ({t.id: t.probability for t in top} for top in (draft.top_p, draft.top_q))
    p[draft.id], q[draft.id] = draft.p, draft.q
    texts = {t.id: t.text for t in (*draft.top_p, *draft.top_q)} | {draft.id: draft.text}
    marks = {draft.id: {"accepted": " ✓", "rejected": " ✕", "discarded": " –"}[draft.status]}
    outcome = round_.outcome
    if draft.status == "rejected" and outcome.id is not None:
        texts[outcome.id], marks[outcome.id] = outcome.text, " ↵"
        if outcome.p is not None:
            p[outcome.id] = outcome.p
    p_rest, q_rest = (None if _cut(top) else 0.0 for top in (draft.top_p, draft.top_q))
    order = sorted(texts, key=lambda i: (i not in marks, -max(p.get(i, 0), q.get(i, 0))))[:limit]
    order.sort(key=lambda i: -max(p.get(i, 0), q.get(i, 0)))
    rows = []
    for i in order:
        pi, qi = p.get(i, p_rest), q.get(i, q_rest)
        rows.append(Row(label=texts[i], p=pi, q=qi, common=min(pi or 0, qi or 0), mark=marks.get(i, "")))
    shown = sum(r.common for r in rows)
    rest = Row(
        label=text("figure.others"),
        p=max(0.0, 1 - sum(r.p or 0 for r in rows)),
        q=max(0.0, 1 - sum(r.q or 0 for r in rows)),
        common=max(0.0, draft.overlap - shown),
        others=True,
    )
    return [*rows, rest] if max(rest.p, rest.q) > 5e-4 else rows


def _cut(top: tuple[TokenProbability, ...]) -> bool:
    """Whether tokens with some probability were left out of `top`."""
    return len(top) >= TOP and sum(t.probability for t in top) < 1 - 1e-5


def overlap_figure(round_: Round, draft: Draft) -> tuple[Figure, str]:
    """p and q of one position side by side, the accepted overlap shaded. Returns (figure, text alternative)."""
    rows = rows_of(round_, draft)
    y, hover = list(range(len(rows))), [_hover(r) for r in rows]
    data = [
        _bars([i - 0.2 for i in y], [r.q or 0 for r in rows], text("figure.q"), Q, hover=hover, hatched=True),
        _bars([i + 0.2 for i in y], [r.p or 0 for r in rows], text("figure.p"), P, hover=hover),
        {
            **_bars(y, [r.common for r in rows], text("figure.common", overlap=plain(number(draft.overlap))), KEPT, width=0.84),
            "marker": {"color": KEPT, "opacity": 0.38, "line": {"width": 1.5, "color": KEPT}},
            "hoverinfo": "skip",
        },
    ]
    alt = text("figure.alt") + " " + " ".join(f"{visible(r.label)}: q {_value(r.q)}, p {_value(r.p)}." for r in rows)
    return _layout(data, rows), alt


def distribution_figure(outcome: Outcome, *, limit: int = ROWS) -> tuple[Figure, str] | None:
    """What the target's own token was drawn from: the residual behind a rejection, else p. None where the trace has no list."""
    if not outcome.distribution:
        return None
    left = outcome.kind == "replacement" and outcome.residual_mass is not None
    name, colour = (text("figure.residual"), LEFT) if left else (text("figure.p"), P)
    top = list(outcome.distribution[:limit])
    if outcome.id not in {t.id for t in top} and outcome.id is not None:
        known = next((t for t in outcome.distribution if t.id == outcome.id), None)
        value = known.probability if known else (outcome.p if not left else None)
        top = [*top[:-1], TokenProbability(outcome.id, outcome.text, value if value is not None else 0.0)]
    rows = [Row(label=t.text, p=t.probability, q=None, mark=" ✓" if t.id == outcome.id else "") for t in top]
    rest = 1 - sum(r.p for r in rows)
    if rest > 5e-4:
        rows.append(Row(label=text("figure.others"), p=rest, q=None, others=True))
    bars = _bars(
        list(range(len(rows))),
        [r.p for r in rows],
        name,
        colour,
        width=0.62,
        hover=[f"{_escape(r.label)}<br>{name} {_value(r.p)}" for r in rows],
    )
    bars["marker"]["opacity"] = [1.0 if r.mark else 0.45 for r in rows]
    bars["marker"]["line"] = {"color": colour, "width": 1.5}
    told = " ".join(f"{visible(r.label)}: {_value(r.p)}." for r in rows)
    alt = f"{text('figure.drawn', name=name, token=visible(outcome.text))} {told}"
    return _layout([bars], rows, row_height=26, legend=False), alt


def _bars(
    y: list[float],
    x: list[float],
    name: str,
    colour: str,
    *,
    width: float = 0.38,
    hover: list[str] | None = None,
    hatched: bool = False,
) -> Figure:
    marker: Figure = {"color": colour}
    if hatched:
        marker = {
            "color": colour,
            "pattern": {"shape": "/", "size": 5, "solidity": 0.45, "fgcolor": colour, "bgcolor": "rgba(0,0,0,0)"},
        }
        marker["line"] = {"color": colour, "width": 1}
    bars = {"type": "bar", "orientation": "h", "y": y, "x": x, "width": width, "name": name, "marker": marker}
    return bars if hover is None else {**bars, "hovertext": hover, "hoverinfo": "text"}


def _layout(data: list[Figure], rows: list[Row], *, row_height: int = ROW_HEIGHT, legend: bool = True) -> Figure:
    labels = [f"<b>{_escape(r.label)}{r.mark}</b>" if r.mark else _escape(r.label) for r in rows]
    if rows[-1].others:
        labels[-1] = f"<i>{text('figure.others')}</i>"
    return {
        "data": data,
        "layout": {
            "barmode": "overlay",
            "separators": separators(),
            "height": MARGINS + row_height * (ROWS + 1),
            "margin": {"l": 8, "r": 12, "t": 34 if legend else 6, "b": 40},
            "showlegend": legend,
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "itemclick": False, "itemdoubleclick": False},
            "dragmode": False,
            "font": {"size": 14},
            "hoverlabel": {"align": "left"},
            "xaxis": {
                "title": {"text": text("figure.probability")},
                "rangemode": "tozero",
                "fixedrange": True,
                "tickformat": ".2~f",
            },
            "yaxis": {
                "tickvals": list(range(len(rows))),
                "ticktext": labels,
                "tickfont": {"family": "Source Code Pro, monospace", "size": 14},
                "range": [ROWS + 0.6, -0.6],
                "fixedrange": True,
                "automargin": True,
                "showgrid": False,
                "zeroline": False,
            },
        },
    }


def _hover(row: Row) -> str:
    return f"{_escape(row.label)}<br>{text('figure.hover', q=_value(row.q), p=_value(row.p), common=_value(row.common))}"


def _value(value: float | None) -> str:
    return text("figure.less") if value is None else plain(number(value, 3))


def _escape(token: str) -> str:
    return html.escape(visible(token), quote=False)  # Plotly knows no &quot;
