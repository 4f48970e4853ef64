"""A measurement before adopting speculative decoding: what is to be run, and in which order.

A `Design` says which drafters, draft lengths, prompts and repeats. `carry_out` does its steps, one after the other, and keeps a
record of each (`specdec.measure_records`), with which a measurement that was stopped goes on later; who performs a step (a
loaded pair, or the engine of the app) is an argument.

Order: first every arm once, for warming up; that is not kept. Then, repeat by repeat and prompt by prompt, all arms in turns, the
first one moving on, so that a machine that gets slower for a minute does so to all of them. Last, if wanted, the same requests
one, two, four ... at a time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specdec.errors import SettingsError
from specdec.measure_records import AUTO, PLAIN, Arm, BatchRecord, Record, RunRecord
from specdec.prompt_sets import Prompt
from specdec.trace import MAX_DRAFT_LENGTH, Settings

AT_ONCE = (1, 2, 4, 8)
WARM_TOKENS = 12  # of a run that only warms up


@dataclass(frozen=True, kw_only=True)
class Design:
    """What is measured. Checked on construction.

    prompts: the tasks, each with its kind. repeats: turns on every prompt. new_tokens: the longest answer; it may end earlier, as
    it would in use. at_once: how many requests are decoded together, () leaves that part out. requests: how many there are in that
    part, the same for every number at once.
    """

    pair: str = "embedded"
    drafters: tuple[str, ...]
    draft_lengths: tuple[int, ...] = (2, 4, 6)
    prompts: tuple[Prompt, ...]
    repeats: int = 1
    new_tokens: int = 64
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    at_once: tuple[int, ...] = ()
    requests: int = 8

    def __post_init__(self) -> None:
        for name, values in (("drafter", self.drafters), ("draft length", self.draft_lengths), ("prompt", self.prompts)):
            if not values:
                raise SettingsError(f"No {name} was chosen: take at least one.")
            if len(set(values)) != len(values):
                twice = next(v for v in values if list(values).count(v) > 1)
                raise SettingsError(f"The {name} {str(getattr(twice, 'text', twice))[:60]!r} was chosen twice: take it once.")
        for length in self.draft_lengths:
            if not isinstance(length, int) or not (1 <= length <= MAX_DRAFT_LENGTH or length == AUTO):
                raise SettingsError(f"A draft length is {length!r}: take whole numbers from 1 to {MAX_DRAFT_LENGTH}, or auto.")
        if not 1 <= self.repeats <= 100:
            raise SettingsError(f"The number of repeats is {self.repeats}: take 1 to 100.")
        if not 1 <= self.requests <= 1000:
            raise SettingsError(f"The number of requests is {self.requests}: take 1 to 1,000.")
        for count in self.at_once:
            if not 1 <= count <= 64:
                raise SettingsError(f"The number of requests at once is {count}: take 1 to 64.")
        self.settings(PLAIN)

    @property
    def arms(self) -> tuple[Arm, ...]:
        """Plain decoding first."""
        return (PLAIN, *(Arm(drafter, length) for drafter in self.drafters for length in self.draft_lengths))

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(p.kind for p in self.prompts))

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @property
    def total(self) -> int:
        """How many records a complete measurement has."""
        batched = (1 + len(self.drafters)) * len(self.at_once) * self.repeats
        return len(self.arms) * len(self.prompts) * self.repeats + batched

    def settings(self, arm: Arm, repeat: int = 0, *, warm_up: bool = False) -> Settings:
        """Every repeat has its own seed; warming up takes a few tokens only."""
        return Settings(
            drafter=arm.drafter,
            draft_length="auto" if arm.drafter and arm.draft_length == AUTO else arm.draft_length,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            max_new_tokens=min(WARM_TOKENS, self.new_tokens) if warm_up else self.new_tokens,
            seed=self.seed + repeat,
        )


@dataclass(frozen=True, kw_only=True)
class Step:
    """One thing to run. prompts: indices into the prompts of the design. at_once: 0 for a single request."""

    arm: Arm
    prompts: tuple[int, ...]
    repeat: int
    at_once: int = 0
    warm_up: bool = False

    @property
    def key(self) -> tuple[str, int, int, int]:
        """What a record of it is found by: arm, prompt (-1 for many), repeat, requests at once."""
        return self.arm.name, -1 if self.at_once else self.prompts[0], self.repeat, self.at_once


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a measurement was made: everything else that somebody needs who wants to repeat it.

    drafters: drafter -> digest of its weights, for those that come as a file.
    """

    pair: str
    target: str
    dtype: str
    device: str
    machine: str
    threads: int
    versions: dict[str, str]
    weights: dict[str, str]
    created: str


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A design, where it was carried out, and the records so far. title: a name, for one that is kept."""

    design: Design
    origin: Origin
    records: tuple[Record, ...] = ()
    title: str = ""

    @property
    def runs(self) -> tuple[RunRecord, ...]:
        return tuple(r for r in self.records if isinstance(r, RunRecord))

    @property
    def batches(self) -> tuple[BatchRecord, ...]:
        return tuple(r for r in self.records if isinstance(r, BatchRecord))

    @property
    def complete(self) -> bool:
        return len(self.records) >= self.design.total

    def plus(self, record: Record) -> Measurement:
        return replace(self, records=(*self.records, record))


# The steps, and doing them


def single_steps(design: Design) -> list[Step]:
    """Every arm on every prompt, in turns."""
    arms, steps = design.arms, []
    for repeat in range(design.repeats):
        for number in range(len(design.prompts)):
            shift = (repeat + number) % len(arms)
            steps += [Step(arm=arm, prompts=(number,), repeat=repeat) for arm in (*arms[shift:], *arms[:shift])]
    return steps


def batch_steps(design: Design, runs: Sequence[RunRecord]) -> list[Step]:
    """The same requests with 1, 2, 4 ... at once. Of each drafter only the draft length that was fastest by itself."""
    arms = [PLAIN, *(fastest(design, runs, drafter) for drafter in design.drafters)]
    prompts = tuple(n % len(design.prompts) for n in _spread(design))
    steps = []
    for repeat in range(design.repeats):
        for turn, count in enumerate(design.at_once):
            shift = (repeat + turn) % len(arms)
            steps += [Step(arm=a, prompts=prompts, repeat=repeat, at_once=count) for a in (*arms[shift:], *arms[:shift])]
    return steps


def _spread(design: Design) -> list[int]:
    """Indices of the prompts of the batched part, the kinds in turns."""
    by_kind = [[i for i, p in enumerate(design.prompts) if p.kind == kind] for kind in design.kinds]
    turns = max(map(len, by_kind))
    order = [numbers[turn] for turn in range(turns) for numbers in by_kind if turn < len(numbers)]
    return [order[n % len(order)] for n in range(design.requests)]


def fastest(design: Design, runs: Sequence[RunRecord], drafter: str) -> Arm:
    """The arm of `drafter` with the most tokens per second in the middle of its runs; the first one where nothing was run."""

    def speed(arm: Arm) -> float:
        return statistics.median([r.new_tokens / r.seconds_total for r in runs if r.arm == arm and r.new_tokens] or [0.0])

    return max((Arm(drafter, length) for length in design.draft_lengths), key=speed)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """done, total: records. step: what is being run. seconds_left: from the pace so far, None before there is one."""

    done: int
    total: int
    step: Step
    seconds_left: float | None


Perform = Callable[[Step], "Record | None"]


def carry_out(
    measurement: Measurement,
    *,
    perform: Perform,
    keep: Callable[[Record], Any],
    progress: Callable[[Progress], Any] = lambda p: None,
    stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> Measurement:
    """Do what is missing of `measurement` and return it with what came of it.

    perform: does one step, None when it was stopped. keep: gets each record as soon as there is one. A step that was begun and
    did not end leaves nothing, so whoever goes on does it again. Warming up is done at every start, and never kept.
    """
    design = measurement.design
    done = {r.key for r in measurement.records}
    begun, made, cold = clock(), 0, True

    def left() -> float | None:
        return (clock() - begun) / made * (design.total - len(done)) if made else None

    def due() -> Iterator[Step]:
        yield from single_steps(design)
        yield from batch_steps(design, measurement.runs)

    for step in due():
        if step.key in done:
            continue
        if cold:
            for arm in design.arms:
                warm = Step(arm=arm, prompts=step.prompts[:1], repeat=0, warm_up=True)
                progress(Progress(done=len(done), total=design.total, step=warm, seconds_left=None))
                if stop() or perform(warm) is None:
                    return measurement
            begun, cold = clock(), False
        if stop():
            break
        progress(Progress(done=len(done), total=design.total, step=step, seconds_left=left()))
        record = perform(step)
        if record is None:
            break
        measurement = measurement.plus(record)
        done.add(record.key)
        made += 1
        keep(record)
    return measurement
