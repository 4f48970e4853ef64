"""`run`, `plain` and `race` on other machines: `--engine http://HOST:PORT`, or SPECDEC_ENGINE. What is printed is the same."""

from __future__ import annotations

import argparse
import http.client
import os
import sys
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from specdec import cli_io
from specdec.errors import ModelError, SettingsError
from specdec.jobs import Job, Limits, RunRequest
from specdec.race import Race
from specdec.remote import RemoteEngine
from specdec.trace import Method, Settings, Trace

LOOK = 0.02  # seconds between two looks at a job


def wanted(chosen: argparse.Namespace) -> str:
    """The address that the person or the environment names, "" for none. SettingsError for options that do not go with it."""
    address = chosen.engine or os.environ.get("SPECDEC_ENGINE", "").strip()
    if not address:
        return ""
    usual = {"target": None, "draft": None, "device": "auto", "dtype": "auto", "split": ""}
    given = [f"--{name}" for name, value in usual.items() if getattr(chosen, name) != value]
    if given:
        raise SettingsError(f"{given[0]} does not go with the engine at {address}, which has its models: leave one of them out.")
    return address


def begin(address: str, prompt: str, settings: Settings, *, pair: str | None, **how: Any) -> Remote:
    """Ask for a run over there. how: further fields of the request. Raises SpecdecError when nobody answers."""
    engine = RemoteEngine(address, limits=Limits(), token=os.environ.get("SPECDEC_ENGINE_TOKEN", "").strip())
    try:
        status, said = engine.place.ask("GET", "/status")
        pairs = list(said["pairs"]) if status == 200 else None
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
        said = str(error) or type(error).__name__
        raise ModelError(f"The engine at {address} does not answer ({said}): start it, or decode here without it.") from None
    if pairs is None:
        raise ModelError(f"The engine at {address} refuses: {said['message']}")
    request = RunRequest(prompt=prompt, settings=settings, pair=pair or pairs[0], **how)
    return Remote(engine, engine.submit(request, owner="command line"))


def start(address: str, prompt: str, settings: Settings, *, stop: Callable[[], bool], method: Method, name: str | None) -> Remote:
    """A run over there that has begun. name: of the pair, None for the first one that is offered."""
    made = begin(address, prompt, settings, pair=name, method=method)
    made.stop = stop
    with cli_io.Progress(sys.stderr) as progress:
        return made.wait(progress)


class Remote:
    """A run over there, in the shape that `cli_print` knows of one here. Iterating over it yields its rounds as they come."""

    def __init__(self, engine: RemoteEngine, job: Job, *, stop: Callable[[], bool] = lambda: False) -> None:
        self.engine, self.job, self.stop = engine, job, stop

    def wait(self, progress: Callable[[str, int, int | None], None]) -> Remote:
        """Until it has begun. Raises ModelError when it never will."""
        job = self.job
        while job.active and job.trace is None and job.plain_trace is None and not self.stop():
            now = job.progress
            if now is not None:
                progress(now.stage, now.done, now.total)
            else:
                progress(job.message or ("waiting for its turn" if job.state == "queued" else "reading the prompt"), 0, None)
            time.sleep(LOOK)
        if self.stop():
            self.engine.stop(job)
            while job.active:  # for a moment; a run that had not begun leaves nothing to show
                time.sleep(LOOK)
        if not job.active and job.trace is None and job.plain_trace is None:
            self.engine.close()
            raise ModelError(job.message or "The run ended before it had begun: try again.")
        return self

    def __iter__(self) -> Iterator[Any]:
        """Raises ModelError in the end when the run failed; what there is of it is in `trace`."""
        shown = 0
        while True:
            active = self.job.active
            for round_ in self.job.rounds[shown:]:
                shown += 1
                yield round_
            if not active:
                self.engine.close()
                return
            if self.stop():
                self.engine.stop(self.job)
            time.sleep(LOOK)

    def trace(self) -> Trace:
        return self.job.trace

    @property
    def message(self) -> str:
        """Why it did not come to its end."""
        return self.job.message if self.job.state == "failed" else ""

    # what `cli_print.Live` asks of a run

    @property
    def settings(self) -> Settings:
        settings = self.job.trace.settings
        return settings if self.job.request.method == "speculative" else settings.replace(draft_length=0)

    @property
    def info(self) -> Any:
        return self.job.trace.pair

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        return self.job.trace.prompt_ids

    @property
    def output_ids(self) -> list[int]:
        return list(self.job.trace.output_ids)

    @property
    def pair(self) -> Any:
        # The text of a plain run grows with the traces that come, and not token by token.
        texts = SimpleNamespace(decode=lambda ids: self.job.trace.output_text)
        return SimpleNamespace(device_name=self.job.trace.device, texts=texts, eos_ids=())


def race(address: str, prompt: str, settings: Settings, *, pair: str | None, title: str, stop: Callable[[], bool]) -> Race:
    """Both methods after each other, over there. Raises ModelError when one of them was not made."""
    made = begin(address, prompt, settings, pair=pair, race=True)
    made.stop = stop
    with cli_io.Progress(sys.stderr) as progress:
        made.wait(progress)
        for _ in made:
            progress("speculative decoding", len(made.job.rounds), None)
    job = made.job
    if made.message or job.plain_trace is None or job.trace is None:
        raise ModelError(made.message or "The race was stopped before both runs had begun.")
    return Race(plain=job.plain_trace, speculative=job.trace, title=title)
