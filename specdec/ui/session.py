"""What one browser tab holds: its lease on the engine, and what its stage shows."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import streamlit as st

from specdec.catalogue import CATALOGUE, offered, sides
from specdec.engine import Job, Lease, RunRequest, shared
from specdec.errors import SpecdecError
from specdec.trace import Trace

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = ROOT / "assets" / "recordings"


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What is on the stage. run: its identity there. One of trace and job is given; a job brings its own trace."""

    kind: Literal["recording", "file", "run"]
    run: str
    label: str
    trace: Trace | None = None
    job: Job | None = None

    @property
    def result(self) -> Trace | None:
        return self.job.trace if self.job is not None else self.trace


@st.cache_resource(scope="session", on_release=lambda lease: lease.released(), show_spinner=False)
def _hold(_lease: Lease) -> Lease:
    """Streamlit releases this when the tab is closed or loses its connection."""
    return _lease


def lease() -> Lease:
    """This tab's hold on the engine, renewed with every run of a script."""
    held = st.session_state.setdefault("_lease", Lease(shared()))
    held.renew()
    _hold(held)
    return held


@lru_cache(maxsize=1)
def recordings() -> dict[str, Trace]:
    """The shipped recordings by file name, without those that cannot be read. Each is the trace of a real run."""
    found = {}
    for path in sorted(RECORDINGS.glob("*.json")):
        try:
            found[path.stem] = Trace.from_json(path.read_bytes())
        except SpecdecError:
            continue
    return found


def recording(name: str) -> Shown:
    trace = recordings()[name]
    return Shown(kind="recording", run=f"recording-{name}", label=trace.title or name, trace=trace)


def shown() -> Shown | None:
    """What the stage shows; the first recording if nothing was chosen yet, None if there is none."""
    now = st.session_state.get("_shown")
    if now is None and recordings():
        asked = st.query_params.get("recording")
        now = st.session_state["_shown"] = recording(asked if asked in recordings() else next(iter(recordings())))
    return now


def kept(key: str, trace: Trace) -> Shown:
    """A run that this tab keeps under a name."""
    return Shown(kind="recording", run=f"kept-{key}", label=trace.title, trace=trace)


def show(new: Shown) -> None:
    """Put something else on the stage; a run that is still going is stopped."""
    held = lease()
    if new.job is not held.job:
        held.stop()
    st.session_state["_shown"] = new


def submit(request: RunRequest) -> Job:
    """Have the engine run it, by a pair that this server offers: pages that choose none mean the one that is loaded here."""
    if request.pair not in offered_pairs():
        request = dataclasses.replace(request, pair=offered_pairs()[0])
    return lease().run(request)


def run(request: RunRequest) -> None:
    """Start a run and put it on the stage. Raises SpecdecError; then everything stays as it was."""
    job = submit(request)
    show(Shown(kind="run", run=job.id, label=request.prompt[:80], job=job))


def show_file(trace: Trace, *, name: str, run: str) -> None:
    show(Shown(kind="file", run=f"file-{run}", label=trace.title or name, trace=trace))


def notice(message: str) -> None:
    """One sentence for the person, shown with the next picture."""
    st.session_state["_notice"] = message


def take_notice() -> str:
    return st.session_state.pop("_notice", "")


# In the order in which a person should meet them: the better ones first.
DRAFTERS = ("head", "head-lookup", "draft", "lookup", "early-exit")
TRAINED = ROOT / "assets" / "drafters"


def offered_pairs() -> tuple[str, ...]:
    """Names of the pairs that this server offers; the first one is what the page begins with."""
    return offered(os.environ)


def pair() -> str:
    """The pair that this tab has chosen."""
    wanted = st.session_state.get("pair") or st.query_params.get("pair")
    return wanted if wanted in offered_pairs() else offered_pairs()[0]


def offered_drafters(name: str | None = None) -> tuple[str, ...]:
    """Names of the drafters that the pair offers, known without loading it; the first one is what the page begins with.

    name: of the pair, None is the one that the server begins with.
    """
    name = name or offered_pairs()[0]
    engine = shared()
    if engine.pair is not None and engine.pair_name == name:
        names = set(engine.pair.drafters)
    else:
        spec = CATALOGUE.get(name)
        draft = spec.draft if spec is not None else sides(name)[1]
        embedded = spec is not None and spec.embedded
        trained = {one for one in ("head", "draft") if (TRAINED / f"{one}.safetensors").is_file()} if embedded else set()
        trained |= {"head-lookup"} if "head" in trained else set()
        names = {"early-exit", "lookup"} | trained | ({"draft"} if draft else set())
    return tuple(name for name in DRAFTERS if name in names)
