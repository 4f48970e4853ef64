"""The stage: rounds of a run, animated in the browser.

    view = StageView.from_trace(trace, run="rec-1", label="Recording · 29 Nov 2026 · cpu")
    selected = stage(view)          # {"round": 2, "token": 1} or {"round": 2, "token": "outcome"} or None

`StageView` is all that the stage knows: plain numbers and texts taken from a trace or from a run that is still going on. The
animation, its controls and its place in the run live in the browser (`static/*.js`), so a rerun of the page, or a round appended,
never disturbs it; the place is kept under the name of the run (`run`), over page switches too.

How it travels: a component of Streamlit (v2) that loads `app/static/stage.js`, that is, the folder `static` beside the entry
script `specdec/ui/shell.py`, with `server.enableStaticServing = true`. Model text goes as data and is shown as text, never as
markup.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypedDict

import streamlit as st

from specdec.texts import FOLDER, language
from specdec.ui import cards, present
from specdec.ui.stage_view import StageView

__all__ = ["Selection", "StageView", "chosen", "stage"]

STATIC = Path(__file__).with_name("static")


class Selection(TypedDict):
    """The token that was clicked: number of the round, and number of the draft in it or "outcome"."""

    round: int
    token: int | Literal["outcome"]


def stage(view: StageView, *, key: str = "stage", on_select: Callable[[], None] = lambda: None) -> Selection | None:
    """Show the stage and return the token that was last clicked in this run, or None.

    The answer survives page switches. Call it at the same place of the page in every run of the script, once a run, with one
    `key`; inside a fragment that polls the engine only that fragment runs again. It is about 37 rem high where it is 70 rem wide.
    on_select: called before the script runs again because a token was clicked, see `chosen`.
    """
    data = view.to_dict(_told(view, key)) | present.for_stage() | cards.for_stage()
    result = _component(language())(key=key, data=data, on_selected_change=on_select, on_predict_change=lambda: None)
    if result.predict is not None:
        present.switch("predict", bool(result.predict.get("on")))
    return chosen(view, key=key)


def chosen(view: StageView, *, key: str = "stage") -> Selection | None:
    """The token of this run that was last clicked on the stage `key`, or None; the stage need not be shown in this run of the script."""
    state, store = st.session_state, f"_{key}_selected"
    if (result := state.get(key)) is not None and result.get("selected") is not None:
        state[store] = result["selected"]
    return _selection(state.get(store), view)


def _told(view: StageView, key: str) -> dict[int, dict[str, Any]]:
    """The rounds of a run that goes on, as they were made ready to travel at the look before: a round never changes."""
    store = f"_{key}_told"
    if view.state != "running":
        st.session_state.pop(store, None)
        return {}
    run, rounds = st.session_state.get(store, ("", {}))
    if run != view.run:
        rounds = {}
        st.session_state[store] = (view.run, rounds)
    return rounds


def _selection(value: Any, view: StageView) -> Selection | None:
    """`value` comes from the browser: believed only where it names a token of this view."""
    if not isinstance(value, dict) or value.get("run", view.run) != view.run:
        return None
    number, token = value.get("round"), value.get("token")
    if not _is_index(number, len(view.rounds)):
        return None
    round_ = view.rounds[number]
    if token == "outcome":
        return {"round": number, "token": "outcome"} if round_.outcome.kind != "none" else None
    return {"round": number, "token": token} if _is_index(token, len(round_.drafts)) else None


def _is_index(value: Any, length: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < length


def _version() -> str:
    """Changes with every change of the browser's part, so that no browser mixes an old file with a new one."""
    files = sorted(STATIC.glob("*.css")) + sorted(STATIC.glob("*.js")) + sorted(FOLDER.glob("*.json"))
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:12]


@cache
def _component(code: str) -> Any:
    return component("stage", f"stage.js?v={_version()}&lang={code}", code)


def component(name: str, module: str, code: str) -> Any:
    """A component of ours in one language; call it once a process. Its script only loads the real module, which lies at `module`
    below the folder `static`, so that it is not sent again with every update.
    """
    path = f"app/static/{module}"
    loader = f"""
let {name};
export default async (component) => {{
  {name} ??= import(new URL("{path}", document.baseURI)).catch(() => import("/{path}"));
  try {{ return (await {name}).default(component); }} catch (error) {{ {name} = undefined; throw error; }}
}}
"""
    return st.components.v2.component(f"specdec_{name}_{code}", js=loader)
