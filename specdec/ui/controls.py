"""Everything a person sets. The names in the address are the names of `specdec.trace.Settings`, so that a link is a run."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from specdec.catalogue import CATALOGUE
from specdec.engine import RunRequest
from specdec.errors import SpecdecError, TraceError
from specdec.trace import Settings, Trace
from specdec.ui import links, recordings, session
from specdec.ui.texts import examples, text

PROMPT_CHARACTERS = 8_000  # the prompt stands in the address as well
FILE_MEGABYTES = 8


def read() -> RunRequest:
    """The run that the controls describe. Raises SettingsError."""
    state = st.session_state
    settings = Settings(
        drafter=state.drafter,
        draft_length=state.draft_length,
        adaptive=state.adaptive,
        temperature=round(state.temperature, 3),
        top_k=state.top_k,
        top_p=state.top_p,
        max_new_tokens=state.max_new_tokens,
        seed=state.seed,
        raw=state.raw,
    )
    return RunRequest(prompt=state.prompt, settings=settings, pair=session.pair())


def _run(start: Callable[[RunRequest], None]) -> None:
    try:
        start(read())
        for name in ("recording", "race"):
            links.put(name, None)
    except SpecdecError as error:
        session.notice(str(error))


def _stop() -> None:
    session.lease().stop()


def _example() -> None:
    st.session_state.prompt = examples()[st.session_state.example]


def _play(key: str) -> None:
    """Put a shipped recording or a kept run on the stage; the address names only what everybody has."""
    kept = recordings.RUNS.kept.get(key)
    session.show(session.recording(key) if kept is None else session.kept(key, kept))
    links.put("recording", key if kept is None else None)


def _open() -> None:
    file = st.session_state.file
    if file is None:
        return
    try:
        if file.size > FILE_MEGABYTES * 2**20:
            raise TraceError(text("file.too_large", size=file.size / 2**20, most=FILE_MEGABYTES))
        session.show_file(Trace.from_json(file.getvalue()), name=file.name, run=file.file_id)
    except SpecdecError as error:
        session.notice(text("file.refused", name=file.name, why=error))


def prompt_bar(*, active: bool, run: str = "run", start: Callable[[RunRequest], None] = session.run) -> None:
    """Prompt, Run, Stop and examples in one row; the prompt opens while somebody writes in it (assets/app.css).

    run: name of the button's texts. start: what it does with the request; a SpecdecError of it is said on the page.
    """
    with st.container(key="bar", horizontal=True, gap="small"):
        st.text_area(
            text("prompt.label"),
            value=next(iter(examples().values())),
            height=72,
            max_chars=PROMPT_CHARACTERS,
            key="prompt",
            placeholder=text("prompt.placeholder"),
            label_visibility="collapsed",
            bind="query-params",
            disabled=links.locked("prompt"),
        )
        st.button(
            text(run),
            type="primary",
            icon=":material/play_arrow:",
            shortcut="Ctrl+Enter",
            key="run",
            help=text(f"{run}.help"),
            on_click=_run,
            args=(start,),
            disabled=links.locked("run"),
        )
        st.button(text("stop"), icon=":material/stop:", key="stop", help=text("stop.help"), on_click=_stop, disabled=not active)
        st.menu_button(
            text("examples"),
            list(examples()),
            icon=":material/lightbulb:",
            key="example",
            on_click=_example,
            disabled=links.locked("prompt") or links.locked("example"),
        )


def settings() -> None:
    """The settings of a run, for the sidebar."""
    offered = session.offered_drafters(session.pair())
    st.selectbox(
        text("drafter.label"),
        offered,
        format_func=lambda name: text(f"drafter.{name}.title"),
        persist_state="session",
        **links.choice("drafter", offered),
    )
    st.caption(text(f"drafter.{st.session_state.drafter}.text"))
    st.slider(
        text("draft_length.label"),
        1,
        12,
        4,
        key="draft_length",
        help=text("draft_length.help"),
        bind="query-params",
        disabled=links.locked("draft_length"),
    )
    st.toggle(
        text("adaptive.label"), key="adaptive", help=text("adaptive.help"), bind="query-params", disabled=links.locked("adaptive")
    )
    st.slider(
        text("temperature.label"),
        0.0,
        2.0,
        0.0,
        0.1,
        key="temperature",
        help=text("temperature.help"),
        bind="query-params",
        disabled=links.locked("temperature"),
    )
    st.slider(
        text("max_new_tokens.label"),
        8,
        256,
        64,
        8,
        key="max_new_tokens",
        help=text("max_new_tokens.help"),
        bind="query-params",
        disabled=links.locked("max_new_tokens"),
    )
    with st.expander(text("more")):
        _target()
        st.number_input(
            text("seed.label"),
            0,
            2**31 - 1,
            0,
            key="seed",
            help=text("seed.help"),
            bind="query-params",
            disabled=links.locked("seed"),
        )
        st.number_input(
            text("top_k.label"),
            0,
            1000,
            0,
            key="top_k",
            help=text("top_k.help"),
            bind="query-params",
            disabled=links.locked("top_k"),
        )
        st.slider(
            text("top_p.label"),
            0.05,
            1.0,
            1.0,
            0.05,
            key="top_p",
            help=text("top_p.help"),
            bind="query-params",
            disabled=links.locked("top_p"),
        )
        st.toggle(text("raw.label"), key="raw", help=text("raw.help"), bind="query-params", disabled=links.locked("raw"))


def _target() -> None:
    """Which pair decodes, where the server offers more than one."""
    pairs = session.offered_pairs()
    if len(pairs) > 1:
        st.selectbox(
            text("pair.label"),
            pairs,
            format_func=lambda name: CATALOGUE[name].title,
            help=text("pair.help"),
            persist_state="session",
            **links.choice("pair", pairs),
        )


def runs(trace: Trace | None, *, name: str) -> None:
    """Recorded, kept and saved runs, for the sidebar. trace: the run on the stage, once it has ended. name: its identity."""
    st.subheader(text("runs"), anchor=False)
    recordings.chooser(recordings.RUNS, session.recordings(), _play, key="recording")
    suggested = (trace.title or trace.prompt) if trace is not None else ""
    recordings.keeper(recordings.RUNS, trace, name.removeprefix("kept-"), suggested, _play)
    st.download_button(
        text("download"),
        data=trace.to_json if trace is not None else b"",  # made when the button is pressed, not with every picture
        file_name=f"run-{name}.json",
        mime="application/json",
        icon=":material/download:",
        help=text("download.help"),
        disabled=trace is None,
        on_click="ignore",
        key="download",
        width="stretch",
    )
    st.file_uploader(
        text("open.label"), type=["json"], key="file", help=text("open.help"), on_change=_open, max_upload_size=FILE_MEGABYTES
    )
