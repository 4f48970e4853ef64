"""Plotly figures of the teaching pages as plain dictionaries: lines, points, heat maps, bars, with units on both axes."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specdec.ui.explain import visible
from specdec.ui.figures import BONUS, KEPT, LEFT, P, Q

__all__ = [
    "BONUS",
    "KEPT",
    "LEFT",
    "LENGTH",
    "SPEEDUP",
    "P",
    "Q",
    "View",
    "bars",
    "escape",
    "figure",
    "flat",
    "heat",
    "line",
    "note",
    "points",
]

EDGE = "#6b7686"  # seen on white and on the dark background
SPEEDUP = "speed-up (plain time / speculative time)"
LENGTH = "draft length γ (tokens)"

Figure = dict[str, Any]
SLOWER_TO_FASTER = [[0.0, "#D55E00"], [0.5, "#f7f7f7"], [1.0, "#0072B2"]]  # 1.0 lies in the middle of the scale


@dataclass(frozen=True)
class View:
    """A figure, its words for those who cannot see it, and its data as rows of a table."""

    figure: Figure
    alt: str
    rows: list[dict[str, Any]]


def escape(text: str) -> str:
    """Text of a model, or of a person, for a label: Plotly reads a little HTML there."""
    return html.escape(visible(text), quote=True)


def numbers(values: Sequence[float]) -> list[float | None]:
    """Five digits travel, which is more than a screen shows; what is no number becomes a gap."""
    return [None if v is None or v != v else float(f"{v:.5g}") for v in values]


def line(
    x, y, name: str, colour: str, *, width: float = 2, dash: str = "solid", hover: str = "%{y:.2f}", legend: bool = True
) -> Figure:
    """hover: a Plotly template of one point; the name of the line follows by itself."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": numbers(x),
        "y": numbers(y),
        "name": name,
        "line": {"color": colour, "width": width, "dash": dash},
        "hovertemplate": hover,
        "showlegend": legend,
    }


def points(
    x,
    y,
    name: str,
    colour: str,
    *,
    symbol: str = "diamond",
    size: int = 12,
    hover: Sequence[str] = (),
    labels: Sequence[str] = (),
) -> Figure:
    """hover: a text for each point. labels: words beside the points."""
    made: Figure = {
        "type": "scatter",
        "mode": "markers+text" if labels else "markers",
        "x": numbers(x),
        "y": numbers(y),
        "name": name,
        "marker": {"color": colour, "symbol": symbol, "size": size, "line": {"width": 1.5, "color": "#ffffff"}},
    }
    if labels:
        made |= {"text": list(labels), "textposition": "middle right"}
    if hover:
        made |= {"hovertext": list(hover), "hoverinfo": "text"}
    return made


def flat(value: float, words: str) -> tuple[Figure, Figure]:
    """A horizontal line through the whole figure, and its words: (shape, annotation)."""
    shape = {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": value,
        "y1": value,
        "line": {"dash": "dot", "width": 2, "color": LEFT},
    }
    words_at = {"xref": "paper", "x": 0.01, "y": value, "xanchor": "left", "yanchor": "top", "showarrow": False}
    return shape, words_at | {"text": words, "font": {"color": LEFT, "size": 13}}


def note(x: float, y: float, words: str, *, ax: int = 0, ay: int = -34) -> Figure:
    """Words with an arrow to a point."""
    return {"x": x, "y": y, "text": words, "showarrow": True, "arrowhead": 2, "ax": ax, "ay": ay, "font": {"size": 14}}


