"""What can wait until the stage is on the screen: charts, whose library has 4.7 MB and keeps a slow browser busy for seconds."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import streamlit as st

STORE = "_stage_is_drawn"

# Looks for the stage five times a second, and says so once; after ten seconds it does so in any case.
_WATCH = """
export default function ({ setTriggerValue }) {
  const begun = Date.now();
  const drawn = () => [...document.querySelectorAll(".st-key-stage *, .st-key-race *")].some((e) => e.shadowRoot?.querySelector(".stage"));
  const timer = setInterval(() => {
    if (!drawn() && Date.now() - begun < 10000) return;
    clearInterval(timer);
    setTriggerValue("drawn", true);
  }, 200);
  return () => clearInterval(timer);
}
"""


def ready() -> bool:
    """Whether this session has seen the stage drawn."""
    return st.session_state.get(STORE, False)


def wait() -> None:
    """Run the page again as soon as the stage is drawn; put it at the end of the page, nothing is shown."""
    if not ready():
        _component()(key="later", on_drawn_change=_drawn, height=1)


def _drawn() -> None:
    st.session_state[STORE] = True


@lru_cache(maxsize=1)
def _component() -> Any:
    return st.components.v2.component("specdec_later", js=_WATCH)
