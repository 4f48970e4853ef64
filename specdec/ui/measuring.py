"""A few runs one after the other, asked for by a page that teaches: "measure it". The engine decodes them; the page looks on.

    panel("every", label="Measure it", requests=[("γ = 1", request), …])   # button, state, Stop
    results("every")                                                       # [(name, trace), …] of what has ended

A request with an experiment brings its finding in place of a trace (`specdec.experiments`).

The page keeps looking while `active` says so: its fragment needs `run_every`, and `panel` reruns the page when that changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from specdec.engine import Job, RunRequest
from specdec.errors import SpecdecError
from specdec.trace import Trace
from specdec.ui import panels, session
from specdec.ui.explain import literal
from specdec.ui.lesson import text

POLL = 1.0  # seconds between two looks

Named = tuple[str, RunRequest]


@dataclass
class Series:
    """What is to do, what is being done, what is done. message: why it ended early."""

    todo: list[Named] = field(default_factory=list)
    name: str = ""
    job: Job | None = None
    done: list[tuple[str, Trace]] = field(default_factory=list)
    total: int = 0
    message: str = ""
    partial: Any = None  # finding of an experiment that was stopped

    @property
    def active(self) -> bool:
        return self.job is not None or bool(self.todo)

    def end(self, message: str = "") -> None:
        self.todo, self.job, self.message = [], None, message

    def advance(self) -> None:
        """Take what has ended, start what is next."""
        if self.job is not None and not self.job.active:
            if self.job.state != "done" or self.job.trace is None:
                kept = self.job.trace is not None and self.job.request.experiment is not None
                self.partial = self.job.trace if kept else None
                self.end(self.job.message or text("measure.stopped"))
                return
            self.done.append((self.name, self.job.trace))
            if isinstance(self.job.trace, Trace):
                st.session_state.setdefault("_measured", {})[self.name] = self.job.trace  # among `lesson.runs` from now on
            self.job = None
        if self.job is None and self.todo:
            (self.name, request), self.todo = self.todo[0], self.todo[1:]
            try:
                self.job = session.submit(request)
            except SpecdecError as error:
                self.end(str(error))


def _series(key: str) -> Series:
    return st.session_state.setdefault(f"_series_{key}", Series())


def active(key: str) -> bool:
    """Whether the page has to keep looking."""
    return _series(key).active


def results(key: str) -> list[tuple[str, Trace]]:
    return list(_series(key).done)


def finding(key: str, kind: type) -> Any:
    """What the last experiment of that class found, also one that goes on or was stopped; None before there is anything."""
    series = _series(key)
    job = series.job.trace if series.job is not None else None
    found = [trace for trace in (*(trace for _, trace in series.done), series.partial, job) if isinstance(trace, kind)]
    return found[-1] if found else None


def panel(key: str, *, label: str, requests: Callable[[], Sequence[Named]]) -> None:
    """The button, what is going on, and Stop. requests: asked when the button is pressed."""
    series = _series(key)
    was = series.active
    series.advance()
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.button(
            label, icon=":material/timer:", key=f"start_{key}", on_click=_start, args=(key, requests), disabled=series.active
        )
        if series.active:
            st.button(text("measure.stop"), icon=":material/stop:", key=f"stop_{key}", on_click=_stop, args=(key,))
        st.caption(literal(_state(series)))
    started = st.session_state.pop(f"_turned_{key}", False)
    if started or was != series.active:
        st.rerun()  # so that the page begins or ends to look every second


def _state(series: Series) -> str:
    if not series.active:
        if series.message or not series.done:
            return series.message or text("measure.later")
        return text("measure.done", count=len(series.done)) if isinstance(series.done[-1][1], Trace) else text("measure.found")
    now = text("measure.now", number=series.total - len(series.todo), total=series.total, name=series.name)
    job = series.job
    if job is not None and job.state == "queued" and job.progress is not None:
        return f"{now} {panels.loading_text(job.progress)}"
    if job is not None and job.request.experiment is not None and job.request.experiment.total:
        return f"{now if series.total > 1 else ''} {_steps(job)}".strip()
    return f"{now} {text('measure.rounds', count=len(job.rounds))}" if job is not None else now


def _steps(job: Job) -> str:
    """How far an experiment is, and for how long it will go on by the pace so far."""
    done, total = len(job.rounds), job.request.experiment.total
    words = text("measure.steps", done=done, total=total)
    if not done or job.started is None or total <= done:
        return words
    return words + text("measure.left", seconds=max(1, round((time.time() - job.started) / done * (total - done))))


def _start(key: str, requests: Callable[[], Sequence[Named]]) -> None:
    found = list(requests())
    st.session_state[f"_series_{key}"] = Series(todo=found, total=len(found))
    st.session_state[f"_turned_{key}"] = True


def _stop(key: str) -> None:
    session.lease().stop()
    _series(key).end(text("measure.stopped"))
    st.session_state[f"_turned_{key}"] = True
