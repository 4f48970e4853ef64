"""One loaded pair for many sessions: one worker thread, one queue, turns, stop, limits.

A page never computes. It hands a `RunRequest` to `Engine.submit`, gets a `Job` and looks at it as often as it likes: the worker
appends rounds to `job.rounds` while they happen. Requests and jobs are plain records, so that the worker may as well be on another
machine (`specdec.remote`). Nothing here imports torch: the loader does that, in the worker thread.

Loading happens in the worker as well, therefore once, however many people arrive while it lasts.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from specdec import outcomes
from specdec.errors import SpecdecError
from specdec.jobs import BusyError, EngineState, Job, JobState, Limits, Progress, RunRequest
from specdec.service import READING, Served, Turns, alone
from specdec.sessions import Lease, Sessions
from specdec.starting import Decoding, Loader, Start, load, start

if TYPE_CHECKING:
    from specdec.remote import RemoteEngine

__all__ = ["BusyError", "Engine", "Job", "Lease", "Limits", "Progress", "RunRequest", "shared"]

PROGRESS_INTERVAL = 0.1  # seconds between two progress records of the same stage
TRACES = 20.0  # that all runs together may have in a second: where many are served, each has one less often


class Engine(Sessions):
    """Serves runs from a queue, many in turns (`specdec.service`) and those that are timed alone. Safe to call from any thread; no
    call waits for a model."""

    def __init__(self, loader: Loader = load, *, start: Start = start, limits: Limits | None = None):
        super().__init__()
        self.limits = limits or Limits()
        self.state: EngineState = "empty"
        self.progress: Progress | None = None
        self.message = ""
        self.pair: Any = None
        self.pair_name: str | None = None
        self._loader, self._start = loader, start
        self._waiting: deque[Job] = deque()
        self._current: Job | None = None  # one that has the machine for itself
        self._turns = Turns(self.limits.batch)
        self._preload: str | None = None
        self._stopping: set[str] = set()
        self._thread: threading.Thread | None = None
        self._reported = 0.0
        self._moved = 0.0  # when the worker last brought something to a run

    # what pages call

    def submit(self, request: RunRequest, *, owner: str) -> Job:
        """Put a run into the queue and stop the owner's older one. Raises SettingsError or BusyError with one sentence."""
        self.limits.check(request)
        with self._changed:
            older = self._owners.get(owner)
            waiting = sum(job is not older for job in self._waiting)
            if waiting >= self.limits.queue:
                raise BusyError(f"All {waiting} places in the queue are taken: watch a recording and try again in a minute.")
            job = self._own(owner, request, self.progress)
            self._waiting.append(job)
            self._wake()
        return job

    def stop(self, job: Job) -> None:
        """End a run: at once if it waits, else before the next model pass. A run that has ended stays as it is."""
        with self._changed:
            self._stop(job)

    def preload(self, name: str) -> None:
        """Load a pair before anybody asks."""
        with self._changed:
            if self.pair_name != name and not self._waiting:
                self._preload = name
                self._wake()

    def close(self, timeout: float | None = 10.0) -> None:
        """Stop everything and wait for the worker."""
        with self._changed:
            self.state = "closed"
            for job in [*self._waiting, *([self._current] if self._current else []), *(one.job for one in self._turns)]:
                self._stop(job)
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    @property
    def running(self) -> bool:
        """Whether a run holds the models right now."""
        return self._current is not None or len(self._turns) > 0

    @property
    def serving(self) -> int:
        """Runs that are being served."""
        return len(self._turns) + (self._current is not None)

    @property
    def quiet(self) -> float:
        """Seconds since a run got anywhere; 0 while none is served."""
        return time.time() - self._moved if self.running else 0.0

    @property
    def queue_length(self) -> int:
        """Runs that wait, without the one that runs."""
        return len(self._waiting)

    # inside; the lock is held where the name does not say otherwise

    def _wake(self) -> None:
        if self.state == "closed":
            raise BusyError("The engine is shutting down: reload the page in a moment.")
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, name="specdec-engine", daemon=True)
            self._thread.start()
        self._number()
        self._changed.notify_all()

    def _number(self) -> None:
        """Tell everybody who waits their place, and when their first round is to be expected."""
        for place, job in enumerate(self._waiting):
            job.position = place + (self._current is not None or len(self._turns) >= self.limits.at_once)
        turns, now = self._turns, time.time()
        new, free = turns.newcomers, self.limits.at_once - len(turns)
        jobs = [*(one.job for one in new), *self._waiting]
        known = self._current is None and self.state == "ready" and not any(alone(job.request) for job in jobs)
        for place, job in enumerate(jobs):
            job.ahead = place if job.state == "running" else 0
            if place < len(new) + free:
                wait = turns.pace.first_round(place, size=turns.size, newcomers=min(len(jobs), len(new) + free))
            else:
                wait = turns.pace.free_place(place - len(new) - free, tuple(turns))
            job.due = now + wait if known and wait is not None else None

    def _stop(self, job: Job) -> None:
        if job.state == "queued":
            if job in self._waiting:
                self._waiting.remove(job)
            self._end(job, "stopped")
            self._number()
        elif job.state == "running":
            self._stopping.add(job.id)
            self._changed.notify_all()

    def _end(self, job: Job, state: JobState, message: str = "") -> None:
        job.finished, job.message, job.progress = time.time(), message or job.message, None
        job.state = state
        self._stopping.discard(job.id)
        self._disown(job)

    # the worker thread; takes the lock itself

    def _work(self) -> None:
        while True:
            with self._changed:
                while not (self._waiting or len(self._turns) or self._preload is not None or self.state == "closed"):
                    self._changed.wait()
                if self.state == "closed":
                    break
                first = self._waiting[0].request if self._waiting else None
                name = self.pair_name if len(self._turns) else first.pair if first else self._preload
                self._preload = None
            if not self._ensure(name):
                continue
            if (job := self._next_alone(name)) is not None:
                try:
                    self._run(job)
                finally:
                    with self._changed:
                        self._current = None
                        self._number()
            self._admit(name)
            self._let_go()
            if len(self._turns):
                self._turns.take(self._take)
                with self._changed:
                    self._number()
        for one in self._turns:
            self._end_served(one, "stopped")

    def _let_go(self) -> None:
        """End those in turns that were stopped: at once, and not when their next turn comes."""
        for one in self._turns.leave(lambda one: one.job.id in self._stopping):
            self._end_served(one, "stopped")

    def _next_alone(self, name: str) -> Job | None:
        """The head of the queue, if it wants the machine for itself; those in turns wait as long as it lasts."""
        with self._changed:
            # The head may have been stopped, or followed by a run for another pair, while the pair was loading.
            if self.state == "closed" or not self._waiting or self._waiting[0].request.pair != name:
                return None
            if not alone(self._waiting[0].request):
                return None
            job = self._current = self._waiting.popleft()
            self._begin(job)
            return job

    def _begin(self, job: Job) -> None:
        self._moved = time.time()
        job.position, job.started, job.progress, job.state = 0, self._moved, None, "running"
        self._number()

    def _admit(self, name: str) -> None:
        """Begin those at the head of the queue that can share, as far as there is room."""
        while True:
            with self._changed:
                head = self._waiting[0].request if self._waiting else None
                if self.state == "closed" or head is None or head.pair != name or alone(head):
                    return
                if len(self._turns) >= self.limits.at_once:
                    return
                job = self._waiting.popleft()
                self._begin(job)
            served: list[Served] = []

            def stop(job: Job = job, served: list[Served] = served) -> bool:
                # A pass that hangs in a turn counts as well, before the turn is over.
                late = bool(served) and served[0].used + (time.time() - self._turns.begun) > self.limits.run_seconds
                return late or job.id in self._stopping

            try:
                one = Served(job, self._start(self.pair, job.request, stop))
            except Exception as error:  # noqa: BLE001 - a crash of one run is this run's message and nobody else's
                self._fail(job, None, error)
                continue
            job.prompt_ids = tuple(one.run.prompt_ids)
            served.append(one)
            with self._changed:
                self._turns.add(one)
                self._number()

    def _take(self, one: Served, outcome: Any) -> bool:
        """What one turn brought to a run; whether it goes on."""
        job, now = one.job, time.time()
        self._moved = now
        if isinstance(outcome, Exception):
            self._fail(job, one.run, outcome)
            return False
        if one.used > self.limits.run_seconds:
            job.message = f"The run was ended after {self.limits.run_seconds:.0f} s, the longest allowed here."
        if outcome is None:
            self._end_served(one)
            return False
        if outcome is READING:
            if job.message:
                self._end_served(one, "stopped")
            return not job.message
        if job.first_round is None:
            job.first_round = now
        job.rounds.append(outcome)
        if now - one.looked > max(outcomes.TRACE_INTERVAL, len(self._turns) / TRACES):
            outcomes.keep(job, one.run)
            one.looked = now
        if job.message:
            self._end_served(one, "stopped")
            return False
        if getattr(one.run, "finish_reason", None) is not None:  # no further turn just to hear that there is no further round
            self._end_served(one)
            return False
        return True

    def _end_served(self, one: Served, state: JobState | None = None) -> None:
        job = one.job
        if state == "stopped" and getattr(one.run, "finish_reason", "") is None:
            one.run.end_stopped()  # it gives its caches back
        reason = outcomes.keep(job, one.run).finish_reason
        with self._changed:
            self._end(job, state or ("stopped" if reason == "stopped" else "done"))

    def _fail(self, job: Job, run: Decoding | None, error: Exception) -> None:
        message = outcomes.failed(job, run, error)
        with self._changed:
            self._end(job, "failed", message)

    def _ensure(self, name: str) -> bool:
        """Have the pair `name` loaded; if that fails, so do the runs that wait for it."""
        if self.pair_name == name and self.pair is not None:
            return True
        left, self.pair, self.pair_name = self.pair is not None, None, None
        gc.unfreeze()
        if left:  # the next pair needs its memory
            gc.collect()
        self.state, self.message = "loading", ""
        self._report("starting PyTorch", 0, None)
        try:
            self.pair = self._load(name)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong here is a message, not the end of the worker
            message = outcomes.sentence(error, f"The pair {name!r} could not be loaded")
            outcomes.log_error("loading failed", error)
            with self._changed:
                if self.state != "closed":
                    self.state, self.message = "failed", message
                self.progress = None
                for job in [job for job in self._waiting if job.request.pair == name]:
                    self._waiting.remove(job)
                    self._end(job, "failed", message)
                self._number()
            return False
        # What is loaded now stays: every later garbage collection would walk through all of torch again.
        gc.collect()
        gc.freeze()
        with self._changed:
            self.pair_name = name
            if self.state != "closed":
                self.state = "ready"
            self.progress = None
            for job in self._waiting:
                job.progress = None
        return True

    def _load(self, name: str) -> Any:
        """Load a pair; a failure that the loader has no sentence for may be one of the moment, and gets a second chance."""
        try:
            return self._loader(name, self._report)
        except SpecdecError:
            raise
        except Exception as error:  # noqa: BLE001 - any library below
            outcomes.log_error("loading failed, trying once more", error)
            return self._loader(name, self._report)

    def _report(self, stage: str, done: int, total: int | None) -> None:
        now, last = time.time(), self.progress
        same = last is not None and last.stage == stage
        if same and now - self._reported < PROGRESS_INTERVAL and done != total:
            return
        self._reported = now
        self.progress = Progress(stage=stage, done=done, total=total, since=last.since if same else now)
        for job in tuple(self._waiting):
            job.progress = self.progress

    def _run(self, job: Job) -> None:
        limit = job.started + self.limits.run_seconds
        late = False

        def stop() -> bool:
            nonlocal late
            late = late or time.time() > limit
            return late or job.id in self._stopping

        run, plain_half, message = None, False, ""
        state: JobState = "done"
        try:
            for leg in job.request.legs:
                run, plain_half = None, leg is not job.request
                run = self._start(self.pair, leg, stop)
                state = outcomes.decode(job, run, plain_half=plain_half, moved=self._note_move)
                if state == "stopped":
                    break
            message = f"The run was ended after {self.limits.run_seconds:.0f} s, the longest allowed here." if late else ""
        except Exception as error:  # noqa: BLE001 - a crash of one run is this run's message and nobody else's
            state, message = "failed", outcomes.failed(job, run, error, plain_half=plain_half)
        with self._changed:
            self._end(job, state, message)

    def _note_move(self) -> None:
        """The run that has the machine for itself made a round."""
        self._moved = time.time()
        self._let_go()


_shared: Engine | RemoteEngine | None = None
_shared_lock = threading.Lock()


def shared() -> Engine | RemoteEngine:
    """The engine of this process: its own one, or with SPECDEC_ENGINE=http://HOST:PORT the machines there. Cheap: nothing is loaded
    until something is asked of it. Raises SettingsError for an address that is none."""
    global _shared
    with _shared_lock:
        if _shared is None:
            limits = Limits.from_environment(os.environ)
            if address := os.environ.get("SPECDEC_ENGINE", "").strip():
                from specdec.remote import RemoteEngine

                _shared = RemoteEngine(address, limits=limits, token=os.environ.get("SPECDEC_ENGINE_TOKEN", "").strip())
            else:
                _shared = Engine(limits=limits)
        return _shared
