"""Plotly figures of the teaching pages as plain dictionaries: lines, points, heat maps, bars, with units on both axes."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specdec.texts import number, separators, text
from specdec.ui.explain import LONGEST, visible
from specdec.ui.figures import BONUS, KEPT, LEFT, P, Q

__all__ = [
    "BONUS",
    "KEPT",
    "LEFT",
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
    "sentences",
]

EDGE = "#6b7686"  # seen on white and on the dark background

Figure = dict[str, Any]
SLOWER_TO_FASTER = [[0.0, "#D55E00"], [0.5, "#f7f7f7"], [1.0, "#0072B2"]]  # 1.0 lies in the middle of the scale


@dataclass(frozen=True)
class View:
    """A figure, its words for those who cannot see it, and its data as rows of a table."""

    figure: Figure
    alt: str
    rows: list[dict[str, Any]]


def escape(words: str, *, longest: int | None = LONGEST) -> str:
    """Text of a model, or of a person, for a label: Plotly reads a little HTML there. Without `longest` it is no token but a sentence,
    whose blanks stay blanks and which is not cut."""
    return html.escape(visible(words, longest=longest), quote=True)


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
    places: Sequence[str] | str = "middle right",
) -> Figure:
    """hover: a text for each point. labels: words beside the points, at their `places` (see `free_places`); none where that is ""."""
    made: Figure = {
        "type": "scatter",
        "mode": "markers+text" if labels else "markers",
        "x": numbers(x),
        "y": numbers(y),
        "name": name,
        "marker": {"color": colour, "symbol": symbol, "size": size, "line": {"width": 1.5, "color": "#ffffff"}},
    }
    if labels:
        sides = [places] * len(labels) if isinstance(places, str) else list(places)
        made["text"] = [words if side else "" for words, side in zip(labels, sides, strict=True)]
        made["textposition"] = [side or "middle right" for side in sides]
    if hover:
        made |= {"hovertext": list(hover), "hoverinfo": "text"}
    return made


def free_places(
    x,
    y,
    labels: Sequence[str],
    *,
    width: float,
    height: float,
    size: tuple[int, int] = (280, 215),
    marks: Sequence[tuple[float, float]] = (),
) -> list[str]:
    """Where the words of each point go so that they cover neither each other nor a point, as far as there is a free side. Where there
    is none, "" if the same words stand beside another point already, else one on which they are not cut off.

    width, height: of the axes, in their units, which begin at 0. size: of the plot in pixels, about; a phone has the least.
    marks: where something else is drawn, which no words may cover.
    """
    across, up = width / size[0], height / size[1]  # axis units for a pixel
    points_at = list(zip(map(float, x), map(float, y), strict=True))
    taken = [(px - 7 * across, px + 7 * across, py - 7 * up, py + 7 * up) for px, py in [*points_at, *marks]]
    chosen = []
    for (px, py), label in zip(points_at, labels, strict=True):
        long, half, tall = 8 * len(label) * across, 4 * len(label) * across, 8 * up
        left, right = px - 9 * across, px + 9 * across
        sides = {
            "middle right": (right, right + long, py - tall, py + tall),
            "middle left": (left - long, left, py - tall, py + tall),
            "top center": (px - half, px + half, py + 9 * up, py + 27 * up),
            "bottom center": (px - half, px + half, py - 27 * up, py - 9 * up),
        }
        inside = [name for name, box in sides.items() if 0 <= box[0] and box[1] <= width]
        free = [name for name in inside if not any(_meet(sides[name], other) for other in taken)]
        told = any(place and words == label for place, words in zip(chosen, labels, strict=False))
        chosen.append(free[0] if free else "" if told else (inside or ["middle right"])[0])
        if chosen[-1]:
            taken.append(sides[chosen[-1]])
    return chosen


def _meet(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Whether two boxes (left, right, bottom, top) overlap."""
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]


def flat(value: float, words: str, *, right: bool = False) -> tuple[Figure, Figure]:
    """A horizontal line through the whole figure, and its words at the left or at the right end: (shape, annotation)."""
    shape = {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": value,
        "y1": value,
        "line": {"dash": "dot", "width": 2, "color": LEFT},
    }
    end = {"x": 0.99, "xanchor": "right"} if right else {"x": 0.01, "xanchor": "left"}
    words_at = {"xref": "paper", "y": value, "yanchor": "top", "showarrow": False} | end
    return shape, words_at | {"text": words, "font": {"color": LEFT, "size": 13}}


def sentences(hovers: Sequence[str]) -> str:
    """Hover texts as sentences for those who cannot see a figure: the lines of one become its clauses."""
    return " ".join(text("alt.sentence", words=one.replace("<br>", text("alt.comma"))) for one in hovers)


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
                "ticktext": [f"{number(t, 'g')}×" for t in ticks],
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
                "name": text("axis.even"),
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
            "separators": separators(),
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
