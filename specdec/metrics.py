"""Every figure of a run, computed again from the rounds of its trace.

`summary` gives the figures that stand on screen; `METRICS` says what each of them means, in the words that appear beside it.
Three ratios are easily taken for one another and never mixed here:
- acceptance rate α: accepted / judged drafts, the α of the formulas in `specdec.theory`;
- draft utilisation: accepted / all drafted tokens, discarded ones included, which many dashboards call "acceptance rate";
- mean acceptance length: tokens per target pass, replacement or bonus included.

Where there is nothing to divide by, a figure is None, never 0.

Time: a run is its prefill (the prompt goes through the models) and its decoding. Only decoding is compared with plain steps. The
time spent on recording the trace is left out of every figure: it is no part of decoding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from specdec import theory
from specdec.catalogue import BYTES_PER_WEIGHT
from specdec.metric_texts import METRICS, Metric, show
from specdec.trace import Draft, Round, Trace

__all__ = [
    "METRICS",
    "Metric",
    "PositionAcceptance",
    "RoundTime",
    "Summary",
    "acceptance_by_position",
    "accepted_per_round",
    "draft_lengths",
    "predicted_speedup",
    "show",
    "slow_cause",
    "speed_sentence",
    "summary",
    "time_split",
    "timeline",
    "verify_ratio_by_draft_length",
]


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The figures of one run; `METRICS` has the meaning of each under its name. Times in seconds, shares and rates in [0, 1]."""

    method: str
    finish_reason: str
    prompt_tokens: int
    new_tokens: int
    target_passes: int
    drafted: int
    judged: int
    accepted: int
    acceptance_rate: float | None
    draft_utilisation: float | None
    mean_acceptance_length: float | None
    mean_draft_length: float | None
    mean_overlap: float | None
    expected_acceptance_rate: float | None
    expected_acceptance_error: float | None
    tokens_per_second: float | None
    seconds_to_first_token: float | None
    seconds_prefill: float
    seconds_decode: float
    seconds_total: float
    seconds_record: float
    share_draft: float | None
    share_verify: float | None
    share_judge: float | None
    share_other: float | None
    plain_step_seconds: float | None
    cost_coefficient: float | None
    verify_ratio: float | None
    round_cost: float | None
    speedup: float | None
    predicted_speedup: float | None


@dataclass(frozen=True)
class PositionAcceptance:
    """Acceptance at one place of the draft. position: 1 … γ; rate: accepted / judged, None where no draft was ever judged."""

    position: int
    judged: int
    accepted: int
    rate: float | None
    drafted: int


@dataclass(frozen=True)
class RoundTime:
    """Where the seconds of one round went. draft: all draft steps of the round together."""

    index: int
    draft: float
    verify: float
    judge: float
    record: float


def summary(trace: Trace) -> Summary:
    """The figures of `trace`, from its rounds; only whole length, prefill and time to the first token are taken as told."""
    rounds, step = trace.rounds, trace.plain_step_seconds
    new_tokens = sum(len(r.new_ids) for r in rounds)
    drafted = sum(len(r.drafts) for r in rounds)
    judged, accepted = sum(r.judged for r in rounds), sum(r.accepted for r in rounds)
    draft, verify, judge, record, other = _seconds(trace)
    decode = draft + verify + judge + other
    cost, ratio = _costs(rounds, step)
    overlaps = _overlaps(rounds)
    overlap = _ratio(math.fsum(overlaps), len(overlaps))
    compared = step and trace.method == "speculative"
    return Summary(
        method=trace.method,
        finish_reason=trace.finish_reason,
        prompt_tokens=len(trace.prompt_ids),
        new_tokens=new_tokens,
        target_passes=len(rounds),
        drafted=drafted,
        judged=judged,
        accepted=accepted,
        acceptance_rate=_ratio(accepted, judged),
        draft_utilisation=_ratio(accepted, drafted),
        mean_acceptance_length=_ratio(new_tokens, len(rounds)),
        mean_draft_length=_ratio(drafted, len(rounds)),
        mean_overlap=overlap,
        expected_acceptance_rate=None if trace.settings.greedy else overlap,
        expected_acceptance_error=None if trace.settings.greedy else _error(overlaps),
        tokens_per_second=_ratio(new_tokens, decode),
        seconds_to_first_token=trace.seconds_to_first_token if new_tokens else None,
        seconds_prefill=trace.totals.seconds_prefill,
        seconds_decode=decode,
        seconds_total=trace.totals.seconds_prefill + decode,
        seconds_record=record,
        share_draft=_ratio(draft, decode),
        share_verify=_ratio(verify, decode),
        share_judge=_ratio(judge, decode),
        share_other=_ratio(other, decode),
        plain_step_seconds=step,
        cost_coefficient=cost,
        verify_ratio=ratio,
        round_cost=_ratio(decode / step, len(rounds)) if compared else None,
        speedup=_ratio(step * new_tokens, decode) if compared else None,
        predicted_speedup=predicted_speedup(trace),
    )


