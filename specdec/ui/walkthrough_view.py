"""The cards of the walkthrough: a question to predict, the board, the story; dice; the real models."""

from __future__ import annotations

import json
import random
import sys
from functools import cache
from typing import Any

import streamlit as st

from specdec import story
from specdec.engine import Job, RunRequest, shared
from specdec.errors import SpecdecError
from specdec.trace import Settings
from specdec.ui import lesson, links, looks, panels, session
from specdec.ui.board import board, scale, split
from specdec.ui.explain import explain, literal, visible
from specdec.ui.figures import overlap_figure
from specdec.ui.lesson import text, texts
from specdec.ui.stage import StageView, stage

DICE, REAL = 6, 7  # cards with something to do


def step() -> int:
    """The number of the card, 0 …; ?step=3 in the address is the third card."""
    state, cards = st.session_state, texts("walkthrough.cards")
    if "step" not in state:
        wanted = st.query_params.get("step", "1")
        state.step = wanted if wanted.isdigit() and 1 <= int(wanted) <= len(cards) else "1"
    return int(state.step or 1) - 1


def steps() -> int:
    """Buttons to go through the cards. Returns the number of the card."""
    cards = texts("walkthrough.cards")
    with st.container(key="cards", horizontal=True, gap="small", vertical_alignment="center"):
        at = step() + 1
        st.button(
            text("walkthrough.back"), icon=":material/arrow_back:", key="back", on_click=_go, args=(at - 1,), disabled=at == 1
        )
        st.segmented_control(
            text("walkthrough.steps"),
            [str(i + 1) for i in range(len(cards))],
            required=True,
            key="step",
            on_change=_to_link,
            label_visibility="collapsed",
            persist_state="session",
        )
        st.button(
            text("walkthrough.next"),
            icon=":material/arrow_forward:",
            icon_position="right",
            type="primary",
            key="next",
            on_click=_go,
            args=(at + 1,),
            disabled=at == len(cards),
        )
    return at - 1


def _go(step: int) -> None:
    st.session_state.step = str(step)
    _to_link()


def _to_link() -> None:
    if st.session_state.step in (None, "1"):
        st.query_params.pop("step", None)
    else:
        st.query_params["step"] = st.session_state.step


def card(number: int) -> None:
    """One of the cards that only tell: the board shows what has been told, the question comes before the answer."""
    data = texts("walkthrough.cards")[number]
    trace = story.kept("walkthrough")
    round_ = trace.rounds[data["round"]]
    st.subheader(f"{number + 1} · {data['title']}", anchor=False)
    told = predicted(number, data) if "question" in data else True
    before = [story.WORDS[i] for i in (*trace.prompt_ids, *trace.output_ids)][: round_.start]
    left, right = st.columns([1.25, 1], gap="large")
    with left:
        st.html(board(round_, before=before, parts=data["parts"] if told else data["before"], focus=data["focus"] if told else ()))
    with right:
        if told:
            st.markdown(data["body"])
    if number == DICE - 1 and told:
        with st.expander(text("walkthrough.stage"), key="walk_moving", on_change="rerun") as box:
            if box.open:
                stage(StageView.from_trace(trace, run="walkthrough", label=text("walkthrough.label")), key="walk_stage")
    lesson.kind(text("walkthrough.kind"))


def predicted(number: int, data: dict[str, Any]) -> bool:
    """The question of a card; True once it is answered, or somebody asked to be shown."""
    state, key = st.session_state, f"_guess_{number}"
    given = state.get(key)
    st.markdown(f"**{text('walkthrough.predict')}** {data['question']}")
    if given is None:
        with st.container(horizontal=True, gap="small"):
            for i, option in enumerate(data["options"]):
                st.button(option, key=f"guess_{number}_{i}", on_click=state.__setitem__, args=(key, option))
            st.button(text("walkthrough.reveal"), key=f"show_{number}", type="tertiary", on_click=state.__setitem__, args=(key, ""))
        return False
    if given == data["answer"]:
        st.success(text("walkthrough.right", answer=data["answer"]), icon=":material/check:")
    elif given:
        st.warning(text("walkthrough.wrong", answer=data["answer"]), icon=":material/lightbulb:")
    return True


