"""What is seen of the lesson: the bar above a page that was opened from a card, the page Lesson itself, and the teacher notes."""

from __future__ import annotations

import html
from functools import cache
from typing import Any

import streamlit as st

from specdec import metrics, theory
from specdec.texts import ENGLISH, language
from specdec.ui import cards, session
from specdec.ui.cards import CARDS, Card
from specdec.ui.explain import literal
from specdec.ui.lesson import texts
from specdec.ui.session import ROOT
from specdec.ui.texts import text

NOTES = ROOT / "assets" / "lessons"  # notes.LANGUAGE.md
SPOT = "color-mix(in srgb, #E69F00 78%, currentColor)"  # seen on white and on the dark background


@cache
def values(name: str) -> dict[str, Any]:
    """The numbers in the text of a card, from the recording or the formula that its page shows."""
    if name == "slow":
        from specdec.race import compare  # noqa: PLC0415 - only this card wants it
        from specdec.ui import race_view  # noqa: PLC0415

        plain = compare(race_view.recordings()[cards.RACE]).plain
        return {"passes": plain.passes, "seconds": plain.complete}
    if name in ("draft", "bonus"):
        trace = session.recordings()[cards.STORY if name == "draft" else cards.COPY]
        round_ = trace.rounds[cards.TOLD if name == "draft" else cards.FULL]
        return {
            "count": len(round_.drafts),
            "tokens": sum(d.status == "accepted" for d in round_.drafts) + (round_.outcome.id is not None),
            "draft": 1000 * sum(round_.seconds.draft),
            "verify": 1000 * round_.seconds.verify,
            "plain": 1000 * (trace.plain_step_seconds or 0.0),
        }
    if name == "faster":
        query = next(card for card in CARDS if card.name == name).query
        alpha, gamma, cost = query["alpha"], query["gamma"], query["cost"]
        best = theory.best_draft_length(alpha, cost, longest=24)
        found = {"alpha": alpha, "gamma": gamma, "cost": cost, "speed": theory.speedup(alpha, gamma, cost)}
        return found | {"best": best.draft_length, "best_speed": best.speedup}
    if name == "limits":
        from specdec.ui import limits_view  # noqa: PLC0415

        runs = next(iter(limits_view.recorded().values()), {})
        figures = [(metrics.summary(trace).speedup, drafter) for drafter, trace in runs.items()]
        ranked = sorted((speed, drafter) for speed, drafter in figures if speed is not None)
        if not ranked:
            return {}
        (slowest, last), (fastest, first) = ranked[0], ranked[-1]
        return {"slowest": slowest, "last": last, "fastest": fastest, "first": first}
    if name == "adopt":
        from specdec.ui import measure_controls  # noqa: PLC0415

        measured = next(iter(measure_controls.recorded().values()), None)
        if measured is None:
            return {}
        verdicts = measure_controls.analysis_of(measured).verdicts[1:]
        return {"use": sum(v.use is True for v in verdicts), "kinds": len(verdicts)}
    return {}


def words(card: Card) -> str:
    """The text of a card; one sentence where the recording that its numbers come from cannot be read."""
    try:
        found = values(card.name)
    except KeyError:  # no recording of that name
        found = {}
    if not found and "{" in text(f"lesson.{card.name}"):
        return text("lesson.unread")
    return text(f"lesson.{card.name}", **{k: literal(v) if isinstance(v, str) else v for k, v in found.items()})


def title(card: Card) -> str:
    return text(f"lesson.{card.name}.title")


def bar(pages: dict[str, Any]) -> None:
    """Above a page that was opened from a card: the card, and the way on. pages: by the names that cards use."""
    number = cards.opened()
    if number is None or CARDS[number - 1].page == "lesson":
        return
    card = CARDS[number - 1]
    with st.container(key="cardbar", horizontal=True, gap="small", vertical_alignment="center"):
        with st.container(key="cardwords", width="stretch"):
            st.markdown(f"**{number} · {title(card)}** &ensp;{words(card)}")
        with st.container(key="cardnav", horizontal=True, gap="small", vertical_alignment="center", width="content"):
            _link("back", pages, number - 1)
            _link("next", pages, number + 1)
            with st.container(key="card_all", width="content"):
                st.page_link(pages["lesson"], label=text("lesson.all"), query_params={"card": str(number)})
    _outline(number, card)


