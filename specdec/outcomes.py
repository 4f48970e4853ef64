"""What a run leaves with its job: rounds and traces while it goes on, and one sentence when something goes wrong."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable

from specdec.errors import ModelError, SettingsError, SpecdecError
from specdec.jobs import Job, JobState
from specdec.starting import Decoding
from specdec.trace import Trace

log = logging.getLogger("specdec.engine")

TRACE_INTERVAL = 0.4  # seconds between two traces of a run that goes on; a page looks about twice a second


def keep(job: Job, run: Decoding, *, plain_half: bool = False) -> Trace:
    """Put what there is of the run so far where pages look for it: with the plain half of a race, or in the job's own place."""
    trace = run.trace()
    setattr(job, "plain_trace" if plain_half else "trace", trace)
    return trace


def decode(job: Job, run: Decoding, *, plain_half: bool, moved: Callable[[], None]) -> JobState:
    """One run to its end, alone. moved: told of every round."""
    job.prompt_ids = tuple(run.prompt_ids)
    rounds, looked = job.plain_rounds if plain_half else job.rounds, 0.0
    for round_ in run:
        moved()
        if job.first_round is None:
            job.first_round = time.time()
        rounds.append(round_)
        if (now := time.time()) - looked > TRACE_INTERVAL:
            keep(job, run, plain_half=plain_half)
            looked = now
    return "stopped" if keep(job, run, plain_half=plain_half).finish_reason == "stopped" else "done"


def failed(job: Job, run: Decoding | None, error: Exception, *, plain_half: bool = False) -> str:
    """The sentence for the person whose run it was (`run` is None where it had not begun). What was decoded before is kept; what we
    have no sentence of our own for is logged."""
    if not isinstance(error, SettingsError | ModelError):
        log_error(f"run {job.id} failed", error)
    if run is not None and (job.plain_rounds if plain_half else job.rounds):
        try:
            keep(job, run, plain_half=plain_half)
        except Exception:  # noqa: BLE001
            setattr(job, "plain_trace" if plain_half else "trace", None)
    return sentence(error, "This run failed, others are not affected")


def sentence(error: BaseException, what: str) -> str:
    """What a person reads: our own messages as they are, anything else behind `what`."""
    if isinstance(error, SpecdecError):
        return str(error)
    detail = " ".join(str(error).split())[:200]
    return f"{what} ({type(error).__name__}{': ' + detail if detail else ''})."


def log_error(what: str, error: BaseException) -> None:
    """Where it happened, without the message: that may quote a prompt."""
    log.error("%s: %s\n%s", what, type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))
