"""The sessions of a server: who is there, whose run is whose, and what happens to it when its session goes away.

No torch here, and nothing about how runs are made.
"""

from __future__ import annotations

import threading
import uuid
import weakref
from typing import TYPE_CHECKING

from specdec.jobs import Job, Progress, RunRequest

if TYPE_CHECKING:
    from specdec.engine import Engine
    from specdec.remote import RemoteEngine


class Sessions:
    """Who is there, and whose runs they are: what `Engine` and `RemoteEngine` have in common.

    away: why nobody can be served at present, one sentence. Who submits or ends a job holds `_changed`.
    """

    away = ""
    local = True  # whether models are loaded in this process

    def __init__(self) -> None:
        self._leases: weakref.WeakSet[Lease] = weakref.WeakSet()
        self._meeting = threading.Lock()
        self._changed = threading.Condition()
        self._owners: dict[str, Job] = {}  # active jobs only, so that nothing is kept of a session that has gone

    @property
    def tabs(self) -> int:
        """Sessions that are there, whatever they do."""
        with self._meeting:
            return sum(not lease.gone for lease in self._leases)

    def meet(self, lease: Lease) -> None:
        """A session has come."""
        with self._meeting:
            self._leases.add(lease)

    def _own(self, owner: str, request: RunRequest, progress: Progress | None) -> Job:
        """A new job of `owner`, whose older one is stopped."""
        if (older := self._owners.get(owner)) is not None:
            self._stop(older)
        job = self._owners[owner] = Job(request=request, progress=progress)
        return job

    def _disown(self, job: Job) -> None:
        """The job has ended."""
        self._owners = {owner: other for owner, other in self._owners.items() if other is not job}

    def _stop(self, job: Job) -> None:
        raise NotImplementedError


class Lease:
    """A session's hold on its run. When the session goes away and does not come back within `grace` seconds, the run is stopped.

    grace covers a short loss of the network: the page reconnects within half a second and calls `renew` again.
    """

    def __init__(self, engine: Engine | RemoteEngine, *, grace: float = 1.2):
        self.engine, self.grace = engine, grace
        self.owner = uuid.uuid4().hex
        self.job: Job | None = None
        self.gone = False  # whether the session has been away for longer than `grace`
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()
        engine.meet(self)

    def run(self, request: RunRequest) -> Job:
        """Submit a run as this session; the older one is stopped."""
        self.job = self.engine.submit(request, owner=self.owner)
        return self.job

    def stop(self) -> None:
        if self.job is not None:
            self.engine.stop(self.job)

    def renew(self) -> None:
        """The session is there."""
        with self._lock:
            self.gone = False
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def released(self) -> None:
        """The session has gone, perhaps only for a moment."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = threading.Timer(self.grace, self._expire)
            self._timer.daemon = True
            self._timer.start()

    def _expire(self) -> None:
        self.gone = True
        job = self.job
        if job is not None and job.active:
            self.engine.stop(job)
            job.message = "The connection to the page was lost, so the run was stopped."
