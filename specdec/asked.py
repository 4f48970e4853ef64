"""One greedy run, every γ, with nothing left open: the drafter is asked again at every place of the text that came out.

What a greedy drafter proposes follows from the committed text, and from the target's states of it, alone. So its proposal at each
place decides the rounds of every other γ, for every drafter, up to the rounding of passes of another shape.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec.experiments import Experiment, Finding
from specdec.replay import Replay, Replays, replay_asked
from specdec.trace import Trace


@dataclass(frozen=True, kw_only=True)
class EveryPlace(Experiment):
    """prompt_ids, output_ids: of the run. longest: the longest draft that is asked for. The drafter is that of the settings."""

    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    longest: int = 16

    module = "specdec.asking"

    @property
    def total(self) -> int:
        return len(self.output_ids)


@dataclass(frozen=True, kw_only=True)
class AskedFinding(Finding):
    """For each token of the text, if a round began there: proposed, how many drafts there were; agreed, how many of them stay."""

    drafter: str
    longest: int
    limit: int
    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    proposed: tuple[int, ...]
    agreed: tuple[int, ...]

    def fits(self, trace: Trace) -> bool:
        """Whether all of this very run was asked about."""
        return (
            trace.settings.greedy
            and (self.drafter, self.prompt_ids, self.output_ids) == (trace.settings.drafter, trace.prompt_ids, trace.output_ids)
            and self.limit == trace.settings.max_new_tokens
            and len(self.proposed) == len(self.output_ids)
        )

    def replay(self, draft_length: int) -> Replay:
        return replay_asked(self.proposed, self.agreed, draft_length, limit=self.limit)

    def every_draft_length(self) -> tuple[Replays, ...]:
        """γ = 1 … longest; three times the same, for there are no bounds."""
        found = [self.replay(length) for length in range(1, self.longest + 1)]
        return tuple(Replays(likely=one, low=one, high=one) for one in found)
