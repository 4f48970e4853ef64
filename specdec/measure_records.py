"""What is kept of a measurement: a record of each run, or of several runs at once, and the arm that it belongs to.

Records are plain numbers. Every figure of the report comes from them (`specdec.measure_analysis`).
"""

from __future__ import annotations

import datetime
import hashlib
import math
from dataclasses import dataclass

from specdec.metrics import timeline
from specdec.trace import Trace

AUTO = 0  # as a draft length: chosen anew each round, see `specdec.adaptive`


@dataclass(frozen=True, order=True)
class Arm:
    """One way to decode. drafter: "" is plain decoding. draft_length: γ, or AUTO."""

    drafter: str = ""
    draft_length: int = 0

    @property
    def name(self) -> str:
        """ "plain", "head γ = 4", "head γ = auto"."""
        return f"{self.drafter} γ = {self.length_name}" if self.drafter else "plain"

    @property
    def length_name(self) -> str:
        """ "4", "auto"."""
        return "auto" if self.draft_length == AUTO else str(self.draft_length)

    @property
    def method(self) -> str:
        return "speculative" if self.drafter else "plain"


PLAIN = Arm()


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes; None where nobody knows. peak: of the whole process while the step ran (on a GPU: of the device).

    weights: of target and drafter. cache: keys and values of target and drafter at the end of the answer.
    """

    peak: int | None = None
    weights: int | None = None
    cache: int | None = None


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One request by itself. Times in seconds, without the recording of the trace.

    round_seconds, round_tokens: how long each round took, the program around it included, and how many tokens it brought.
    seconds_verify_drafts: the part of seconds_verify in the `rounds_with_drafts` rounds that had drafts to verify.
    text: a digest of the output ids, to see which arms wrote the same.
    """

    drafter: str
    draft_length: int
    prompt: int
    repeat: int
    prompt_tokens: int
    new_tokens: int
    finish_reason: str
    drafted: int
    judged: int
    accepted: int
    rounds_with_drafts: int
    seconds_to_first_token: float
    seconds_prefill: float
    seconds_draft: float
    seconds_verify: float
    seconds_verify_drafts: float
    seconds_judge: float
    round_seconds: tuple[float, ...]
    round_tokens: tuple[int, ...]
    text: str
    memory: Memory = Memory()
    at: str = ""

    @property
    def arm(self) -> Arm:
        return Arm(self.drafter, self.draft_length)

    @property
    def key(self) -> tuple[str, int, int, int]:
        return self.arm.name, self.prompt, self.repeat, 0

    @property
    def seconds_decode(self) -> float:
        return math.fsum(self.round_seconds)

    @property
    def seconds_total(self) -> float:
        """The complete answer: prefill and decoding."""
        return self.seconds_prefill + self.seconds_decode

    @classmethod
    def of(cls, trace: Trace, *, prompt: int, repeat: int, memory: Memory = Memory()) -> RunRecord:  # noqa: B008 - frozen
        """What is kept of a run. trace: of a run that has come to its end."""
        rounds, clock = trace.rounds, [seconds for seconds, _ in timeline(trace)]
        drafted = [r for r in rounds if r.drafts]
        plain = trace.method == "plain"
        return cls(
            drafter="" if plain else trace.settings.drafter,
            draft_length=0 if plain else AUTO if trace.settings.adaptive else trace.settings.draft_length,
            prompt=prompt,
            repeat=repeat,
            prompt_tokens=len(trace.prompt_ids),
            new_tokens=sum(len(r.new_ids) for r in rounds),
            finish_reason=trace.finish_reason,
            drafted=sum(len(r.drafts) for r in rounds),
            judged=sum(r.judged for r in rounds),
            accepted=sum(r.accepted for r in rounds),
            rounds_with_drafts=len(drafted),
            seconds_to_first_token=_short(trace.seconds_to_first_token),
            seconds_prefill=_short(trace.totals.seconds_prefill),
            seconds_draft=_short(math.fsum(math.fsum(r.seconds.draft) for r in rounds)),
            seconds_verify=_short(math.fsum(r.seconds.verify for r in rounds)),
            seconds_verify_drafts=_short(math.fsum(r.seconds.verify for r in drafted)),
            seconds_judge=_short(math.fsum(r.seconds.judge for r in rounds)),
            round_seconds=tuple(_short(after - before) for before, after in zip(clock, clock[1:], strict=False)),
            round_tokens=tuple(len(r.new_ids) for r in rounds),
            text=hashlib.sha256(repr(trace.output_ids).encode()).hexdigest()[:12],
            memory=memory,
            at=_now(),
        )


@dataclass(frozen=True, kw_only=True)
class BatchRecord:
    """Several requests together, never more than `at_once` of them; the next one starts when one has ended.

    seconds: until all `requests` had their answers. first_token_seconds, answer_seconds: of each request, from its own start.
    """

    drafter: str
    draft_length: int
    repeat: int
    at_once: int
    requests: int
    new_tokens: int
    seconds: float
    first_token_seconds: tuple[float, ...]
    answer_seconds: tuple[float, ...]
    drafted: int
    judged: int
    accepted: int
    target_passes: int
    memory: Memory = Memory()
    at: str = ""

    @property
    def arm(self) -> Arm:
        return Arm(self.drafter, self.draft_length)

    @property
    def key(self) -> tuple[str, int, int, int]:
        return self.arm.name, -1, self.repeat, self.at_once

    @property
    def tokens_per_second(self) -> float:
        """Of all requests together."""
        return self.new_tokens / self.seconds


Record = RunRecord | BatchRecord


def _short(seconds: float) -> float:
    return round(seconds, 7)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
