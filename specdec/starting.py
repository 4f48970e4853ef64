"""How a pair is loaded and a run begun: what the engine calls unless a test gives it something else.

torch is imported when the first pair is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

from specdec.errors import SettingsError
from specdec.jobs import RunRequest
from specdec.trace import Trace


class Decoding(Protocol):
    """What the engine needs of a run: `specdec.decoding.Run` has it."""

    prompt_ids: list[int]

    def __iter__(self) -> Any: ...

    def trace(self) -> Trace: ...


Loader = Callable[[str, Callable[[str, int, "int | None"], None]], Any]
Start = Callable[[Any, RunRequest, Callable[[], bool]], Decoding]


def load(name: str, progress: Callable[[str, int, int | None], None], **options: Any) -> Any:
    """The usual loader: a pair of the catalogue, or one that the server's configuration names. options: of `models.load_pair`."""
    from specdec import models
    from specdec.catalogue import CATALOGUE, offered, sides

    if name in CATALOGUE:
        return models.load_pair(name, progress=progress, **options)
    if name not in offered(os.environ):
        raise SettingsError(f"This server does not offer the pair {name!r}: take {', '.join(offered(os.environ))}.")
    target, draft = sides(name)
    return models.load_pair(target=target, draft=draft, progress=progress, **options)


def start(pair: Any, request: RunRequest, stop: Callable[[], bool]) -> Decoding:
    """The usual start of a run: the two loops of `specdec.decoding`."""
    from specdec import decoding

    if request.experiment is not None:
        from specdec import experiments

        return experiments.begin(pair, request, stop)
    if request.race:
        from specdec import race_run  # the two legs of a race, each warmed up

        return race_run.begin(pair, request.prompt, request.settings, method=request.method, stop=stop)
    if request.together:
        from specdec.measure_batch import BatchDecoding

        return BatchDecoding(
            pair, request.together, request.settings, method=request.method, at_once=request.at_once, stop=stop
        )
    if request.method == "plain":
        return decoding.stream_plain(pair, request.prompt, request.settings, stop=stop, record=request.record)
    options = {"stop": stop, "record": request.record, "time_plain": request.record}
    return decoding.stream(pair, request.prompt, request.settings, **options)
