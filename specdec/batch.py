"""Many requests at once: their rounds go on in step, and passes that can be one pass are one.

There is no second loop. Each request is a `specdec.decoding.Run` of its own, with its own cache, seed, draft lengths and end; here
the passes that the runs ask for are collected and done together. What a pass costs is mostly the reading of the weights, which all
rows share; attention and verdicts see to each request by itself, so different lengths cannot leak into each other.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specdec.decoding import Run, Stopped, stream, stream_plain
from specdec.errors import SettingsError
from specdec.passes import Pass, perform
from specdec.reading import read_on
from specdec.service import READING, Reading
from specdec.trace import Method, Round, Settings


@dataclass(frozen=True)
class BatchRound:
    """One round of all requests that are being served.

    members: their numbers. rounds: what each did, in the same order. joined: requests that were admitted, whose prompts were read
    first. seconds: of all of it; seconds_prefill: of reading those prompts.
    """

    members: tuple[int, ...]
    rounds: tuple[Round, ...]
    joined: tuple[int, ...]
    seconds: float
    seconds_prefill: float

    @property
    def new_tokens(self) -> tuple[int, ...]:
        """Of each member."""
        return tuple(round_.accepted + (round_.outcome.id is not None) for round_ in self.rounds)


class BatchRun(Iterator[BatchRound]):
    """Serves `requests`, (prompt, settings) each, at most `at_once` of them at the same time; the next one joins when one ends.

    Iterate over it. `runs` are the requests' own runs, in order: what each has put out, and its trace. Their seconds are those of the
    clock from the moment they were admitted, what was done for others meanwhile included: that is how long a person waits.
    Raises SettingsError before the first round when a request cannot be used.
    """

    def __init__(
        self,
        pair: Any,
        requests: Sequence[tuple[str, Settings]],
        *,
        method: Method = "speculative",
        at_once: int = 8,
        stop: Callable[[], bool] | None = None,
        record: bool = False,
    ) -> None:
        if at_once < 1:
            raise SettingsError(f"at_once is {at_once}: serve at least one request at a time.")
        begin = stream_plain if method == "plain" else stream
        self.runs: list[Run] = [begin(pair, prompt, settings, stop=stop, record=record) for prompt, settings in requests]
        self.at_once = at_once
        self.seconds = 0.0
        self._waiting = deque(range(len(self.runs)))
        self._serving: list[int] = []

    def __iter__(self) -> BatchRun:
        return self

    def __next__(self) -> BatchRound:
        if not self._waiting and not self._serving:
            raise StopIteration
        begun = time.perf_counter()
        with torch.inference_mode():
            joined = self._admit()
            read = time.perf_counter() - begun
            rounds = together({number: self.runs[number] for number in self._serving})
        seconds = time.perf_counter() - begun
        self.seconds += seconds
        for number in self._serving:
            if number in rounds:
                # The newly admitted one is served from now on, its own prompt included; its reader has noted that part.
                self.runs[number].count_time(seconds)
            elif self.runs[number].finish_reason is None:
                self.runs[number].end_stopped()
        members = tuple(number for number in self._serving if number in rounds)
        self._serving = [number for number in members if self.runs[number].finish_reason is None]
        if not members:  # all that were served have been stopped
            return self.__next__()
        return BatchRound(members, tuple(rounds[number] for number in members), joined, seconds, read if joined else 0.0)

    def _admit(self) -> tuple[int, ...]:
        joined = []
        while self._waiting and len(self._serving) < self.at_once:
            number = self._waiting.popleft()
            try:
                self.runs[number].reader.read()
            except Stopped:
                self.runs[number].end_stopped()
                continue
            joined.append(number)
            self._serving.append(number)
        return tuple(joined)


def advance(runs: Sequence[Run]) -> list[Round | Exception | Reading | None]:
    """One round of each run, the prompts of new ones read first; for each its round, None when it has ended, what ended it, or
    `READING` when its prompt is so long that only a piece of it was read.

    An error of one run is no error of the others. The round notes how many had a part in it.
    """
    begun = time.perf_counter()
    reading = {number: run for number, run in enumerate(runs) if run.finish_reason is None and not run.reader.done}
    with torch.inference_mode():
        failed = read_on(reading)
        begun_well = (number for number, run in enumerate(runs) if run.finish_reason is None and run.reader.done)
        going = {number: runs[number] for number in begun_well if number not in failed}
        rounds = together(going, failed)
    seconds = time.perf_counter() - begun
    had_a_part = len(going.keys() | reading.keys())  # who only read took time, too
    outcomes: list[Round | Exception | Reading | None] = [None] * len(runs)
    for number, run in enumerate(runs):
        if number in rounds:
            run.count_time(seconds)
            run.note_shared(had_a_part)
            if had_a_part == 1:
                run.remember()
            outcomes[number] = rounds[number]
        elif number in going and number not in failed or isinstance(failed.get(number), Stopped):
            run.end_stopped()
        elif number in failed:
            outcomes[number] = failed[number]
        elif run.finish_reason is None:
            run.wait(seconds)
            outcomes[number] = READING
    return outcomes


def together(runs: dict[int, Run], failed: dict[int, Exception] | None = None) -> dict[int, Round]:
    """One round of each run, with what can be done in one pass done in one; a run that was stopped has none.

    failed: takes what went wrong inside a single run; without it that is raised.

    Drafting goes on step by step for all that still draft; the target's pass waits for the last of them, so that it is one.
    """
    steps = {number: run.steps() for number, run in runs.items()}
    done: dict[int, Round] = {}
    wanted: dict[int, Pass] = {}
    for number in tuple(steps):
        _go_on(number, None, steps, wanted, done, failed)
    while wanted:
        for group in _groups(wanted, runs):
            for number, result in zip(group, perform([wanted.pop(number) for number in group]), strict=True):
                _go_on(number, result, steps, wanted, done, failed)
    return done


def _groups(wanted: dict[int, Pass], runs: dict[int, Run]) -> list[list[int]]:
    """Which of the wanted passes are next, by the function that does them: drafts before the target's own passes."""
    groups: dict[tuple[Any, int], list[int]] = {}
    for number, one in wanted.items():
        groups.setdefault((one.together, one.layers), []).append(number)
    drafting = [group for group in groups.values() if not runs[group[0]].verifies(wanted[group[0]])]
    return drafting or list(groups.values())


def _go_on(
    number: int,
    result: Tensor | None,
    steps: dict[int, Generator[Pass, Tensor, Round]],
    wanted: dict[int, Pass],
    done: dict[int, Round],
    failed: dict[int, Exception] | None,
) -> None:
    """Send a run its result; note what it wants next, or its round."""
    try:
        wanted[number] = next(steps[number]) if result is None else steps[number].send(result)
    except StopIteration as end:
        done[number] = end.value
    except Stopped:
        pass
    except Exception as error:
        if failed is None:
            raise
        failed[number] = error
