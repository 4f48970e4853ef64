"""The timeline of a race: what each side spent its time on, one lane each, on one clock. Pure: a race in, a figure and rows out."""

from __future__ import annotations

from collections.abc import Sequence

from specdec.race import Bar, Race, arrivals, bars
from specdec.race_words import seconds
from specdec.texts import count, text
from specdec.trace import Trace
from specdec.ui import charts
from specdec.ui.charts import Figure, View
from specdec.ui.figures import P, Q

ORANGE, GREY, EDGE = "#E69F00", "#8A94A3", "rgba(255,255,255,0.75)"
MOST = 900  # bars that a browser still draws at once; beyond it the draft steps of a round become one bar
BEGINNING = 8  # plain steps that the close view shows

# (kinds, name in the legend, colour, hatched)
GROUPS = (
    (("prefill",), "timeline.prefill", GREY, False),
    (("plain", "verify"), "timeline.pass", P, False),
    (("draft",), "timeline.draft", Q, True),
    (("judge",), "timeline.judge", ORANGE, False),
)
LANES = (("plain", "stage.race.plain"), ("speculative", "stage.race.speculative"))  # names of the texts


def timeline(race: Race, *, close: bool = False) -> View:
    """close: only the beginning, as far as about `BEGINNING` plain steps, wide enough to tell the draft steps apart."""
    sides = {name: bars(trace) for name, trace in _traces(race)}
    found = [(name, bar) for name, side in sides.items() for bar in side]
    until = _until(race, close=close)
    drawn = [(name, bar) for name, side in sides.items() for bar in (side if len(found) <= MOST else _merged(side))]
    drawn = [(name, bar) for name, bar in drawn if bar.start < until and bar.seconds > 0]
    data = [
        _group([(name, bar) for name, bar in drawn if bar.kind in kinds], text(title), colour, hatched=hatched)
        for kinds, title, colour, hatched in GROUPS
    ]
    figure = charts.figure(
        [group for group in data if group["x"]],
        x=text("timeline.x"),
        y="",
        height=290,
        notes=[_label(place, trace) for place, (_, trace) in enumerate(_traces(race))],
        barmode="overlay",
        xaxis={"range": [0, until * 1.01], "ticksuffix": " s", "showgrid": True},
        yaxis={"range": [1.45, -0.75], "showticklabels": False, "showgrid": False, "zeroline": False, "title": None},
    )
    return View(figure, _alt(race), rows(race))


def _traces(race: Race) -> tuple[tuple[str, Trace], tuple[str, Trace]]:
    return ("plain", race.plain), ("speculative", race.speculative)


def _until(race: Race, *, close: bool) -> float:
    ends = [times[-1] for _, trace in _traces(race) if (times := arrivals(trace))]
    if not close:
        return max(ends, default=0.0) or 1e-3
    starts = [times[0] for _, trace in _traces(race) if (times := arrivals(trace))]
    plain = arrivals(race.plain)
    step = (plain[-1] - plain[0]) / (len(plain) - 1) if len(plain) > 1 else 0.1
    return min(max(ends, default=1.0), max(starts, default=0.0) + BEGINNING * step) or 1e-3


def _merged(side: Sequence[Bar]) -> list[Bar]:
    """The draft steps of each round as one bar."""
    found: list[Bar] = []
    for bar in side:
        last = found[-1] if found else None
        if last is not None and bar.kind == last.kind == "draft" and bar.round == last.round:
            found[-1] = Bar("draft", last.start, bar.start + bar.seconds - last.start, bar.round, bar.tokens)
        else:
            found.append(bar)
    return found


def _group(found: list[tuple[str, Bar]], title: str, colour: str, *, hatched: bool) -> Figure:
    place = {name: i for i, (name, _) in enumerate(LANES)}
    made = charts.bars(
        charts.numbers([bar.seconds for _, bar in found]),
        [place[name] for name, _ in found],
        title,
        colour,
        hatched=hatched,
        hover=[_hover(text(f"race.{name}"), bar) for name, bar in found],
        orientation="h",
        base=charts.numbers([bar.start for _, bar in found]),
        width=0.5,
    )
    # Neighbours of one colour have to be told apart.
    made["marker"]["line"] = {"color": colour if hatched else EDGE, "width": 0.75}
    return made


def what(bar: Bar) -> str:
    """ "draft step 2", "pass of the target over 5 tokens", for people."""
    kind = "choose" if bar.kind == "judge" and bar.tokens == 1 else bar.kind
    return text(f"timeline.what.{kind}", tokens=count("tokens", bar.tokens), n=bar.tokens)


def _hover(name: str, bar: Bar) -> str:
    who = name if bar.round is None else text("timeline.round", name=name, n=bar.round + 1)
    return text("timeline.hover", who=who, what=what(bar), ms=1e3 * bar.seconds, start=bar.start)


def _label(place: int, trace: Trace) -> Figure:
    title = text(LANES[place][1])
    times = arrivals(trace)
    if times:
        words = text("timeline.label", title=title, first=seconds(times[0]), complete=seconds(times[-1]))
    else:
        words = text("timeline.label.none", title=title)
    return {"xref": "paper", "x": 0, "y": place - 0.28, "text": words, "showarrow": False, "xanchor": "left", "yanchor": "bottom"}


def _alt(race: Race) -> str:
    parts = []
    for (_, title), (_, trace) in zip(LANES, _traces(race), strict=True):
        times, passes = arrivals(trace), len(trace.rounds)
        if times:
            values = {"first": seconds(times[0]), "complete": seconds(times[-1]), "passes": passes}
            parts.append(text("timeline.alt.side", title=text(title), **values))
    return " ".join([text("timeline.alt"), *parts])


def rows(race: Race) -> list[dict[str, object]]:
    """Each bar as a row, both runs after each other; times in milliseconds from the start of the request."""
    return [
        {
            "run": name,
            "round": None if bar.round is None else bar.round + 1,
            "what": what(bar),
            "starts at, ms": round(1e3 * bar.start, 3),
            "takes, ms": round(1e3 * bar.seconds, 3),
        }
        for name, trace in _traces(race)
        for bar in bars(trace)
    ]