@st.fragment
def dice() -> None:
    """The sampled round: p, q and u to set, the verdict of the real loop."""
    data, state, usual = texts("walkthrough.cards")[DICE], st.session_state, story.Dice()
    story.warm()
    st.subheader(f"{DICE + 1} · {data['title']}", anchor=False)
    st.markdown(data["body"])
    left, right = st.columns([1, 2.2], gap="medium")
    with left:
        p = st.slider(
            text("walkthrough.p"),
            0.0,
            1.0,
            usual.p,
            0.01,
            key="dice_p",
            bind="query-params",
            disabled=links.locked("dice_p"),
            on_change=_forget,
        )
        q = st.slider(
            text("walkthrough.q"),
            0.05,
            1.0,
            usual.q,
            0.01,
            key="dice_q",
            bind="query-params",
            disabled=links.locked("dice_q"),
            on_change=_forget,
        )
        u = st.slider(
            text("walkthrough.u"), 0.0, 0.99, usual.u, 0.01, key="dice_u", bind="query-params", disabled=links.locked("dice_u")
        )
        st.button(text("walkthrough.throw"), icon=":material/casino:", key="throw", on_click=_throw, width="stretch")
    now = story.Dice(p=round(p, 2), q=round(q, 2), u=round(u, 2))
    if "torch" in sys.modules or now == usual:
        trace = story.sampled(now)
    else:
        with st.spinner(text("walkthrough.starting")):
            trace = story.sampled(now)
    round_ = trace.rounds[0]
    draft = round_.drafts[story.PLACE]
    kept = draft.status == "accepted"
    with right:
        words = text(
            "walkthrough.dice.kept" if kept else "walkthrough.dice.gone",
            u=now.u,
            chance=draft.accept_probability,
            word=round_.outcome.text.strip(),
        )
        lesson.answer(words, good=kept)
        st.html(scale(draft.accept_probability, now.u))
        parts = ("drafts", "accepted", "replacement", "tail", "after")
        st.html(board(round_, before=[story.PROMPT], parts=parts, focus=(story.PLACE,)))
        if tally := state.get("_tally"):
            st.caption(text("walkthrough.dice.tally", **tally, expected=tally["count"] * draft.accept_probability))
    said = explain(trace.settings, round_, story.PLACE)
    left, right = st.columns(2, gap="medium")
    with left:
        lesson.chart(*overlap_figure(round_, draft), key="dice_chart")
    with right:
        st.markdown(said.words)
        st.latex(said.formula)
        st.caption(said.exact)
        st.markdown(text("walkthrough.dice.why"))
    lesson.kind(text("walkthrough.dice.kind"))


def _forget() -> None:
    st.session_state.pop("_tally", None)


def _throw() -> None:
    """Another u, and one more in the tally."""
    state = st.session_state
    state.dice_u = round(random.randrange(100) / 100, 2)
    chance = min(1.0, state.dice_p / state.dice_q)
    tally = state.get("_tally", {"count": 0, "kept": 0})
    state["_tally"] = {"count": tally["count"] + 1, "kept": tally["kept"] + (state.dice_u < chance)}


@cache
def _split() -> dict[str, Any]:
    return json.loads((story.FOLDER / "split.json").read_text(encoding="utf-8"))


def real(*, poll: float | None) -> None:
    """How a real tokenizer cuts a text, and the real pair going on from there. poll: seconds between two looks, None at rest."""
    data = texts("walkthrough.cards")[REAL]
    st.subheader(f"{REAL + 1} · {data['title']}", anchor=False)
    st.markdown(data["body"])
    for tokens in _split()["texts"]:
        st.html(split(tokens))
    lesson.kind(text("walkthrough.split.recorded", name=_split()["tokenizer"]))
    pair = shared().pair
    if pair is None:
        st.caption(text("walkthrough.split.later"))
    else:
        own = st.text_input(
            text("walkthrough.split.own"),
            "Please send the invoice today.",
            max_chars=300,
            key="own_text",
            bind="query-params",
            disabled=links.locked("own_text"),
        )
        ids = pair.encode(own, raw=True) if own else []
        st.html(split([visible(pair.texts.text(i)) for i in ids]))
        lesson.kind(text("walkthrough.split.live", count=len(ids), name=literal(pair.title)))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.text_input(
            text("walkthrough.real.prompt"),
            "Please send the",
            max_chars=500,
            key="real_prompt",
            bind="query-params",
            disabled=links.locked("real_prompt"),
        )
        st.button(
            text("walkthrough.real.run"),
            icon=":material/play_arrow:",
            type="primary",
            key="real_run",
            on_click=_run,
            help=text("walkthrough.real.help"),
        )
        st.button(text("walkthrough.real.stop"), icon=":material/stop:", key="real_stop", on_click=_stop, disabled=poll is None)
    if message := session.take_notice():
        st.error(literal(message), icon=":material/error:")
    looks.fragment(_live, every=poll)()


def own_job() -> Job | None:
    """The run that was started from here."""
    shown = session.shown()
    job = shown.job if shown is not None else None
    return job if job is not None and job.id == st.session_state.get("_real") else None


def state_of_run() -> str | None:
    """Where it stands."""
    job = own_job()
    return job.state if job is not None else None


def _live() -> None:
    before = st.session_state.get("_real_seen")
    now = state_of_run()
    if now is None:
        return
    stage(panels.view_of(session.shown()), key="real_stage")
    if now != before:
        st.session_state["_real_seen"] = now
        st.rerun()  # starts or stops the polling


def _run() -> None:
    settings = Settings(drafter=session.offered_drafters()[0], draft_length=4, max_new_tokens=24, raw=True)
    try:
        session.run(RunRequest(prompt=st.session_state.real_prompt, settings=settings))
        st.session_state["_real"] = session.shown().job.id
        st.session_state["_real_seen"] = "queued"
    except SpecdecError as error:
        session.notice(str(error))


def _stop() -> None:
    session.lease().stop()
