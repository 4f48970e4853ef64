"""One run on another machine, followed: its events become the rounds and the trace of a `Job`, as if it were decoded here.

A run is decided by its request and its seed. So when the machine is lost in mid-run, the same request goes to another one, which
makes the same rounds again; those that were seen are compared, and the run goes on at the round where the viewer is. Where the
other machine decodes something else (γ chosen by measured times, another kind of device), the run ends with a sentence and keeps
what there was.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from specdec import wire
from specdec.errors import TraceError
from specdec.jobs import Job, JobState, Progress
from specdec.trace import Trace

if TYPE_CHECKING:
    from specdec.remote import Place

CONNECT = 5.0  # seconds
SILENCE = 10.0  # seconds without a sign of life after which a machine counts as lost; the other side speaks every second
LOSSES = 3  # machines that may be lost in a row without a new round: a request that kills them must not go through them all
PAUSES = (0.2, 2.0, 4.0)  # seconds after each of these; whoever hands out runs needs the second to see that a machine is silent
DELAYS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0)  # seconds between tries while nobody takes the request
LONGEST_LINE = 2**25  # bytes of one event
ASKED = "The machine that decoded this run does not answer: another one is asked to go on."  # on the stage until one speaks
DIFFERENT = (
    "The machine that decoded this run is gone, and another one decodes round {number} differently, as it does where γ is chosen "
    "by measured times or the device is of another kind: press Run again."
)


class _Lost(Exception):
    """The machine is gone, or says that another one has to begin again. silent: its connection stands, but nothing comes."""

    def __init__(self, message: str, *, silent: bool = False) -> None:
        super().__init__(message)
        self.silent = silent


class _Refused(Exception):
    """The request is not wanted, on no machine."""


class _Nobody(Exception):
    """Nobody takes the request at the moment."""


class Following:
    """job: written to by the thread here and by nobody else. ended(job, state, message): called once, at the end."""

    def __init__(self, job: Job, place: Place, *, ended: Callable[[Job, JobState, str], None]) -> None:
        self.job, self.place, self._ended = job, place, ended
        self.thread = threading.Thread(target=self._work, name=f"specdec-run-{job.id}", daemon=True)
        self.machine = ""  # that makes the run, once it has begun
        self._stopped = threading.Event()
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self._heads: dict[str, tuple[Trace, int, float]] = {}  # leg -> trace without rounds, how many it speaks of, when
        self._at: dict[str, float] = {}  # leg -> when its last round was made, seconds of the run

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        """End the run; its thread keeps what there is."""
        self._stopped.set()
        with self._lock:
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads

    # the thread

    def _work(self) -> None:
        losses = tries = 0
        while True:
            before = self._made()
            try:
                # A machine that has loaded the pair is preferred, but not for ever one that does not answer.
                state, message = self._attempt(prefer=not losses)
                break
            except _Refused as error:
                state, message = "failed", str(error)
                break
            except _Nobody as error:
                message = str(error)
                if tries == len(DELAYS):
                    state = "failed"
                    break
                delay, tries = DELAYS[tries], tries + 1
            except _Lost as error:
                tries = 0
                losses = 1 if self._made() > before else losses + 1
                if losses > LOSSES:
                    state = "failed"
                    message = (
                        f"{losses} machines in a row were lost with this run ({error}): run something shorter, or try again later."
                    )
                    break
                delay = PAUSES[max(losses - 1, int(error.silent))]
            except Exception as error:  # noqa: BLE001 - a page waits for this job: whatever happens is its message
                state, message = "failed", f"This run could not be followed ({type(error).__name__}); others are not affected."
                break
            if self._stopped.is_set():
                state, message = "stopped", ""
                break
            self.job.message = ASKED
            self._stopped.wait(delay)
            if self._stopped.is_set():
                state, message = "stopped", ""
                break
        if self._stopped.is_set() and state == "failed":
            state, message = "stopped", ""
        self._calm()
        if state != "done":
            self._keep()
        self._ended(self.job, state, message)

    def _made(self) -> int:
        return len(self.job.plain_rounds) + len(self.job.rounds)

    def _attempt(self, *, prefer: bool) -> tuple[JobState, str]:
        """One machine, from the request to the end of its stream. prefer: one that has loaded the pair."""
        connection = self.place.connect(seconds=CONNECT)
        sent = False
        try:
            request = self.job.request
            self.place.send(connection, "POST", "/runs", wire.request_to_dict(request), pair=request.pair if prefer else "")
            sent = True
            connection.sock.settimeout(SILENCE)
            with self._lock:
                self._socket = connection.sock
            answer = connection.getresponse()
            if answer.status != 200:
                self._refused(answer)
            self.machine = answer.headers.get("X-Specdec-Machine", "")[:200]
            return self._read(answer)
        except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
            if self._stopped.is_set():
                return "stopped", ""
            if sent:
                raise _Lost(_sentence(error), silent=isinstance(error, TimeoutError)) from None
            raise _Nobody(
                f"The machines that decode do not answer at {self.place.address} ({_sentence(error)}): watch a recording and try "
                "again in a minute."
            ) from None
        finally:
            with self._lock:
                self._socket = None
            connection.close()

    def _refused(self, answer: http.client.HTTPResponse) -> None:
        try:
            message = str(json.loads(answer.read(wire.MAX_BODY))["message"])
        except (ValueError, KeyError, TypeError):
            message = f"The machines that decode answer with status {answer.status}: try again in a minute."
        # 500 is what a proxy says whose machine died under the request; others of that kind say that there is none at present.
        raise (_Refused if answer.status < 500 else _Lost if answer.status == 500 else _Nobody)(message)

    def _read(self, answer: http.client.HTTPResponse) -> tuple[JobState, str]:
        got = {"plain": 0, "run": 0}
        job, rounds = self.job, {"plain": self.job.plain_rounds, "run": self.job.rounds}
        for event in _events(answer):
            if self._stopped.is_set():
                return "stopped", ""
            match event:
                case {"event": "state"}:
                    self._stand(event)
                case {"event": "round", "leg": "plain" | "run" as leg, "round": data, "at": at}:
                    self._round(wire.round_from_data(data), got[leg], rounds[leg])
                    got[leg] += 1
                    if got[leg] == len(rounds[leg]):
                        self._at[leg] = float(at)
                case {"event": "trace", "leg": "plain" | "run" as leg, "rounds": int(known), "trace": data, "at": at}:
                    if self._heads.get(leg, (None, 0))[1] <= known <= got[leg]:  # else it tells less than is known already
                        head = wire.head_from_data(data)
                        job.prompt_ids = head.prompt_ids
                        self._heads[leg] = (head, known, float(at))
                        setattr(job, "plain_trace" if leg == "plain" else "trace", wire.complete(head, rounds[leg][:known]))
                case {"event": "finding", "kind": kind, "finding": data}:
                    job.trace = wire.finding_from_data(kind, data)
                case {"event": "end", "state": "done" | "stopped" | "failed" as state, "message": str(message)}:
                    if state == "done" and any(got[leg] < len(rounds[leg]) for leg in got):
                        raise _Refused(DIFFERENT.format(number=got["run"] + 1))
                    return state, message
                case {"event": "lost", "message": message}:
                    raise _Lost(str(message))
        raise _Lost("the connection ended")

    def _round(self, new: Any, number: int, rounds: list[Any]) -> None:
        job = self.job
        self._calm()
        self._begin()  # a short run may be over before its state was ever told
        if job.first_round is None:
            job.first_round = time.time()
        if number == len(rounds):
            rounds.append(new)
        elif wire.same_round(rounds[number], new):
            rounds[number] = new  # the same, with the times of the machine that will end the run
        else:
            raise _Refused(DIFFERENT.format(number=number + 1))

    def _calm(self) -> None:
        """A machine speaks again; what others have said of the job stays."""
        if self.job.message == ASKED:
            self.job.message = ""

    def _begin(self) -> None:
        if self.job.state == "queued":
            self.job.position, self.job.started, self.job.progress, self.job.state = 0, time.time(), None, "running"

    def _stand(self, event: dict[str, Any]) -> None:
        job = self.job
        if event["state"] == "running":
            self._begin()
        # A run that begins again on another machine waits there, but for the viewer it goes on.
        job.position = int(event["position"]) if job.state == "queued" else 0
        job.ahead, job.due = int(event["ahead"]), None if event["due"] is None else time.time() + float(event["due"])
        job.progress = progress_from_data(event["progress"]) if job.state == "queued" else None

    def _keep(self) -> None:
        """A run that did not come to its end keeps the rounds that were seen, as the trace of a stopped one."""
        job = self.job
        for leg, name, rounds in (("plain", "plain_trace", job.plain_rounds), ("run", "trace", job.rounds)):
            head, known, then = self._heads.get(leg, (None, 0, 0.0))
            if head is None or not rounds or len(rounds) == known:
                continue
            with contextlib.suppress(TraceError):
                later = max(0.0, self._at.get(leg, then) - then)
                setattr(job, name, wire.complete(wire.made_so_far(head, known, rounds, seconds=later), rounds))


def _events(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The lines of a stream as they come."""
    while True:
        data = answer.readline(LONGEST_LINE)
        if not data.endswith(b"\n"):
            return
        event = json.loads(data)
        if isinstance(event, dict):
            yield event


def progress_from_data(data: Any) -> Progress | None:
    """As `specdec.endpoint.progress_to_data` sent it."""
    if data is None:
        return None
    total = None if data["total"] is None else int(data["total"])
    return Progress(stage=str(data["stage"]), done=int(data["done"]), total=total, since=time.time() - float(data["spent"]))


def _sentence(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
