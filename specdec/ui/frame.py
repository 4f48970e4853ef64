"""What every page has around it: the language, a button that copies the link, and a notice about an address that was not right."""

from __future__ import annotations

import html
import json
from collections.abc import Callable

import streamlit as st

from specdec.engine import shared
from specdec.ui import links, looks
from specdec.ui.explain import literal
from specdec.ui.texts import LANGUAGES, choose_language, language, text

AWAY_POLL = 3.0  # seconds between two looks whether they answer again


def top(page: str, *, also: Callable[[], None]) -> None:
    """Call it once a page, before its own parts. also: what stands in the same row."""
    with st.container(key="frame", horizontal=True, gap="xsmall", vertical_alignment="center", width="content"):
        also()
        st.html(_copy_button(page))
        st.menu_button(
            language().upper(),
            list(LANGUAGES),
            key="language",
            on_click=_speak,
            format_func=LANGUAGES.__getitem__,
            help=text("frame.language"),
        )
    if style := links.hidden_css():
        st.html(style)
    _away()
    if message := links.notice():
        st.warning(literal(message), icon=":material/link_off:")


def _away() -> None:
    """Where models are on other machines that do not answer: a notice, which goes by itself."""
    away = bool(shared().away)
    if away:
        st.warning(text("frame.away"), icon=":material/cloud_off:")

        def look() -> None:
            if not shared().away:
                st.rerun()

        looks.fragment(look, every=looks.interval(AWAY_POLL), key="away")()


def _speak() -> None:
    chosen = st.session_state.language
    choose_language(chosen)
    st.session_state["_language_asked"] = True
    st.query_params["lang"] = chosen


def _copy_button(page: str) -> str:
    """assets/app.js copies the address with every setting in it, also those that the address leaves out as usual."""
    words = {"usual": json.dumps(links.usual(page)), "done": text("frame.copied"), "failed": text("frame.not_copied")}
    data = " ".join(f'data-{name}="{html.escape(value)}"' for name, value in words.items())
    label = html.escape(text("frame.copy"))
    button = f'<button type="button" class="copy-link st-key-copy_link" {data} title="{label}" aria-label="{label}">'
    return f'{button}</button><span role="status" class="copy-said"></span>'
