"""The engine of other machines, for the pages of this one: what `specdec.engine.Engine` is, over HTTP.

    SPECDEC_ENGINE=http://10.0.0.5:8000 streamlit run app.py

A page hands over a `RunRequest` and looks at a `Job`, as always; here a thread of its own follows each run over there
(`specdec.remote_run`). One more thread asks every few seconds whether anybody answers: while nobody does, `away` says so, runs are
refused with that sentence, and recordings play. No torch and no Ray here.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.parse
from dataclasses import dataclass, field
from typing import Any

from specdec import wire
from specdec.errors import SettingsError
from specdec.jobs import BusyError, EngineState, Job, JobState, Limits, Progress, RunRequest
from specdec.remote_run import Following, progress_from_data
from specdec.sessions import Sessions

ASK_AGAIN = 2.0  # seconds between two questions while nobody answers, or while models are loading,
ASK = 5.0  # and otherwise
ANSWER = 5.0  # seconds in which the other side has to answer a question
MISSES = 2  # questions without an answer after which the other side counts as away
MOST_RUNS = 1000  # that one app follows at the same time; each takes a thread
ALONE = "A measurement needs a machine to itself, and this app decodes on others: run python -m specdec measure on one of them."


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the machines are. Made of "http://HOST:PORT" or "https://HOST/FOLDER"; SettingsError for anything else."""

    address: str
    token: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        given = urllib.parse.urlsplit(self.address)
        if given.scheme == "ray":
            raise SettingsError(
                f"{self.address!r} is the address of Ray's own client, which runs whatever it is sent: give the HTTP address that "
                "python -m specdec serve prints, as http://HOST:8000."
            )
        try:
            right = given.scheme in ("http", "https") and bool(given.hostname) and given.port != 0
        except ValueError:
            right = False
        if not right or given.query or given.fragment or given.username:
            raise SettingsError(f"{self.address!r} is no address of an engine: give one like http://HOST:8000.")

    def connect(self, *, seconds: float) -> http.client.HTTPConnection:
        """seconds: that any single wait on it may take."""
        given = urllib.parse.urlsplit(self.address)
        kind = http.client.HTTPSConnection if given.scheme == "https" else http.client.HTTPConnection
        return kind(given.hostname, given.port, timeout=seconds)

    def send(self, connection: http.client.HTTPConnection, method: str, path: str, data: Any = None, *, pair: str = "") -> None:
        """pair: a machine that has loaded it is preferred."""
        body = None if data is None else json.dumps(data, ensure_ascii=False, allow_nan=False).encode()
        headers = {"Content-Type": "application/json"} if body is not None else {}
        headers |= {"Authorization": f"Bearer {self.token}"} if self.token else {}
        headers |= {"Serve-Multiplexed-Model-Id": pair} if pair else {}
        connection.request(method, urllib.parse.urlsplit(self.address).path.rstrip("/") + path, body=body, headers=headers)

    def ask(self, method: str, path: str, data: Any = None) -> tuple[int, Any]:
        """Status and JSON of one short question. Raises OSError, HTTPException or ValueError where there is no answer."""
        connection = self.connect(seconds=ANSWER)
        try:
            self.send(connection, method, path, data)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read(wire.MAX_BODY))
        finally:
            connection.close()


@dataclass(eq=False)
class RemotePair:
    """What a page needs to know of a pair that is loaded over there."""

    name: str
    title: str
    drafters: tuple[str, ...]
    place: Place
    _known: dict[int, str] = field(default_factory=dict)

    @property
    def texts(self) -> RemotePair:
        return self

    def text(self, token: int) -> str:
        return self._known[token]

    def encode(self, text: str, *, raw: bool = True) -> list[int]:
        """Token ids of a text as it stands; none of them where nobody answers. Then `texts.text` knows what each looks like."""
        try:
            status, said = self.place.ask("POST", "/pieces", {"text": text})
            if status != 200:
                return []
            self._known |= dict(zip(said["ids"], map(str, said["texts"]), strict=True))
            return list(said["ids"])
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
            return []