def predicted_speedup(trace: Trace) -> float | None:
    """ΣE(α, γ) / Σ(γ·c + v) over the rounds, with the α, c and v of this run and the γ of each round; None if one is unknown.

    A run rarely has one γ: it is cut at the end of the answer, and a look-up drafter proposes what it finds. The sums take each
    round as it was. What is left between this and the measured speed-up is judging, the time between the parts, and acceptances
    that are not independent of each other.
    """
    judged = sum(r.judged for r in trace.rounds)
    spent = math.fsum(math.fsum(r.seconds.draft) + r.seconds.verify for r in trace.rounds)
    if trace.method != "speculative" or not judged or not trace.plain_step_seconds or not spent:
        return None
    alpha = sum(r.accepted for r in trace.rounds) / judged
    tokens = math.fsum(theory.expected_tokens(alpha, len(r.drafts)) for r in trace.rounds)
    return trace.plain_step_seconds * tokens / spent


def acceptance_by_position(trace: Trace) -> list[PositionAcceptance]:
    """One entry for each place of the draft, 1 … the longest draft of the run."""
    longest = max((len(r.drafts) for r in trace.rounds), default=0)
    entries = []
    for place in range(longest):
        verdicts = [r.drafts[place].status for r in trace.rounds if len(r.drafts) > place]
        accepted, judged = verdicts.count("accepted"), len(verdicts) - verdicts.count("discarded")
        entries.append(PositionAcceptance(place + 1, judged, accepted, _ratio(accepted, judged), len(verdicts)))
    return entries


def accepted_per_round(trace: Trace, *, draft_length: int | None = None) -> list[int]:
    """How many rounds accepted 0, 1, 2, … drafts; rounds that drafted nothing are left out.

    draft_length: count only rounds that drafted exactly so many; the list then has draft_length + 1 entries and compares with
    `theory.accepted_distribution`.
    """
    rounds = [r for r in trace.rounds if r.drafts and draft_length in (None, len(r.drafts))]
    longest = max((len(r.drafts) for r in rounds), default=-1) if draft_length is None else draft_length
    counts = [0] * (longest + 1)
    for round_ in rounds:
        counts[round_.accepted] += 1
    return counts


def usual_draft_length(trace: Trace) -> float:
    """γ as it was set; where it is chosen each round, the mean of the rounds with drafts."""
    lengths = [len(round_.drafts) for round_ in trace.rounds if round_.drafts]
    if not trace.settings.adaptive or not lengths:
        return float(trace.settings.draft_length)
    return sum(lengths) / len(lengths)


def draft_lengths(trace: Trace) -> dict[int, int]:
    """γ -> how many rounds drafted so many tokens, shortest first."""
    lengths = [len(r.drafts) for r in trace.rounds]
    return {length: lengths.count(length) for length in sorted(set(lengths))}


def verify_ratio_by_draft_length(trace: Trace) -> dict[int, float]:
    """γ -> v(γ), mean time of the passes over γ+1 tokens / time of a plain step; empty where no plain step was measured."""
    if not trace.plain_step_seconds:
        return {}
    times: dict[int, list[float]] = {}
    for round_ in trace.rounds:
        times.setdefault(len(round_.drafts), []).append(round_.seconds.verify)
    return {length: math.fsum(t) / len(t) / trace.plain_step_seconds for length, t in sorted(times.items())}


def memory_floor(trace: Trace) -> float | None:
    """Seconds that a pass of the target takes at least: bytes of its weights / measured bandwidth, for every weight is read once.

    None where the bandwidth was not measured.
    """
    width = {**BYTES_PER_WEIGHT, "int8": 1}.get(trace.pair.held or trace.pair.dtype)
    if not trace.read_bandwidth or width is None:
        return None
    return trace.pair.target_parameters * width / trace.read_bandwidth


def time_split(trace: Trace) -> list[RoundTime]:
    """The seconds of each round."""
    return [
        RoundTime(r.index, math.fsum(r.seconds.draft), r.seconds.verify, r.seconds.judge, r.seconds.record) for r in trace.rounds
    ]