def heat(x, y, z, *, label: str, hover: str, edge: bool = True) -> list[Figure]:
    """A map of speed-ups, coloured by their logarithm: white is 1, blue faster, orange slower, a quarter as far as four times.

    z: rows by y. hover: a template in which %{customdata} is the speed-up. edge: with the line along which it is 1.
    """
    zs = [numbers(row) for row in z]
    ticks = (0.25, 0.5, 1, 2, 4)
    made = [
        {
            "type": "heatmap",
            "x": numbers(x),
            "y": numbers(y),
            "z": [[math.log2(v) for v in row] for row in zs],
            "customdata": zs,
            "zmin": -2,
            "zmax": 2,
            "colorscale": SLOWER_TO_FASTER,
            "colorbar": {
                "title": {"text": label, "side": "right"},
                "thickness": 14,
                "tickvals": [math.log2(t) for t in ticks],
                "ticktext": [f"{t:g}×" for t in ticks],
            },
            "hovertemplate": hover,
            "name": "",
        }
    ]
    if edge:
        made.append(
            {
                "type": "contour",
                "x": numbers(x),
                "y": numbers(y),
                "z": zs,
                "contours": {"coloring": "none", "start": 1, "end": 1, "size": 1, "showlabels": False},
                "line": {"color": EDGE, "width": 3, "dash": "dash"},
                "showscale": False,
                "hoverinfo": "skip",
                "name": "1×: break-even",
                "showlegend": True,
            }
        )
    return made


def bars(x, y, name: str, colour: str, *, hatched: bool = False, hover: Sequence[str] = (), **more: Any) -> Figure:
    marker: Figure = {"color": colour}
    if hatched:
        pattern = {"shape": "/", "size": 6, "solidity": 0.45, "fgcolor": colour, "bgcolor": "rgba(0,0,0,0)"}
        marker |= {"pattern": pattern, "line": {"color": colour, "width": 1.5}}
    made: Figure = {"type": "bar", "x": list(x), "y": list(y), "name": name, "marker": marker, **more}
    return made | ({"hovertext": list(hover), "hoverinfo": "text"} if hover else {})


def figure(
    data: list[Figure],
    *,
    x: str,
    y: str,
    height: int = 400,
    shapes: Sequence[Figure] = (),
    notes: Sequence[Figure] = (),
    xaxis: Figure | None = None,
    yaxis: Figure | None = None,
    legend: bool = True,
    **more: Any,
) -> Figure:
    """x, y: titles of the axes, with their units. Nothing zooms: a finger on a phone has to be able to scroll past."""
    below = {
        "orientation": "h",
        "x": 0,
        "xanchor": "left",
        "y": 1.02,
        "yanchor": "bottom",
        "itemclick": False,
        "itemdoubleclick": False,
    }
    return {
        "data": data,
        "layout": {
            "height": height,
            "margin": {"l": 8, "r": 12, "t": 40 if legend else 16, "b": 8},
            "showlegend": legend,
            "legend": below,
            "dragmode": False,
            "font": {"size": 14},
            "hoverlabel": {"align": "left"},
            "shapes": list(shapes),
            "annotations": list(notes),
            "xaxis": {"title": {"text": x}, "fixedrange": True, "automargin": True, **(xaxis or {})},
            "yaxis": {"title": {"text": y}, "fixedrange": True, "automargin": True, **(yaxis or {})},
            **more,
        },
    }


def larger(made: Figure, factor: float = 1.35) -> Figure:
    """The same figure with its words as large as a projector wants them; the figure that was given stays as it is."""
    layout = dict(made["layout"])
    size = factor * (layout.get("font") or {}).get("size", 14)
    font = {"size": round(size)}

    def with_font(part: Figure, name: str = "font") -> Figure:
        return {**part, name: {**(part.get(name) or {}), **font}}

    for name in [n for n in layout if n.startswith(("xaxis", "yaxis"))]:
        axis = with_font(layout[name] or {}, "tickfont")
        layout[name] = axis | {"title": with_font(axis.get("title") or {})}
    margin = layout.get("margin") or {}
    layout |= {
        "font": {**(layout.get("font") or {}), **font},
        "legend": with_font(layout.get("legend") or {}),
        "annotations": [with_font(one) for one in layout.get("annotations") or []],
        "height": round(1.12 * layout["height"]),
        "margin": {**margin, "t": factor * margin.get("t", 40)},
    }
    data = [with_font(one, "textfont") if one.get("text") is not None else one for one in made["data"]]
    return {**made, "data": data, "layout": layout}
