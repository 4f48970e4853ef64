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
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypedDict

import streamlit as st

from specdec.ui import cards, present
from specdec.ui.stage_view import StageView

__all__ = ["Selection", "StageView", "stage"]

STATIC = Path(__file__).with_name("static")


class Selection(TypedDict):
    """The token that was clicked: number of the round, and number of the draft in it or "outcome"."""

    round: int
    token: int | Literal["outcome"]


def stage(view: StageView, *, key: str = "stage") -> Selection | None:
    """Show the stage and return the token that was last clicked in this run, or None.

    The answer survives page switches. Call it at the same place of the page in every run of the script, once a run, with one
    `key`; inside a fragment that polls the engine only that fragment runs again. It is about 37 rem high where it is 70 rem wide.
    """
    data = view.to_dict() | present.for_stage() | cards.for_stage()
    result = _component()(key=key, data=data, on_selected_change=lambda: None, on_predict_change=lambda: None)
    if result.predict is not None:
        present.switch("predict", bool(result.predict.get("on")))
    store = f"_{key}_selected"
    if result.selected is not None:
        st.session_state[store] = result.selected
    return _selection(st.session_state.get(store), view)


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
    files = sorted(STATIC.glob("*.css")) + sorted(STATIC.glob("*.js"))
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:12]


@lru_cache(maxsize=1)
def _component() -> Any:
    """Registered once a process. The script only loads the real module, so that it is not sent again with every update."""
    path = f"app/static/stage.js?v={_version()}"
    loader = f"""
let stage;
export default async (component) => {{
  stage ??= import(new URL("{path}", document.baseURI)).catch(() => import("/{path}"));
  try {{ return (await stage).default(component); }} catch (error) {{ stage = undefined; throw error; }}
}}
"""
    return st.components.v2.component("specdec_stage", js=loader)
