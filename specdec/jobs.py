"""The plain records that pages and the engine exchange: what is asked for, what becomes of it.

Nothing in them is tied to a process: they could travel to another machine as they are. No torch here.
"""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from specdec.errors import SettingsError, SpecdecError
from specdec.trace import Method, Round, Settings, Trace

JobState = Literal["queued", "running", "done", "stopped", "failed"]
EngineState = Literal["empty", "loading", "ready", "failed", "closed"]

ACTIVE: tuple[JobState, ...] = ("queued", "running")


class BusyError(SpecdecError):
    """The queue is full."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one server allows.

    queue: runs that may wait. at_once: runs that are served at the same time, in turns. batch: how many of them share a pass.
    run_seconds: of the engine that one run may take, shared passes by equal parts. round_seconds: after so long without any round a
    machine of a cluster counts as hung.
    """

    queue: int = 40
    at_once: int = 40
    batch: int = 8
    prompt_characters: int = 20_000
    new_tokens: int = 512
    run_seconds: float = 600.0
    round_seconds: float = 120.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Limits:
        """Each from SPECDEC_ and its name in capitals, as SPECDEC_QUEUE=80. Raises SettingsError for what is no positive number."""
        chosen: dict[str, Any] = {}
        for field_ in dataclasses.fields(cls):
            name = f"SPECDEC_{field_.name.upper()}"
            given = environment.get(name, "").strip()
            if not given:
                continue
            kind = type(field_.default)
            try:
                chosen[field_.name] = kind(given)
            except ValueError:
                chosen[field_.name] = 0
            if not 0 < chosen[field_.name] < 1e9:
                raise SettingsError(f"{name} is {given!r}: give a {'whole ' * (kind is int)}number above 0, or leave it out.")
        return cls(**chosen)

    def check(self, request: RunRequest) -> None:
        """Raises SettingsError with one sentence for a request that is empty or beyond what is allowed here."""
        length, asked = len(request.prompt), request.settings.max_new_tokens
        if not request.prompt.strip():
            raise SettingsError("The prompt is empty: write something for the models to answer or continue.")
        if length > self.prompt_characters:
            raise SettingsError(f"The prompt has {length:,} characters, {self.prompt_characters:,} are allowed: shorten it.")
        if asked > self.new_tokens:
            raise SettingsError(f"{asked:,} new tokens were asked for, {self.new_tokens:,} are allowed: ask for fewer.")


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """One run as a page asks for it. pair is a name of the catalogue.

    race: plain decoding first, then `method`, both warmed up, as one job: nobody comes between, and never both at once.
    record: False leaves out of the trace what is only there to look at, for a run whose times are what is wanted.
    together: these prompts instead of `prompt`, at most `at_once` of them at the same time; the job's trace is then a
    `specdec.measure_batch.BatchResult`.
    experiment: a `specdec.experiments.Experiment` instead of a run; the job's trace is then its finding.
    """

    prompt: str
    settings: Settings = Settings()
    method: Method = "speculative"
    pair: str = "embedded"
    race: bool = False
    record: bool = True
    together: tuple[str, ...] = ()
    at_once: int = 1
    experiment: Any = None

    @property
    def legs(self) -> tuple[RunRequest, ...]:
        """The runs that it takes, in order."""
        return (dataclasses.replace(self, method="plain"), self) if self.race else (self,)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far loading is. done and total count bytes (or items); total is None where nobody knows. since: start of the stage."""

    stage: str
    done: int
    total: int | None
    since: float

    @property
    def fraction(self) -> float | None:
        """In [0, 1], None where the total is unknown."""
        return min(1.0, self.done / self.total) if self.total else None

    @property
    def seconds_left(self) -> float | None:
        """A guess from the pace so far, None before there is one."""
        spent = time.time() - self.since
        if not self.total or self.done <= 0 or spent < 1:
            return None
        return spent * max(0, self.total - self.done) / self.done


@dataclass(kw_only=True)
class Job:
    """One run as the engine knows it. Only the engine writes to it; everybody else reads.

    position: runs in front of it while it waits, 0 once it is its turn. ahead: once it is served, runs that have their first round
    before it. due: when its own first round is expected, by the pace of the last turns; None when nobody can tell.
    rounds: append-only.
    trace: what there is so far, brought up to date about twice a second, complete once the run has ended, also after a stop.
    plain_rounds, plain_trace: the same of the plain run that a race begins with.
    message: one sentence for the person, when the run failed or was cut short.
    Times are seconds since the epoch.
    """

    request: RunRequest
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    state: JobState = "queued"
    position: int = 0
    ahead: int = 0
    due: float | None = None
    rounds: list[Round] = field(default_factory=list)
    prompt_ids: tuple[int, ...] = ()
    trace: Trace | None = None
    plain_rounds: list[Round] = field(default_factory=list)
    plain_trace: Trace | None = None
    message: str = ""
    progress: Progress | None = None
    created: float = field(default_factory=time.time)
    started: float | None = None
    first_round: float | None = None
    finished: float | None = None

    @property
    def active(self) -> bool:
        return self.state in ACTIVE

    def to_dict(self) -> dict[str, Any]:
        """Plain data without the rounds' contents, for logs and for a remote page."""
        left_out = ("rounds", "trace", "plain_rounds", "plain_trace", "request")
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in left_out}
        plain["progress"] = None if self.progress is None else dataclasses.asdict(self.progress)
        return {**plain, "request": dataclasses.asdict(self.request), "rounds": len(self.rounds)}
