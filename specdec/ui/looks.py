"""How often pages look at the engine, and how many of their scripts run at once.

All tabs share one interpreter with the engine's worker. Decoding is thousands of short calls, and each of them gives the
interpreter away and has to get it back, from every script that wants it as well. So tabs look less often the more of them are being
served, what they look at is small, and only a few scripts run at the same time (`turn`).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import streamlit as st

from specdec.engine import Job, shared

LOOKS = 10.0  # that all tabs together may take in a second
SHORTEST = 0.5  # seconds between two looks of one tab; the stage takes one to three to show a round
JITTER = 0.15  # tabs that began together do not look together for ever
SCRIPTS = 2  # that run at once
PATIENCE = 20.0  # seconds after which a script runs in any case: nobody may wait for one that hangs

_places = threading.BoundedSemaphore(SCRIPTS)
_here = threading.local()


def interval(shortest: float = SHORTEST) -> float:
    """Seconds between two looks of a tab, with as many runs as there are now, or as half of the open tabs may begin at once: to
    change it the whole page has to run again."""
    engine = shared()
    runs = max(engine.serving + engine.queue_length, engine.tabs / 2)
    return max(shortest, runs / LOOKS) * random.uniform(1 - JITTER, 1 + JITTER)


def pause(job: Job | None) -> float | None:
    """Seconds until this tab looks at `job` again; None when nothing will change any more."""
    return interval() if job is not None and job.active else None


def outgrown(pause_now: float | None, job: Job | None) -> bool:
    """Whether `pause_now`, which holds until the page runs again as a whole, is far from what it should be by now."""
    wanted = pause(job)
    if pause_now is None or wanted is None:
        return pause_now is not wanted
    return not 1 / 3 < wanted / pause_now < 3


@contextmanager
def turn() -> Iterator[None]:
    """Wait until one of the few places for scripts is free, and hold it. Inside another turn of the same script it does nothing."""
    if getattr(_here, "held", False):
        yield
        return
    got = _places.acquire(timeout=PATIENCE)
    _here.held = True
    try:
        yield
    finally:
        _here.held = False
        if got:
            _places.release()


def fragment(function: Callable[[], Any], *, every: float | None = None, key: str | None = None) -> Callable[[], Any]:
    """`st.fragment` whose own runs take turns as well. every: seconds between two of them, None for none by itself."""

    def taking_turns() -> Any:
        with turn():
            return function()

    # Streamlit tells fragments apart by the names of their functions.
    taking_turns.__module__, taking_turns.__qualname__ = function.__module__, function.__qualname__
    taking_turns.__name__ = function.__name__
    return st.fragment(taking_turns, run_every=every, key=key)
