"""Two views of the page about exactness: many continuations counted, and what rounding does."""

from __future__ import annotations

import streamlit as st

from specdec import experiments
from specdec.engine import RunRequest
from specdec.law import Law, LawFinding, compare
from specdec.precision import Precision, PrecisionFinding, Text
from specdec.ui import experiment_figures, lesson, links, measuring, session
from specdec.ui.explain import literal, p_value, visible
from specdec.ui.lesson import text, texts
from specdec.ui.texts import examples

LAW, PRECISION = "law", "precision"
SERIES = (LAW, PRECISION)
COUNTS = (100, 200, 400, 1000)


def law() -> None:
    """Which tokens come next, speculative and alone, with a test."""
    own = measuring.finding(LAW, LawFinding)
    found = own if own is not None and min(own.counts) else experiments.recorded(LAW, LawFinding)
    if found is not None:
        names = texts("residual.law.places")
        place = st.segmented_control(
            text("residual.law.place"),
            list(names),
            required=True,
            format_func=names.__getitem__,
            **links.choice("law_place", names),
            label_visibility="collapsed",
            wrap=True,
        )
        seen = compare(found, None if place == "all" else int(place), others=text("residual.law.others"))
        told, test = found.counts, seen.test
        values = {"speculative": told[0], "alone": told[1], "what": names[place or "0"].lower()}
        which = "none" if test.p_value is None else "fits" if test.p_value >= 0.01 else "off"
        words = text(f"residual.law.{which}", statistic=test.statistic, degrees=test.degrees, p_value=p_value(test.p_value), **values)
        exact = seen.against_exact
        if exact is not None and exact.p_value is not None:
            words += " " + text("residual.law.exact", statistic=exact.statistic, degrees=exact.degrees, p_value=p_value(exact.p_value))
        lesson.answer(words, good=which != "off")
        view = experiment_figures.law_bars(seen, told)
        lesson.chart(view.figure, view.alt, key="chart_law")
        lesson.table(view.rows, name="residual-law")
    left, right = st.columns([2.4, 1], vertical_alignment="bottom")
    with left:
        prompt = st.text_input(
            text("residual.law.prompt"),
            text("residual.law.example"),
            key="law_prompt",
            max_chars=400,
            bind="query-params",
            disabled=links.locked("law_prompt"),
        )
    with right:
        count = st.select_slider(
            text("residual.law.count"),
            COUNTS,
            200,
            key="law_count",
            bind="query-params",
            disabled=links.locked("law_count"),
            persist_state="session",
        )
    asked = Law(count=count, drafter=session.offered_drafters()[0])
    measuring.panel(
        LAW,
        label=text("residual.law.run"),
        requests=lambda: [(text("residual.law.name"), RunRequest(prompt=prompt, experiment=asked))],
    )
    if found is not None:
        said = text(
            "residual.kind.law",
            prompt=found.prompt,
            drafter=found.drafter,
            accepted=found.accepted,
            drafted=found.drafted,
            where=found.where,
        )
        lesson.kind(literal(said if found is own else f"{text('measure.recorded')} {said}"))


def precision() -> None:
    """The same greedy text in several formats, one token a pass against verifying passes; where they part, the two logits."""
    own = measuring.finding(PRECISION, PrecisionFinding)
    found = own if own is not None and own.texts else experiments.recorded(PRECISION, PrecisionFinding)
    if found is not None:
        lesson.answer(_counted(found), good=True)
        near = found.nearest()
        if near is not None:
            st.markdown(f"**{text('residual.precision.near')}**")
            st.markdown(literal(_told(found, near)))
            view = experiment_figures.two_logits(near)
            lesson.chart(view.figure, view.alt, key="chart_precision")
        rows = [row for one in found.texts for row in _rows(found, one)]
        lesson.table(rows, name="residual-precision")
    prompt = st.text_input(
        text("residual.two.prompt"),
        next(iter(examples().values())),
        key="precision_prompt",
        max_chars=2000,
        bind="query-params",
        disabled=links.locked("precision_prompt"),
    )
    measuring.panel(
        PRECISION,
        label=text("residual.precision.run"),
        requests=lambda: [(text("residual.precision.name"), RunRequest(prompt=prompt, experiment=Precision(prompts=(prompt,))))],
    )
    if found is not None:
        left_out = " ".join(found.left_out)
        said = text("residual.kind.precision", drafts=found.block, where=found.where, left_out=left_out)
        lesson.kind(literal(said if found is own else f"{text('measure.recorded')} {said}"))


def _counted(found: PrecisionFinding) -> str:
    """ "float32: 8 of 8 texts the same …"."""
    parts = []
    for name in found.formats:
        own = found.of(name)
        same = sum(one.passes is None for one in own)
        parts.append(text("residual.precision.same", format=name, same=same, of=len(own)))
    return text("residual.precision.answer", formats=", ".join(parts), tokens=sum(one.tokens for one in found.of(found.formats[0])))


def _told(found: PrecisionFinding, one: Text) -> str:
    parted = one.passes
    return text(
        "residual.precision.told",
        format=one.format,
        prompt=found.prompts[one.prompt][:80],
        place=parted.place + 1,
        first=visible(parted.first),
        second=visible(parted.second),
        gap=abs(parted.gap),
        usual=one.usual_gap,
    )


def _rows(found: PrecisionFinding, one: Text) -> list[lesson.Row]:
    row: lesson.Row = {"format": one.format, "prompt": found.prompts[one.prompt][:40], "tokens": one.tokens}
    for name, parted in (("verifying passes", one.passes), (f"{found.formats[0]}", one.formats)):
        row[f"against {name}"] = (
            "the same" if parted is None else f"parts at {parted.place + 1}: {visible(parted.first)} / {visible(parted.second)}"
        )
        row[f"gap of the two logits ({name})"] = None if parted is None else parted.gap
    return [row | {"usual gap": one.usual_gap}]
