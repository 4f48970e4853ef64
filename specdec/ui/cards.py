"""The lesson: ten cards over the pages of the app, told in assets/texts under "lesson.cards".

A card names a page, what stands in its controls, the part that it speaks of, and, where it plays a recording, from which step to
which. Everything comes from recordings and formulas, so that no model and no network is wanted. `?card=3` is a link to a card: on
the page Lesson it is told there, on the page of the card (`/speedup?card=7`) that page opens with a bar above it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from specdec.ui import session

Step = tuple[int, str] | tuple[int, str, int]  # number of the round from 0, state, and the judged draft where the state is judge


@dataclass(frozen=True, kw_only=True)
class Card:
    """One card of the lesson.

    name: of its text. page: the page that it opens. query: what stands in the address there, by the names that the page binds.
    view: the key of the page's choice of pictures, which the address calls `show`. recording: what is put on the stage (a run, or
    on the page race a race). at, until: first and last step of the stage. parts: what is outlined on the stage; places: the same
    on the rest of the page, as CSS selectors.
    """

    name: str
    page: str
    query: Mapping[str, str | int | float] = field(default_factory=dict)
    view: str = ""
    recording: str = ""
    at: Step | None = None
    until: Step | None = None
    parts: tuple[str, ...] = ()
    places: tuple[str, ...] = ()


STORY, COPY, RACE = "2-head-sampled", "1-copying-sampled", "1-copying-wins"
TOLD = 14  # the round of the story that three cards look at: one draft always stays, one by luck, one falls
FULL = 3  # the round of the copy in which all drafts stay

CARDS = (
    Card(name="slow", page="race", recording=RACE, parts=("plain",)),
    Card(name="draft", page="rounds", recording=STORY, at=(TOLD, "draft"), until=(TOLD, "verify"), parts=("cards", "bracket")),
    Card(name="test", page="rounds", recording=STORY, at=(TOLD, "verify"), until=(TOLD, "judge", 1), parts=("card", "why")),
    Card(name="reject", page="rounds", recording=STORY, at=(TOLD, "judge", 1), until=(TOLD, "commit"), parts=("places", "added")),
    Card(name="bonus", page="rounds", recording=COPY, at=(FULL, "verify"), until=(FULL, "commit"), parts=("added", "text")),
    Card(
        name="law",
        page="residual",
        view="residual_show",
        query={"show": "parts", "from": "example"},
        places=(".lesson-answer", ".st-key-chart_sum"),
    ),
    Card(
        name="faster",
        page="speedup",
        view="speedup_show",
        query={"show": "length", "alpha": 0.8, "gamma": 4, "cost": 0.05, "slope": 0.0},
        places=(".lesson-answer", ".st-key-chart_length"),
    ),
    Card(
        name="limits",
        page="limits",
        view="limits_show",
        query={"show": "poor", "alpha": 0.8, "gamma": 4, "cost": 0.05, "slope": 0.0},
        places=(".lesson-answer",),
    ),
    Card(name="adopt", page="measure", view="adopt_show", query={"show": "verdict"}, places=(".lesson-answer", ".adopt-verdicts")),
    Card(name="questions", page="lesson"),
)


def number_of(wanted: str | None) -> int | None:
    """1 … of a card in the address, None where it names none."""
    return int(wanted) if wanted and wanted.isascii() and wanted.isdigit() and 1 <= int(wanted) <= len(CARDS) else None


def link(number: int) -> dict[str, str]:
    """The address of a card on its own page: the parameters."""
    return {"card": str(number)} | {name: str(value) for name, value in CARDS[number - 1].query.items()}


def opened() -> int | None:
    """The card that the page was opened from, None if from none."""
    return st.session_state.get("_card")


def begin(page: str) -> None:
    """At the start of every page: which card the address names, and, when it is a new one, its settings."""
    state = st.session_state
    number = number_of(st.query_params.get("card"))
    card = CARDS[number - 1] if number is not None else None
    state["_card"] = number if card is not None and card.page == page else None
    told = (page, number)
    if state["_card"] is not None and state.get("_card_set") != told:
        _set(card)
    state["_card_set"] = told


def _set(card: Card) -> None:
    """Put the page's controls where the card wants them.

    Where the address says something else, the page reads that itself; so it does with numbers that no control has had yet.
    """
    for name, value in card.query.items():
        if st.query_params.get(name, str(value)) != str(value):
            continue
        if name == "from":
            _start(str(value))
        elif name == "show":
            st.session_state[card.view] = value
        elif name in st.session_state:
            st.session_state[name] = value
    if card.recording:
        _play(card)


def _start(name: str) -> None:
    """Where the two distributions of the page residual begin; a tab that has not been there yet reads the address itself."""
    from specdec.ui import residual_view  # noqa: PLC0415 - only this card wants it

    if "start" in st.session_state:
        residual_view.begin_from(name)


def _play(card: Card) -> None:
    if card.page == "race":
        from specdec.ui import race_view  # noqa: PLC0415 - only this card wants it

        race_view.play(card.recording)
    elif card.recording in session.recordings():
        session.show(session.recording(card.recording))


def for_stage() -> dict[str, Any]:
    """What a stage is told of the card: {"lesson": None} or its steps and the parts to outline."""
    number = opened()
    if number is None:
        return {"lesson": None}
    card = CARDS[number - 1]
    return {
        "lesson": {"card": number, "parts": list(card.parts), "at": _step(card.at), "until": _step(card.until)},
    }


def _step(step: Step | None) -> dict[str, Any] | None:
    return None if step is None else dict(zip(("round", "phase", "token"), step, strict=False))
