"""A measurement through the engine, run by run, for a page: it goes on while the person looks elsewhere, and ends when asked to.

Every run is a job of its own in the engine's queue, so a class that shares the machine gets its turns in between; a run is timed by
itself, so that makes the measurement longer and not slower. The records stay in `measurement`, whatever ends the campaign.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from typing import Any, Literal

from specdec.engine import BusyError, Engine, Job, Lease, RunRequest
from specdec.errors import SettingsError, SpecdecError
from specdec.measure import Design, Measurement, Progress, Step, carry_out
from specdec.measure_records import PLAIN, Record, RunRecord

log = logging.getLogger(__name__)

LOOK = 0.02  # seconds between two looks at a job
PATIENCE = 1.0  # seconds until a full queue is asked again

State = Literal["running", "done", "stopped", "failed"]


class _Ended(Exception):
    """The campaign cannot go on; the message is for the person."""


class Campaign:
    """lease: of the session that wants it. measurement: None until the models are loaded, or what an earlier campaign left.

    state, message, progress and measurement are read by the page while the campaign's own thread writes them.
    """

    def __init__(self, lease: Lease, design: Design, *, measurement: Measurement | None = None) -> None:
        self.lease, self.design, self.measurement = lease, design, measurement
        self.state: State = "running"
        self.message = ""
        self.progress: Progress | None = None
        self.job: Job | None = None
        self._before = lease.job  # a run of this tab from before; its end is nobody's business
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="specdec-measure", daemon=True)
        self._thread.start()

    @property
    def active(self) -> bool:
        return self.state == "running"

    def stop(self) -> None:
        """End before the next model pass; what has been measured stays."""
        self._stop.set()
        if self.job is not None:
            self.lease.engine.stop(self.job)

    def wait(self, timeout: float | None = None) -> None:
        """Until the campaign's thread has ended."""
        self._thread.join(timeout)

    # the campaign's thread

    def _work(self) -> None:
        try:
            engine, known = self.lease.engine, self.measurement
            if not getattr(engine, "local", True):
                from specdec.remote import ALONE

                raise SettingsError(ALONE)
            pair = self._load(engine)
            from specdec.measure_device import begin

            fresh = begin(pair, self.design)
            if known is not None and dataclasses.replace(fresh.origin, created="") != dataclasses.replace(known.origin, created=""):
                raise _Ended("What there is was measured on another device or with other weights: measure again from the start.")
            self.measurement = known or fresh
            carry_out(
                self.measurement,
                perform=lambda step: self._perform(step, pair),
                keep=self._keep,
                progress=self._look,
                stop=self._over,
            )
            self.state, self.message = ("done", "") if self.measurement.complete else ("stopped", self.message)
        except (_Ended, SpecdecError) as error:
            self.message = str(error)
            self.state = "stopped" if isinstance(error, _Ended) else "failed"
        except Exception as error:  # noqa: BLE001 - a page waits for this thread: whatever happens is a message
            log.exception("a measurement failed")
            self.message, self.state = f"The measurement failed ({type(error).__name__}); what was measured is kept.", "failed"

    def _over(self) -> bool:
        return self._stop.is_set() or self.lease.gone

    def _look(self, progress: Progress) -> None:
        self.progress = progress

    def _keep(self, record: Record) -> None:
        self.measurement = self.measurement.plus(record)

    def _load(self, engine: Engine) -> Any:
        """Have the engine load the pair: one token by the target alone. Then see whether it has what is wanted."""
        request = RunRequest(
            prompt=self.design.prompts[0].text,
            settings=self.design.settings(PLAIN).replace(max_new_tokens=1),
            method="plain",
            pair=self.design.pair,
            record=False,
        )
        if self._run(request) is None:
            raise _Ended(self.message)
        missing = [name for name in self.design.drafters if name not in engine.pair.drafters]
        if missing:
            raise SettingsError(f"This pair has no drafter {missing[0]!r}: take {', '.join(engine.pair.drafters)}.")
        return engine.pair

    def _perform(self, step: Step, pair: Any) -> Record | None:
        from specdec.measure_device import memory_of, reset_peak

        reset_peak(pair)
        request = RunRequest(
            prompt=self.design.prompts[step.prompts[0]].text,
            settings=self.design.settings(step.arm, step.repeat, warm_up=step.warm_up),
            method=step.arm.method,
            pair=self.design.pair,
            record=False,
            together=tuple(self.design.prompts[i].text for i in step.prompts) if step.at_once else (),
            at_once=step.at_once or 1,
        )
        job = self._run(request)
        if job is None:
            return None
        trace = job.trace
        if step.at_once:
            return trace.record(step, memory_of(pair, step.arm.drafter, tokens=trace.cache_tokens))
        memory = memory_of(pair, step.arm.drafter, tokens=len(trace.prompt_ids) + len(trace.output_ids))
        return RunRecord.of(trace, prompt=step.prompts[0], repeat=step.repeat, memory=memory)

    def _run(self, request: RunRequest) -> Job | None:
        """One job to its end; None when it was stopped. Raises SettingsError with the engine's sentence when it failed."""
        while True:
            if self._over():
                return None
            theirs = self.lease.job
            # One that began after the campaign counts even if it was so short that it is over by now.
            if theirs is not None and theirs is not self.job and (theirs.active or theirs is not self._before):
                raise _Ended("Another run of this tab took its place; what was measured is kept.")
            try:
                job = self.job = self.lease.run(request)
                break
            except BusyError:
                time.sleep(PATIENCE)
        while job.active:
            if self._over():
                self.lease.engine.stop(job)
            time.sleep(LOOK)
        if job.state == "done" and job.trace is not None:
            return job
        if job.state == "failed":
            raise SettingsError(job.message)
        if not self._over():
            self.message = job.message or "Another run of this tab took its place; what was measured is kept."
        return None
