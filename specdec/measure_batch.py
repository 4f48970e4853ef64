"""The part of a measurement with several requests at once: one batched run as one step, and as one job of the engine."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from specdec.batch import BatchRound, BatchRun
from specdec.measure import Design, Step
from specdec.measure_device import memory_of, reset_peak
from specdec.measure_records import BatchRecord, Memory
from specdec.trace import Method, Settings

WARM_TOKENS = 4


@dataclass(frozen=True, kw_only=True)
class BatchResult:
    """What came of some requests that were served together; stands where the trace of a single run would.

    seconds: until all had their answers. cache_tokens: the most tokens that were in the caches at the same time, or a little more:
    those of the longest requests.
    """

    finish_reason: Literal["done", "stopped"]
    requests: int
    new_tokens: int
    seconds: float
    first_token_seconds: tuple[float, ...]
    answer_seconds: tuple[float, ...]
    drafted: int
    judged: int
    accepted: int
    target_passes: int
    cache_tokens: int

    def record(self, step: Step, memory: Memory) -> BatchRecord:
        """What a measurement keeps of it."""
        return BatchRecord(
            drafter=step.arm.drafter,
            draft_length=step.arm.draft_length,
            repeat=step.repeat,
            at_once=step.at_once,
            requests=self.requests,
            new_tokens=self.new_tokens,
            seconds=self.seconds,
            first_token_seconds=self.first_token_seconds,
            answer_seconds=self.answer_seconds,
            drafted=self.drafted,
            judged=self.judged,
            accepted=self.accepted,
            target_passes=self.target_passes,
            memory=memory,
            at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        )


class BatchDecoding:
    """Some prompts served together, in the shape that the engine knows of a single run."""

    prompt_ids: tuple[int, ...] = ()  # there is no single prompt

    def __init__(
        self,
        pair: Any,
        prompts: Sequence[str],
        settings: Settings,
        *,
        method: Method,
        at_once: int,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        self._at_once, self._passes = at_once, 0
        requests = [(prompt, settings) for prompt in prompts]
        self._run = BatchRun(pair, requests, method=method, at_once=at_once, stop=stop)
        short = settings.replace(max_new_tokens=min(WARM_TOKENS, settings.max_new_tokens))
        self._warm_up = BatchRun(pair, [(p, short) for p in prompts[:at_once]], method=method, at_once=at_once, stop=stop)

    def __iter__(self) -> Iterator[BatchRound]:
        """The rounds, after a few uncounted ones with the same shapes: what is made once is no part of the time."""
        for _ in self._warm_up:
            pass
        for round_ in self._run:
            self._passes += 1
            yield round_

    def trace(self) -> BatchResult:
        """What there is so far."""
        runs = self._run.runs
        rounds = [r for run in runs for r in run.rounds]
        ended = all(run.finish_reason not in (None, "stopped") for run in runs)
        lengths = sorted((len(run.committed) for run in runs), reverse=True)
        return BatchResult(
            finish_reason="done" if ended else "stopped",
            requests=len(runs),
            new_tokens=sum(len(run.output_ids) for run in runs),
            seconds=round(self._run.seconds, 7),
            first_token_seconds=tuple(round(run.seconds_to_first_token, 7) for run in runs),
            answer_seconds=tuple(round(run.seconds, 7) for run in runs),
            drafted=sum(len(r.drafts) for r in rounds),
            judged=sum(r.judged for r in rounds),
            accepted=sum(r.accepted for r in rounds),
            target_passes=self._passes,
            cache_tokens=sum(lengths[: self._at_once]),
        )


def perform_batch(pair: Any, design: Design, step: Step, *, stop: Callable[[], bool] = lambda: False) -> BatchRecord | None:
    """One step with several requests, in this thread; None when it was stopped."""
    reset_peak(pair)
    decoding = BatchDecoding(
        pair,
        [design.prompts[i].text for i in step.prompts],
        design.settings(step.arm, step.repeat),
        method=step.arm.method,
        at_once=step.at_once,
        stop=stop,
    )
    for _ in decoding:
        pass
    result = decoding.trace()
    if result.finish_reason == "stopped":
        return None
    return result.record(step, memory_of(pair, step.arm.drafter, tokens=result.cache_tokens))