class RemoteEngine(Sessions):
    """Takes the place of `Engine`. Safe to call from any thread; no call waits for the network."""

    local = False

    def __init__(self, address: str, *, limits: Limits | None = None, token: str = "") -> None:
        super().__init__()
        self.place = Place(address=address, token=token)
        self.limits = limits or Limits()
        self.state: EngineState = "empty"
        self.progress: Progress | None = None
        self.message = ""
        self.pair: RemotePair | None = None
        self._misses = 0
        self._following: dict[str, Following] = {}
        self._watch: threading.Thread | None = None

    @property
    def pair_name(self) -> str | None:
        return self.pair.name if self.pair is not None else None

    # what pages call

    def submit(self, request: RunRequest, *, owner: str) -> Job:
        """Have a run made over there and stop the owner's older one. Raises SettingsError or BusyError with one sentence."""
        self.limits.check(request)
        if request.together:
            raise SettingsError(ALONE)
        self.preload("")
        with self._changed:
            if self.state == "closed":
                raise BusyError("The engine is shutting down: reload the page in a moment.")
            if self.away:
                raise BusyError(self.away)
            if len(self._following) >= MOST_RUNS:
                raise BusyError(f"This app follows {MOST_RUNS:,} runs already: watch a recording and try again in a minute.")
            job = self._own(owner, request, self.progress)
            following = self._following[job.id] = Following(job, self.place, ended=self._end)
        following.start()
        return job

    def stop(self, job: Job) -> None:
        """End a run: the connection is closed, and the machine over there stops before its next pass."""
        with self._changed:
            self._stop(job)

    def preload(self, name: str) -> None:
        """Begin to look whether anybody answers. The machines over there load their models by themselves."""
        with self._changed:
            if self._watch is None and self.state != "closed":
                self._watch = threading.Thread(target=self._ask_on, name="specdec-remote", daemon=True)
                self._watch.start()

    def meet(self, lease: Any) -> None:
        super().meet(lease)
        self.preload("")

    def close(self, timeout: float | None = 10.0) -> None:
        """Stop everything and wait for the threads."""
        with self._changed:
            self.state = "closed"
            following = list(self._following.values())
            for one in following:
                one.stop()
            self._changed.notify_all()
            watch = self._watch
        for thread in (watch, *(one.thread for one in following)):
            if thread is not None and thread is not threading.current_thread():
                thread.join(timeout)

    @property
    def running(self) -> bool:
        return self.serving > 0

    @property
    def serving(self) -> int:
        """Runs of this app that are being served."""
        return sum(one.job.state == "running" for one in tuple(self._following.values()))

    @property
    def queue_length(self) -> int:
        """Runs of this app that wait."""
        return sum(one.job.state == "queued" for one in tuple(self._following.values()))

    # inside

    def _stop(self, job: Job) -> None:
        if (following := self._following.get(job.id)) is not None:
            following.stop()

    def _end(self, job: Job, state: JobState, message: str) -> None:
        """Called by the thread of a run when it is over."""
        with self._changed:
            job.finished, job.message, job.progress, job.due = time.time(), message or job.message, None, None
            job.state = state
            self._following.pop(job.id, None)
            self._disown(job)

    # the thread that asks

    def _ask_on(self) -> None:
        while True:
            self._ask()
            with self._changed:
                if self.state == "closed":
                    return
                self._changed.wait(ASK if self.state == "ready" else ASK_AGAIN)
                if self.state == "closed":
                    return

    def _ask(self) -> None:
        try:
            status, said = self.place.ask("GET", "/status")
            if status != 200 or said["wire"] != wire.WIRE:
                raise ValueError(_why(status, said))
            state = said["state"]
            pair = _pair(said, self.place)
            progress = progress_from_data(said["progress"])
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError) as error:
            self._missed(str(error) if isinstance(error, ValueError) and not isinstance(error, json.JSONDecodeError) else "")
            return
        with self._changed:
            if self.state == "closed":
                return
            self._misses, self.away = 0, ""
            if pair is not None and (self.pair is None or (pair.name, pair.drafters) != (self.pair.name, self.pair.drafters)):
                self.pair = pair
            # The machines answer in turns, and one that loads another pair is no reason to wait.
            state = "ready" if state == "loading" and self.pair is not None else state
            self.state = state if state in ("empty", "loading", "ready", "failed") else "failed"
            self.message, self.progress = str(said["message"]), progress

    def _missed(self, why: str) -> None:
        with self._changed:
            self._misses += 1
            if self.state == "closed" or self._misses < MISSES:
                return
            self.state, self.progress = "failed", None
            self.away = self.message = (
                f"The machines that decode do not answer at {self.place.address}{f' ({why})' if why else ''}: recordings play "
                "meanwhile, and they are asked again every few seconds."
            )


def _why(status: int, said: Any) -> str:
    """What another answer than the right one says."""
    if isinstance(said, dict) and isinstance(said.get("message"), str) and status != 200:
        return said["message"][:200].rstrip(".")
    return f"status {status}" if status != 200 else "it runs another version"


def _pair(said: dict[str, Any], place: Place) -> RemotePair | None:
    if said["state"] != "ready" or not isinstance(said["pair"], str):
        return None
    return RemotePair(said["pair"], str(said["title"]), tuple(map(str, said["drafters"])), place)
