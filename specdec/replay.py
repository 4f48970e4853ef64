"""One run, every draft length: what a recorded run says about the same text decoded with another γ. Pure functions of a trace.

A draft model, asked at a place of a given text, always proposes the same. So what a recorded run shows about each place of its
output decides how every other γ would have gone over the same text, with no assumption that acceptance is independent:

- greedy: at each judged place the draft was the target's choice (1) or was not (0);
- sampled: a draft at this place is accepted with the chance Σ min(p, q), so the result holds in expectation;
- a bonus token stands where nobody was asked: the run does not tell (None). It is tried as 0 and as 1, which gives the bounds,
  and as the run's own α, which gives the line between them. Long drafts leave few such places.

Exact for drafters that look only at the committed text. A look-up drafter may find another place to copy from when it starts
elsewhere, and an attached head reads features that its own earlier guesses have shaped: for them it is an estimate.

Who asks the drafter again, at every place of the text, leaves nothing open: `replay_asked` then goes through the very rounds that a
greedy run with another γ makes, for every drafter (`specdec.asked`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdec.metrics import summary
from specdec.trace import Trace

Chance = float | None
LOOKING_BACK = ("head", "head-lookup", "lookup")  # drafters whose proposal depends on more than the committed text


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What a round takes, in plain target steps: γ·draft + 1 + γ·verify + rest.

    draft: c. verify: what each drafted token adds to the checking pass, (v(γ) − 1) / γ at the γ of the run; the straight line
    through it is an assumption. rest: judging and the time between the parts, per round.
    """

    draft: float
    verify: float
    rest: float = 0.0

    def of(self, *, rounds: float, drafted: float) -> float:
        return rounds * (1 + self.rest) + drafted * (self.draft + self.verify)


@dataclass(frozen=True, kw_only=True)
class Replay:
    """The run with another γ. rounds, drafted: expected numbers. tokens_per_round: τ."""

    draft_length: int
    rounds: float
    drafted: float
    tokens: int

    @property
    def tokens_per_round(self) -> float:
        return self.tokens / self.rounds

    def speedup(self, costs: Costs) -> float:
        """Plain time / time of these rounds."""
        return self.tokens / costs.of(rounds=self.rounds, drafted=self.drafted)


@dataclass(frozen=True, kw_only=True)
class Replays:
    """The same γ three times: unknown places as the run's α (likely), all rejected (low), all accepted (high)."""

    likely: Replay
    low: Replay
    high: Replay

    @property
    def exact(self) -> bool:
        """Whether no unknown place mattered."""
        return abs(self.low.rounds - self.high.rounds) < 1e-9 and abs(self.low.drafted - self.high.drafted) < 1e-9


def places(trace: Trace) -> tuple[Chance, ...]:
    """For each new token of the run: the chance that a draft there is accepted, None where the run does not tell."""
    chances: list[Chance] = []
    for round_ in trace.rounds:
        asked = min(trace.settings.draft_length, trace.settings.max_new_tokens - len(chances) - 1)
        for draft in round_.drafts:
            if draft.status != "discarded":
                known = trace.settings.greedy or draft.top_p  # a sampled run without its lists has no overlaps either
                chance = float(draft.status == "accepted") if trace.settings.greedy else draft.overlap
                chances.append(chance if known else None)
        if round_.outcome.kind == "bonus":
            # The drafter was asked here and had nothing to propose; where γ is chosen each round, nobody knows whether it was asked.
            gave_up = len(round_.drafts) < asked and not trace.settings.adaptive
            chances.append(0.0 if gave_up else None)
    return tuple(chances)


def replay(chances: Sequence[float], draft_length: int, *, limit: int | None = None) -> Replay:
    """Decode the text whose places have these chances with γ = draft_length ≥ 1.

    limit: max_new_tokens of the run; a round never drafts past it (None: the length of the text). Rounds are summed from the
    end of the text to its beginning: from each place a round ends at each possible place with the chance of just that.
    """
    if draft_length < 1:
        raise ValueError(f"draft length is {draft_length}: take 1 or more.")
    count = len(chances)
    limit = count if limit is None else limit
    rounds, drafted = [0.0] * (count + 2), [0.0] * (count + 2)
    for start in range(count - 1, -1, -1):
        length = max(0, min(draft_length, limit - start - 1))
        alive, after_rounds, after_drafted = 1.0, 0.0, 0.0
        for place in range(start, start + length):
            if place >= count:  # the text ended on an accepted draft
                alive = 0.0
                break
            ends = alive * (1 - chances[place])
            after_rounds += ends * rounds[place + 1]
            after_drafted += ends * drafted[place + 1]
            alive *= chances[place]
        behind = min(start + length + 1, count)
        rounds[start] = 1 + after_rounds + alive * rounds[behind]
        drafted[start] = length + after_drafted + alive * drafted[behind]
    return Replay(draft_length=draft_length, rounds=rounds[0], drafted=drafted[0], tokens=count)


def replay_asked(proposed: Sequence[int], agreed: Sequence[int], draft_length: int, *, limit: int) -> Replay:
    """The rounds of a greedy run with γ = draft_length ≥ 1 over a text of len(proposed) tokens.

    proposed: for each token how many drafts the drafter has if a round begins there. agreed: how many of them, from the first on,
    are the text. limit: max_new_tokens of the run.
    """
    if draft_length < 1:
        raise ValueError(f"draft length is {draft_length}: take 1 or more.")
    start = rounds = drafted = 0
    while start < len(proposed):
        length = max(0, min(draft_length, limit - start - 1, proposed[start]))
        rounds, drafted = rounds + 1, drafted + length
        start += min(agreed[start], length) + 1
    return Replay(draft_length=draft_length, rounds=float(rounds), drafted=float(drafted), tokens=len(proposed))


def every_draft_length(trace: Trace, *, longest: int = 16) -> tuple[Replays, ...]:
    """The run with γ = 1 … longest. Empty where the run made nothing or judged nothing."""
    known, figures = places(trace), summary(trace)
    if not known or figures.acceptance_rate is None:
        return ()
    middle = _mean([c for c in known if c is not None], otherwise=figures.acceptance_rate)

    def with_(guess: float, length: int) -> Replay:
        return replay([guess if c is None else c for c in known], length, limit=trace.settings.max_new_tokens)

    return tuple(
        Replays(likely=with_(middle, length), low=with_(0.0, length), high=with_(1.0, length)) for length in range(1, longest + 1)
    )


def costs_of(trace: Trace) -> Costs | None:
    """The costs of a measured run, None where no plain step was measured or nothing was drafted."""
    figures = summary(trace)
    lengths = [len(r.drafts) for r in trace.rounds if r.drafts]
    if figures.cost_coefficient is None or figures.verify_ratio is None or not lengths:
        return None
    slope = (figures.verify_ratio - 1) * len(lengths) / sum(lengths)
    rest = (figures.round_cost or 0.0) * ((figures.share_judge or 0.0) + (figures.share_other or 0.0))
    return Costs(draft=figures.cost_coefficient, verify=max(0.0, slope), rest=rest)


def _mean(values: list[float], *, otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
