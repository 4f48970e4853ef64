"""Figures of work that leaves little to gain: a long prompt with a short answer, and a target that is a mixture of experts."""

from __future__ import annotations

import numpy as np

from specdec import theory
from specdec.experts import MIXTURES, Mixture
from specdec.texts import number, text
from specdec.ui import charts
from specdec.ui.charts import BONUS, KEPT, LEFT, P, Q, View
from specdec.ui.speedup_figures import Inputs

LENGTHS = (1, 4, 16, 64, 256, 1024, 4096)  # new tokens of an answer
READING = (0, 1, 3, 10, 30, 100, 300, 1000)  # time for the prompt in plain steps
OTHERS = (10, 100, 1000)
REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def whole_answer(now: Inputs, *, reading: int, length: int) -> View:
    """Speed-up of the whole answer against its length, for a prompt that takes `reading` plain steps to read, and for others."""
    x = np.unique(np.round(np.geomspace(LENGTHS[0], LENGTHS[-1], 61)))
    alone = float(now.speedup(now.draft_length))
    data = [
        charts.line(x, np.full(len(x), alone), text("fig.decoding_alone"), Q, dash="dash", hover="%{x}: %{y:.2f}×"),
    ]
    for steps in sorted({*OTHERS, reading}):
        y = theory.answer_speedup(alone, x, steps, now.cost)
        chosen = steps == reading
        data.append(
            charts.line(
                x,
                y,
                text("fig.reading_steps", n=steps),
                P if chosen else LEFT,
                width=4 if chosen else 1.2,
                dash="solid" if chosen else "dot",
                hover=text("fig.reading_steps", n=steps) + ", %{x}: %{y:.2f}×",
                legend=chosen,
            )
        )
    here = float(theory.answer_speedup(alone, length, reading, now.cost))
    data.append(charts.points([length], [here], text("fig.here"), LEFT, symbol="x", size=14))
    shape, words = charts.flat(1, text("axis.plain"), right=True)
    notes = [words]
    for steps in OTHERS:  # where each thin line is half-way between nothing and all
        if steps == reading:
            continue
        at = float(np.clip(steps, 2, LENGTHS[-1] / 3))
        y = float(theory.answer_speedup(alone, at, steps, now.cost))
        notes.append({"x": np.log10(at), "y": y, "text": number(steps, "g"), "showarrow": False, "font": {"size": 13, "color": LEFT}, "yshift": 9})
    figure = charts.figure(
        data,
        x=text("axis.answer_tokens"),
        y=text("axis.speedup"),
        shapes=[shape],
        notes=notes,
        xaxis={"type": "log", "tickvals": list(LENGTHS), "ticktext": [number(n, "g") for n in LENGTHS]},
        yaxis={"range": [0, max(1.5, alone * 1.12)], "ticksuffix": "×"},
    )
    rows = [
        {"new tokens": n}
        | {f"P {steps}": float(theory.answer_speedup(alone, n, steps, now.cost)) for steps in sorted({0, *OTHERS, reading})}
        for n in LENGTHS
    ]
    told = " ".join(text("alt.whole_answer.one", n=r["new tokens"], speed=r[f"P {reading}"]) for r in rows)
    return View(figure, text("alt.whole_answer", alone=alone, reading=reading, told=told), rows)


def experts(chosen: Mixture, *, alpha: float, draft_length: int, cost: float, requests: int) -> View:
    """What a pass over γ+1 tokens reads against a plain step, for some mixtures, and the speed-up of the chosen one."""
    others = [m for m in MIXTURES.values() if m is not chosen]
    ratios = {m.name: m.verify_ratio(draft_length, REQUESTS) for m in (chosen, *others)}
    speed = chosen.speedup(alpha, draft_length, cost, REQUESTS)
    data = [
        charts.line(
            REQUESTS,
            ratios[m.name],
            text("fig.experts_read", name=m.name),
            colour,
            width=3 if m is chosen else 1.4,
            dash="dash" if m is chosen else "dot",
            hover=m.name + ", B = %{x}: v = %{y:.2f}",
        )
        for m, colour in zip((chosen, *others), (LEFT, Q, KEPT, BONUS), strict=True)
    ]
    data.append(charts.line(REQUESTS, speed, text("fig.experts_speed", name=chosen.name), P, width=4, hover="B = %{x}: %{y:.2f}×"))
    here = float(chosen.speedup(alpha, draft_length, cost, requests))
    data.append(charts.points([requests], [here], text("fig.here"), LEFT, symbol="x", size=14))
    shape, words = charts.flat(1, text("axis.plain"), right=True)
    figure = charts.figure(
        data,
        x=text("axis.requests_b"),
        y=text("axis.speedup_v"),
        shapes=[shape],
        notes=[words],
        xaxis={"type": "log", "tickvals": list(REQUESTS), "ticktext": [str(b) for b in REQUESTS]},
        yaxis={"rangemode": "tozero"},
    )
    rows = [
        {"B": b} | {f"v {name}": float(values[i]) for name, values in ratios.items()} | {f"speed-up {chosen.name}": float(speed[i])}
        for i, b in enumerate(REQUESTS)
    ]
    told = " ".join(
        text("alt.roofline.one", b=b, ratio=float(ratios[chosen.name][i]), speed=float(speed[i])) for i, b in enumerate(REQUESTS)
    )
    return View(figure, text("alt.experts", name=chosen.name, told=told), rows)
