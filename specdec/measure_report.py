"""A measurement for others: one HTML file that needs nothing else, a table for spreadsheets, and everything as JSON.

Prompts and names are somebody's text: all of it is escaped, the page runs no script and asks no network for anything.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Sequence
from html import escape
from typing import Any

from specdec import measure_store, measure_tables
from specdec.measure import Measurement
from specdec.measure_analysis import Analysis, Load, Verdict, analyse
from specdec.measure_tables import Row

_STYLE = """
:root { color-scheme: light dark; --line: #8a94a3; --good: #0072b2; --bad: #d55e00; --open: #8a94a3; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
table { border-collapse: collapse; font-size: 0.88rem; } .wide { overflow-x: auto; }
th, td { border-bottom: 1px solid var(--line); padding: 0.25rem 0.6rem; text-align: right; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; white-space: nowrap; }
ul.verdicts { list-style: none; padding: 0; }
ul.verdicts li { border-left: 5px solid var(--open); margin: 0.35rem 0; padding: 0.2rem 0.7rem; }
ul.verdicts li.use { border-color: var(--good); } ul.verdicts li.not { border-color: var(--bad); }
.small { font-size: 0.85rem; } svg { max-width: 100%; height: auto; } svg text { fill: currentColor; font-size: 13px; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; } dt { font-weight: 600; } dd { margin: 0 0 0.4rem 1rem; }
"""

TERMS = {
    "speed-up": "Seconds per token of the complete answer, plain decoding / this arm, same prompt and repeat; the median over the "
    "prompts. The interval holds the median of all such prompts with 95 % at least (sign test: from the k-th smallest to the k-th largest of "
    "the prompts' values), whatever their distribution; of fewer than six prompts it reaches from the smallest to the largest and holds it "
    "more seldom.",
    "slower than plain, slowest prompt": "How many prompts took longer than with plain decoding, and the speed-up of the worst one: a "
    "median does not show them.",
    "first token, complete answer": "From the start of a request to its first token, and to its last; the prefill is in both. "
    "What every chat begins with is read once and kept, for plain requests as for speculative ones.",
    "acceptance rate α": "Accepted drafts / judged drafts (accepted and rejected ones), the α of the formulas.",
    "draft utilisation": "Accepted drafts / all drafted tokens, discarded ones included; many dashboards call it acceptance rate.",
    "rounds with drafts": "The other rounds were plain steps: look-up had found nothing. γ, c and v are of the rounds with drafts, and the "
    "formula counts the others as plain steps.",
    "tokens a round τ": "Tokens committed per pass of the target, replacement or bonus included.",
    "c and v": "Time of one draft step, and of a pass over the drafts, in plain steps of the same turn.",
    "between tokens, between pauses": "All tokens of a round appear together, so the wait is 0 within a round and a whole round "
    "between two; pauses leave out the zeros.",
    "cost": "Price of a device-hour / 3600 / (tokens/s) · 10⁶, with that many requests at once.",
}


def to_csv(rows: Sequence[Row]) -> str:
    """Rows with the same names, as a table for spreadsheets."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]) if rows else [])
    writer.writeheader()
    writer.writerows({name: _harmless(value) for name, value in row.items()} for row in rows)
    return out.getvalue()


def _harmless(value: Any) -> Any:
    """A spreadsheet takes a text that begins with one of these for a formula."""
    return "'" + value if isinstance(value, str) and value.startswith(tuple("=+-@\t\r")) else value


def to_json(measurement: Measurement, analysis: Analysis | None = None) -> str:
    """Settings, origin, every record, and the figures that follow from them."""
    analysis = analysis or analyse(measurement)
    head, *records = (json.loads(line) for line in measure_store.dump(measurement).split("\n")[:-1])
    return json.dumps({**head, "records": records, "analysis": dataclasses.asdict(analysis)}, ensure_ascii=False, indent=1)


def to_html(measurement: Measurement, analysis: Analysis | None = None, *, price: float = 0.0) -> str:
    """price: of one device-hour, in whatever currency; 0 leaves cost out."""
    analysis = analysis or analyse(measurement)
    design, origin = measurement.design, measurement.origin
    made = f"{len(measurement.records)} of {design.total} records" if not measurement.complete else f"{design.total} records"
    parts = [
        f"<h1>Speculative decoding before adopting it: {escape(origin.pair)}</h1>",
        f"<p>Measured on {escape(origin.device)} ({escape(origin.machine)}, {origin.threads} threads), "
        f"begun {escape(origin.created)}; {made}.{'' if measurement.complete else ' Stopped before its end.'}</p>",
        f'<ul class="verdicts">{"".join(map(_verdict, analysis.verdicts))}</ul>',
        f"<p>{escape(conditions(measurement, analysis))}</p>",
        _intervals(analysis.verdicts),
        _section("Every arm, all tasks", measure_tables.speed(analysis, "")),
        _section("What the drafts were worth and what they cost", measure_tables.acceptance(analysis, "")),
        _section("Waiting between tokens", measure_tables.waiting(analysis, "")),
        _section("Where the time went", measure_tables.time_split(analysis, "")),
        _section("Memory", measure_tables.memory(analysis)),
    ]
    if analysis.loads:
        rows = measure_tables.loads(analysis, price)
        if not price:
            rows = [{k: v for k, v in row.items() if not k.startswith("cost")} for row in rows]
        parts.append(_section(f"Several requests at once{f', a device-hour at {price:g}' if price else ''}", rows))
    parts += [_section(f"Every arm: {kind}", measure_tables.speed(analysis, kind)) for kind in design.kinds if analysis.of(kind)]
    terms = "".join(f"<dt>{escape(name)}</dt><dd>{escape(words)}</dd>" for name, words in TERMS.items())
    prompts = "".join(f"<li>{escape(p.kind)}: {escape(p.text)}</li>" for p in design.prompts)
    settings = {**dataclasses.asdict(design), **{f"made with: {k}": v for k, v in dataclasses.asdict(origin).items()}}
    settings.pop("prompts")
    parts += [
        f"<h2>What the words mean</h2><dl>{terms}</dl>",
        "<h2>To repeat it</h2><p>Every arm once for warming up, not counted; then all arms in turns on every prompt. Times are "
        "wall-clock times in one process, one request after the other unless it says at once.</p>",
        f'<div class="wide">{_table([{"setting": k, "value": _words(v)} for k, v in settings.items()])}</div>',
        f'<h2>Prompts</h2><ol class="small">{prompts}</ol>',
        "<h2>Every record</h2><details><summary>JSON lines, to go on with or to compute with</summary>"
        f'<pre class="small">{escape(measure_store.dump(measurement))}</pre></details>',
    ]
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>Speculative decoding, measured</title><style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def conditions(measurement: Measurement, analysis: Analysis) -> str:
    """What the verdicts hold for, and what is known about several requests at once, as people read it."""
    design = measurement.design
    way = "greedy" if design.greedy else f"temperature {design.temperature:g}"
    said = f"For one request at a time, {way}, {measurement.origin.dtype}, answers of at most {design.new_tokens} tokens. "
    known = [load for load in analysis.loads if load.speedup is not None]
    if not known:
        return said + "Several requests at once were not measured: measure them before you decide for a server (--at-once 1,2,4,8)."
    turns = max(load.repeats for load in known)
    best: dict[int, Load] = {}  # a measurement may have been stopped before it had them all
    for load in sorted(known, key=lambda load: load.speedup):
        best[load.at_once] = load
    told = "; ".join(f"{count} at once {best[count].speedup:.2f}× ({best[count].arm.name})" for count in sorted(best))
    told += f": the best throughput against plain decoding, from {turns} turn{'s' * (turns > 1)}, without an interval."
    return said + f"With several, {told}"


def _verdict(verdict: Verdict) -> str:
    look = {True: "use", False: "not", None: "open"}[verdict.use]
    name = verdict.sentence[: len(verdict.kind or "All tasks")]
    words = verdict.sentence[len(name) + 2 :]
    return f'<li class="{look}"><b>{escape(name)}:</b> {escape(words)}</li>'


def _section(title: str, rows: Sequence[Row]) -> str:
    return f'<h2>{escape(title)}</h2><div class="wide">{_table(rows)}</div>' if rows else ""


def _table(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(show(v))}</td>" for v in row.values()) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def show(value: Any) -> str:
    """A cell of a table: three digits that count, a dash for what is not known."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {v}" for k, v in value.items()) or "–"
    return ", ".join(map(str, value)) or "–" if isinstance(value, list | tuple) else str(value)


def _intervals(verdicts: Sequence[Verdict]) -> str:
    """The best arm of each kind as a point with its interval, 1× as a line. Words beside every mark."""
    known = [v for v in verdicts if v.speedup is not None and v.best is not None]
    if not known:
        return ""
    left, width, row = 190, 470, 30
    most = max(1.2, *(v.speedup.high for v in known)) * 1.08

    def x(value: float) -> float:
        return left + width * value / most

    marks = []
    for index, v in enumerate(known):
        y, colour = 22 + row * index, {True: "#0072B2", False: "#D55E00", None: "#8A94A3"}[v.use]
        label = f"{v.speedup.value:.2f}× {v.best.name}"
        marks.append(
            f'<text x="{left - 10}" y="{y + 5}" text-anchor="end">{escape(v.kind or "all tasks")}</text>'
            f'<line x1="{x(v.speedup.low):.1f}" x2="{x(v.speedup.high):.1f}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="4"/>'
            f'<circle cx="{x(v.speedup.value):.1f}" cy="{y}" r="6" fill="{colour}"/>'
            f'<text x="{max(x(v.speedup.high), x(v.speedup.value)) + 10:.1f}" y="{y + 5}">{escape(label)}</text>'
        )
    height = 22 + row * len(known)
    axis = (
        f'<line x1="{x(1):.1f}" x2="{x(1):.1f}" y1="6" y2="{height}" stroke="#8A94A3" stroke-dasharray="4 4"/>'
        f'<text x="{x(1):.1f}" y="{height + 16}" text-anchor="middle">1×: plain decoding</text>'
        f'<text x="{left}" y="{height + 16}" text-anchor="middle">0×</text>'
    )
    size = f"0 0 {left + width + 190} {height + 24}"
    return (
        f'<h2>Speed-up of the best arm</h2><svg viewBox="{size}" role="img" aria-label="Speed-up of the best arm of each kind">'
        f"{''.join(marks)}{axis}</svg>"
    )
