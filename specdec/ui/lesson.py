"""What the pages that teach have in common: question, answer, picture with its table, formula, sources.

    with lesson.page("speedup"):            # title and a paragraph for newcomers
        ...
        lesson.answer("…")                  # the answer in one sentence, with the numbers of the moment
        lesson.chart(figure, alt, key="…")  # a picture
        lesson.table(rows, name="…")        # the same data, to read and to download
    lesson.sources("speedup")               # at the end

Texts come from assets/texts/lessons.*.json by name.
"""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import streamlit as st

from specdec import texts as _texts
from specdec.trace import Trace
from specdec.ui import cards, links, present, recordings, session
from specdec.ui.charts import larger
from specdec.ui.session import ROOT
from specdec.ui.texts import text

CHART = {"displayModeBar": False, "responsive": True, "scrollZoom": False}

Row = dict[str, Any]


texts = _texts.get  # a list or a table of texts


@contextmanager
def page(name: str, *, intro: bool = True) -> Iterator[None]:
    """The frame of a page: the question, and a paragraph for somebody who meets the subject for the first time.

    A card of the lesson above the page tells more than the paragraph, which then makes room.
    """
    st.html(ROOT / "assets" / "lesson.css")
    with st.container(key="lesson"):
        st.title(text(f"{name}.title"), anchor=False)
        if intro and cards.opened() is None:
            st.markdown(text(f"{name}.intro"))
        yield


def choose(name: str, options: dict[str, str], label: str) -> str:
    """One of several views, as a row of buttons. The address has the name of the option, whatever the language: ?show=map."""
    st.segmented_control(
        label,
        list(options),
        required=True,
        format_func=options.__getitem__,
        label_visibility="collapsed",
        wrap=True,
        persist_state="session",
        **links.choice("show", options, key=name),
    )
    return st.session_state[name] or next(iter(options))


def answer(sentence: str, *, good: bool = True) -> None:
    """The answer with the numbers of the moment. Plain text, but for ** around what is bold."""
    parts = html.escape(sentence).split("**")
    marked = "".join(f"<strong>{part}</strong>" if i % 2 else part for i, part in enumerate(parts))
    st.html(f'<p class="lesson-answer{"" if good else " lesson-bad"}" role="status">{marked}</p>')


def kind(words: str) -> None:
    """What sort of figure this is: a formula, a measurement with device and day, a figure of a paper."""
    st.caption(words)


def chart(figure: dict, alt: str, *, key: str) -> None:
    st.plotly_chart(larger(figure) if present.on("present") else figure, key=key, config=CHART, alt=alt)


def table(rows: Sequence[Row], *, name: str, height: int | str = "content") -> None:
    """The data of a picture as a table, and for download. name: of the file, and of the widgets."""
    with st.expander(text("table"), key=f"table_{name}", on_change="rerun") as box:
        if box.open:  # sent only when somebody looks at it
            st.download_button(
                text("table.download"),
                data=_csv(rows),
                file_name=f"{name}.csv",
                mime="text/csv",
                icon=":material/download:",
                on_click="ignore",
                key=f"csv_{name}",
            )
            shown = [{k: _short(v) for k, v in row.items()} for row in headed(rows)]
            st.table(shown, hide_index=True, height=height if len(shown) <= 14 else 420, alt=text("table"))


def headed(rows: Sequence[Row]) -> list[Row]:
    """The rows with their columns named in the language of the tab; in files the names stay as they are."""
    names = texts("columns")
    found = []
    for row in rows:
        named = {names.get(column, column): value for column, value in row.items()}
        found.append(named if len(named) == len(row) else row)  # two columns must not become one
    return found


def _csv(rows: Sequence[Row]) -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]) if rows else [])
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode("utf-8")


def _short(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return _texts.number(value, ".4g")
    return _plain(str(value))


def _plain(value: str) -> str:
    """Token text in a table is data: Streamlit reads Markdown in table cells."""
    return "".join("\\" + c if c in "\\`*_{}[]()#+!|<>$~:" else c for c in value)


def formula(name: str) -> None:
    """The exact part, for those who want it: lines of text and, between them, LaTeX (lines that begin with $)."""
    with st.expander(text("formula"), icon=":material/function:"):
        for line in texts(f"{name}.formula"):
            if line.startswith("$"):
                st.latex(line[1:])
            else:
                st.markdown(line)


def sources(name: str) -> None:
    st.divider()
    st.markdown(f"**{text('sources')}**\n\n" + "\n".join(f"- {line}" for line in texts(f"{name}.sources")))


def runs() -> dict[str, Trace]:
    """Speculative runs that a page can look at, by name: the one on this tab's stage first, then the recordings."""
    found = {}
    shown = session.shown()
    if shown is not None and shown.kind != "recording" and shown.result is not None and shown.result.rounds:
        found[text("run.own", label=shown.label)] = shown.result
    for name, trace in st.session_state.get("_measured", {}).items():
        found[text("run.measured", name=name)] = trace
    for name, trace in session.recordings().items():
        found[recordings.title(name, trace)] = trace
    return {name: trace for name, trace in found.items() if trace.method == "speculative" and trace.totals.drafted}