def timeline(trace: Trace) -> list[tuple[float, int]]:
    """(seconds since the start, new tokens so far): one point at the end of the prefill and one at the end of each round.

    Time spent on recording is left out; the time between the parts, known only for the whole run, is spread evenly over the
    rounds. The last point is at `seconds_total`.
    """
    *_, other = _seconds(trace)
    clock, tokens = trace.totals.seconds_prefill, 0
    points = [(clock, tokens)]
    for round_ in trace.rounds:
        times = round_.seconds
        clock += math.fsum(times.draft) + times.verify + times.judge + other / len(trace.rounds)
        tokens += len(round_.new_ids)
        points.append((clock, tokens))
    return points


def slow_cause(figures: Summary) -> str | None:
    """The field that made a run slower than plain decoding: "cost_coefficient", "verify_ratio" or "acceptance_rate"; else None.

    Asked of the run's own numbers: would it have paid with a drafter that takes no time (c = 0), or with a pass over γ+1 tokens
    as quick as one over a single token (v = 1)? The one that saves more is the cause if it saves enough; otherwise too few drafts
    were accepted. None, too, where the speed-up is not known or nothing was drafted.
    """
    if figures.speedup is None or figures.speedup >= 1 or not figures.drafted:
        return None
    saved = {
        "cost_coefficient": figures.round_cost * figures.share_draft,
        "verify_ratio": figures.round_cost * figures.share_verify - 1,
    }
    cause = max(saved, key=saved.get)
    enough = figures.mean_acceptance_length > figures.round_cost - saved[cause]
    return cause if enough else "acceptance_rate"


_DOUBTFUL_VERIFY_RATIO = 0.9  # a pass over more tokens can be as quick as one over a single token, hardly quicker
_CAUSES = {
    "cost_coefficient": "the drafter took too much time for what it brought",
    "verify_ratio": "verifying several tokens at once cost too much more than one plain step",
    "acceptance_rate": "too few drafts were accepted",
}


def speed_sentence(figures: Summary) -> str | None:
    """How much faster or slower than plain decoding the run was, and why, with its own numbers; None where it is not known."""
    if figures.speedup is None:
        return None
    ratio = figures.speedup
    if 0.98 < ratio < 1.02:
        verdict = f"As fast as plain decoding ({ratio:.2f}×)"
    else:
        verdict = f"{'Faster' if ratio > 1 else 'Slower'} than plain decoding: {ratio:.2f}×"
    cost = figures.round_cost
    parts = cost * figures.share_draft, cost * figures.share_verify, cost * (figures.share_judge + figures.share_other)
    sentence = (
        f"{verdict}. A round made {figures.mean_acceptance_length:.2f} tokens and took the time of {cost:.2f} plain steps: "
        f"drafting {parts[0]:.2f}, verifying {parts[1]:.2f}, the rest {parts[2]:.2f}."
    )
    if figures.verify_ratio is not None and figures.verify_ratio < _DOUBTFUL_VERIFY_RATIO:
        return (
            f"{sentence} Doubtful: passes with drafts took less time than a plain step (v = {figures.verify_ratio:.2f}), so the "
            "machine was busier when the plain step was measured."
        )
    cause = slow_cause(figures)
    return sentence if cause is None else f"{sentence} The cause: {_CAUSES[cause]}."


def _seconds(trace: Trace) -> tuple[float, float, float, float, float]:
    """draft, verify, judge and record summed over the rounds, and what they leave of the decoding time, at least 0."""
    split = time_split(trace)
    draft, verify = math.fsum(t.draft for t in split), math.fsum(t.verify for t in split)
    judge, record = math.fsum(t.judge for t in split), math.fsum(t.record for t in split)
    rest = trace.totals.seconds - trace.totals.seconds_prefill - (draft + verify + judge + record)
    return draft, verify, judge, record, max(0.0, rest)


def _costs(rounds: tuple[Round, ...], step: float | None) -> tuple[float | None, float | None]:
    """c and v. c counts the time of drafting that found nothing, too; v looks at passes that had drafts to verify."""
    drafted = sum(len(r.drafts) for r in rounds)
    if not drafted or not step:
        return None, None
    drafting = math.fsum(math.fsum(r.seconds.draft) for r in rounds)
    verifying = [r.seconds.verify for r in rounds if r.drafts]
    return drafting / drafted / step, math.fsum(verifying) / len(verifying) / step


def _overlaps(rounds: tuple[Round, ...]) -> list[float]:
    """Of the judged drafts. A run that was not recorded in full has none: its zeros stand for "not looked at"."""
    judged: list[Draft] = [d for r in rounds for d in r.drafts if d.status != "discarded"]
    return [d.overlap for d in judged] if any(d.top_p for d in judged) else []


def _error(overlaps: list[float]) -> float | None:
    """Standard error of the share of accepted drafts when each is accepted with the chance `overlap`."""
    if not overlaps:
        return None
    return math.sqrt(max(0.0, math.fsum(o * (1 - o) for o in overlaps))) / len(overlaps)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
