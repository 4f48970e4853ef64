"""Everything a person sets. The names in the address are the names of `specdec.trace.Settings`, so that a link is a run."""

from __future__ import annotations

import math
from collections.abc import Callable

import streamlit as st

from specdec.catalogue import DEFAULT_PAIR
from specdec.engine import RunRequest
from specdec.errors import SpecdecError, TraceError
from specdec.trace import Settings, Trace
from specdec.ui import session
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
    return RunRequest(prompt=state.prompt, settings=settings, pair=DEFAULT_PAIR)


def _run(start: Callable[[RunRequest], None]) -> None:
    try:
        start(read())
    except SpecdecError as error:
        session.notice(str(error))


def _stop() -> None:
    session.lease().stop()


def _example() -> None:
    st.session_state.prompt = examples()[st.session_state.example]


def _play() -> None:
    session.show(session.recording(st.session_state.recording))


def _open() -> None:
    file = st.session_state.file
    if file is None:
        return
    try:
        if file.size > FILE_MEGABYTES * 2**20:
            raise TraceError(f"This file has {file.size / 2**20:.0f} MB, a trace has {FILE_MEGABYTES} at most: choose another one.")
        session.show_file(Trace.from_json(file.getvalue()), name=file.name, run=file.file_id)
    except SpecdecError as error:
        session.notice(f"{file.name} was not opened, everything stays as it was. {error}")


def _drafter_from_link(offered: tuple[str, ...]) -> None:
    """Streamlit would put the drafter's title into the address; a link has its name, whatever the language."""
    if "drafter" not in st.session_state:
        wanted = st.query_params.get("drafter")
        st.session_state.drafter = wanted if wanted in offered else offered[0]
        if wanted is not None and wanted != st.session_state.drafter:
            del st.query_params["drafter"]


def _whole_from_link(*names: str) -> None:
    """An infinite number in a link would be an error page of Streamlit's; it falls back to the usual one, as any bad value does."""
    bad = [name for name in names if name not in st.session_state and not _finite(st.query_params.get(name, "0"))]
    for name in bad:
        del st.query_params[name]
    if bad:
        st.rerun()  # the address as it was when the page was opened counts until then


def _finite(number: str) -> bool:
    try:
        return math.isfinite(float(number))
    except ValueError:
        return False


def _drafter_to_link(usual: str) -> None:
    if st.session_state.drafter == usual:
        st.query_params.pop("drafter", None)
    else:
        st.query_params["drafter"] = st.session_state.drafter


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
        )
        st.button(text("stop"), icon=":material/stop:", key="stop", help=text("stop.help"), on_click=_stop, disabled=not active)
        st.menu_button(text("examples"), list(examples()), icon=":material/lightbulb:", key="example", on_click=_example)


def settings() -> None:
    """The settings of a run, for the sidebar."""
    offered = session.offered_drafters()
    _whole_from_link("seed", "top_k")
    _drafter_from_link(offered)
    st.selectbox(
        text("drafter.label"),
        offered,
        key="drafter",
        format_func=lambda name: text(f"drafter.{name}.title"),
        on_change=_drafter_to_link,
        args=(offered[0],),
        persist_state="session",
    )
    st.caption(text(f"drafter.{st.session_state.drafter}.text"))
    st.slider(text("draft_length.label"), 1, 12, 4, key="draft_length", help=text("draft_length.help"), bind="query-params")
    st.toggle(text("adaptive.label"), key="adaptive", help=text("adaptive.help"), bind="query-params")
    st.slider(text("temperature.label"), 0.0, 2.0, 0.0, 0.1, key="temperature", help=text("temperature.help"), bind="query-params")
    st.slider(
        text("max_new_tokens.label"), 8, 256, 64, 8, key="max_new_tokens", help=text("max_new_tokens.help"), bind="query-params"
    )
    with st.expander(text("more")):
        st.number_input(text("seed.label"), 0, 2**31 - 1, 0, key="seed", help=text("seed.help"), bind="query-params")
        st.number_input(text("top_k.label"), 0, 1000, 0, key="top_k", help=text("top_k.help"), bind="query-params")
        st.slider(text("top_p.label"), 0.05, 1.0, 1.0, 0.05, key="top_p", help=text("top_p.help"), bind="query-params")
        st.toggle(text("raw.label"), key="raw", help=text("raw.help"), bind="query-params")


def runs(trace: Trace | None, *, name: str) -> None:
    """Recorded and saved runs, for the sidebar. trace: the run on the stage, once it has ended."""
    st.subheader(text("runs"), anchor=False)
    recorded = session.recordings()
    st.menu_button(
        text("recordings"),
        list(recorded),
        icon=":material/movie:",
        key="recording",
        on_click=_play,
        format_func=lambda key: recorded[key].title or key,
        disabled=not recorded,
        width="stretch",
    )
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