def _outline(number: int, card: Card) -> None:
    """What the card speaks of, outside the stage; inside the stage does it itself."""
    where = ", ".join(card.places)
    rule = f"{where} {{ outline: 0.25rem solid {SPOT}; outline-offset: 0.25rem; border-radius: 0.35rem; }}" if where else ""
    st.html(f"<style>:root {{ --card: '{number}'; --card-places: '{where}'; }} {rule}</style>")


def _link(which: str, pages: dict[str, Any], number: int) -> None:
    """To another card, on its own page; before the first and behind the last there is only the lesson."""
    with st.container(key=f"card_{which}", width="content"):
        if 1 <= number <= len(CARDS):
            page, query = pages[CARDS[number - 1].page], cards.link(number)
        else:
            page, query = pages["lesson"], {}
        icon = {"back": ":material/arrow_back:", "next": ":material/arrow_forward:"}[which]
        position = "left" if which == "back" else "right"
        st.page_link(page, label=text(f"lesson.{which}"), icon=icon, icon_position=position, query_params=query)


# --- the page Lesson ---


def at() -> int:
    """The number of the card, 1 …; ?card=3 in the address is the third card, and stays with the one that is chosen."""
    state = st.session_state
    asked = cards.number_of(st.query_params.get("card"))
    if asked is not None or "lesson_card" not in state:
        state.lesson_card = str(asked or 1)
    return int(state.lesson_card or 1)


def _to_link() -> None:
    st.query_params["card"] = st.session_state.lesson_card or "1"


def show_cards(pages: dict[str, Any]) -> None:
    """All cards by number, and the chosen one in large type with the way to its page."""
    number = at()
    st.segmented_control(
        text("lesson.card"),
        [str(i + 1) for i in range(len(CARDS))],
        required=True,
        key="lesson_card",
        on_change=_to_link,
        label_visibility="collapsed",
        wrap=True,
        persist_state="session",
    )
    card = CARDS[number - 1]
    with st.container(key="cardbody"):
        st.header(f"{number} · {title(card)}", anchor=False)
        st.markdown(words(card))
        if card.page == "lesson":
            _questions()
    with st.container(key="cardnav", horizontal=True, gap="small", vertical_alignment="center"):
        with st.container(key="card_back", width="content"):
            if number > 1:
                _to_card("back", pages, number - 1)
        if card.page != "lesson":
            with st.container(key="card_next", width="content"):
                label = text("lesson.open", page=pages[card.page].title)
                st.page_link(pages[card.page], label=label, icon=":material/play_arrow:", query_params=cards.link(number))
        if number < len(CARDS):
            with st.container(key="card_skip", width="content"):
                _to_card("next", pages, number + 1)


def _to_card(which: str, pages: dict[str, Any], number: int) -> None:
    icon = {"back": ":material/arrow_back:", "next": ":material/arrow_forward:"}[which]
    position = "left" if which == "back" else "right"
    st.page_link(
        pages["lesson"], label=text(f"lesson.{which}"), icon=icon, icon_position=position, query_params={"card": str(number)}
    )


def _questions() -> None:
    items = (
        f'<details class="asked"><summary>{html.escape(one["question"])}</summary><p>{html.escape(one["answer"])}</p></details>'
        for one in texts("lesson.asked")
    )
    st.html("".join(items))


def notes() -> str:
    """The teacher notes as Markdown in the language of the tab, or in English where they lack it. Raises OSError."""
    own = NOTES / f"notes.{language()}.md"
    return (own if own.is_file() else NOTES / f"notes.{ENGLISH}.md").read_text(encoding="utf-8")


def show_notes() -> None:
    """The teacher notes, to read, to print and to take along."""
    try:
        found = notes()
    except OSError:
        st.info(text("lesson.notes.missing"))
        return
    with st.container(key="notesbar", horizontal=True, gap="small"):
        st.button(text("lesson.notes.print"), icon=":material/print:", key="notes_print")
        st.download_button(
            text("lesson.notes.download"),
            data=found,
            file_name="teacher-notes.md",
            mime="text/markdown",
            icon=":material/download:",
            on_click="ignore",
            key="notes_download",
        )
    with st.container(key="notes"):
        st.markdown(found)
