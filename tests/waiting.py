"""Waiting for what another thread, process or script does. No test says how fast it has to be: a busy machine may take its time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

WAIT = 60.0  # seconds after which a test gives up


def until(
    condition: Callable[[], Any], *, seconds: float = WAIT, pause: float = 0.005, said: Callable[[], Any] = lambda: ""
) -> None:
    """Until `condition()` holds. said(): what the failing test shows in the end."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds:.0f} s in vain: {said()}"
        time.sleep(pause)
