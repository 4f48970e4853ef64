"""From the records of a measurement to its figures and its verdicts: use it with this γ, or do not, for each kind of task.

Everything is compared within one turn: a speculative run with the plain run of the same prompt and the same repeat. Repeats of one
prompt are brought together by their median, then prompts are; intervals are those of a median of prompts (`specdec.measure_stats`).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specdec import theory
from specdec.measure import Measurement
from specdec.measure_records import PLAIN, Arm, BatchRecord, Memory, RunRecord
from specdec.measure_stats import Interval, median_interval, cost_per_million, percentile, token_gaps
from specdec.texts import ENGLISH, count, spoken, text

ALL = ""  # the "kind" of figures over all kinds
FEWEST = 6  # prompts below which no verdict is given: of fewer no range holds the true median with 95 %, see `median_interval`
SHARES = (0.5, 0.9, 0.99)

Percentiles = tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class Figures:
    """One arm on the prompts of one kind (ALL: on all). None where nothing can be said.

    speedup: seconds per token of the complete answer, plain / this arm, within each turn. tokens_per_second: of decoding.
    slower, slowest: how many prompts took longer than plain decoding, and the lowest speed-up of one. served_per_second: all tokens /
    all seconds, reading the prompt included. acceptance_rate α, utilisation, mean_acceptance_length τ and mean_draft_length: sums over
    all runs, divided. drafting_share s: rounds with drafts / rounds; cost_coefficient c, verify_ratio v, of the rounds with drafts:
    against the plain step of the same turn, median. gaps: between one visible token and the next, P50, P90, P99; pauses: between two
    moments at which something appears. same_text: runs that wrote what plain decoding wrote, of how many that can be compared; None
    where tokens are drawn.
    """

    arm: Arm
    kind: str
    prompts: int
    runs: int
    speedup: Interval | None
    slower: int | None
    slowest: float | None
    tokens_per_second: Interval | None
    served_per_second: float | None
    first_token: Interval | None
    answer: Interval | None
    acceptance_rate: float | None
    utilisation: float | None
    mean_acceptance_length: float | None
    accepted_per_round: float | None
    mean_draft_length: float | None
    drafting_share: float | None
    cost_coefficient: float | None
    verify_ratio: float | None
    predicted_speedup: float | None
    seconds_prefill: float
    seconds_draft: float
    seconds_verify: float
    seconds_judge: float
    seconds_other: float
    gaps: Percentiles | None
    pauses: Percentiles | None
    same_text: tuple[int, int] | None
    memory: Memory


@dataclass(frozen=True, kw_only=True)
class Load:
    """One arm with so many requests at once. Medians over the repeats; speedup: throughput / the plain one's of the same repeat."""

    arm: Arm
    at_once: int
    repeats: int
    tokens_per_second: float
    speedup: float | None
    first_token: float
    answer: float
    answer_p90: float
    acceptance_rate: float | None
    memory: Memory

    def cost(self, price_per_hour: float) -> float:
        """Of a million output tokens."""
        return cost_per_million(price_per_hour, self.tokens_per_second)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """use: True, False, or None where the measurement does not decide. best: the arm with the highest median speed-up.

    figures: those of this arm.
    """

    kind: str
    use: bool | None
    best: Arm | None
    speedup: Interval | None
    figures: Figures | None = None

    @property
    def sentence(self) -> str:
        """Kind and verdict in English, "Code: use it, …", for reports and the command line."""
        with spoken(ENGLISH):
            return f"{self.name}: {self.said()}"

    @property
    def name(self) -> str:
        return self.kind[:1].upper() + self.kind[1:] if self.kind else text("said.all")

    def said(self) -> str:
        """The verdict with its numbers, in the language of whoever looks."""
        found = self.speedup
        if found is None or self.best is None:
            return text("said.none")
        prompts = count("said.prompts", found.count)
        if self.figures is not None and self.figures.slower:
            prompts = text("said.slower", prompts=prompts, slower=self.figures.slower)
        range_ = text("said.range", low=found.low, high=found.high, prompts=prompts)
        values = {"speed": found.value, "arm": self.best.name, "range": range_}
        if found.count < FEWEST:
            few = count("said.prompts", found.count)
            return text("said.few", speed=found.value, arm=self.best.name, prompts=few, fewest=FEWEST)
        if self.use:
            return text("said.use", drafter=self.best.drafter, length=self.best.length_name, speed=found.value, range=range_)
        if self.use is False:
            return text("said.not", cause=_cause(self.figures), **values)
        return text("said.open", **values)


@dataclass(frozen=True)
class Analysis:
    figures: tuple[Figures, ...]
    verdicts: tuple[Verdict, ...]
    loads: tuple[Load, ...]

    def of(self, kind: str) -> list[Figures]:
        return [f for f in self.figures if f.kind == kind]

    @property
    def overall(self) -> Verdict:
        return self.verdicts[0]


def analyse(measurement: Measurement) -> Analysis:
    """All figures; verdicts begin with the one over all kinds."""
    design, runs = measurement.design, measurement.runs
    kinds = (ALL, *design.kinds) if len(design.kinds) > 1 else (ALL,)
    figures = []
    for kind in kinds:
        numbers = {i for i, p in enumerate(design.prompts) if kind in (ALL, p.kind)}
        own = [r for r in runs if r.prompt in numbers]
        figures += [_figures(arm, kind, own, greedy=design.greedy) for arm in design.arms if any(r.arm == arm for r in own)]
    verdicts = tuple(verdict(kind, [f for f in figures if f.kind == kind]) for kind in kinds)
    return Analysis(tuple(figures), verdicts, _loads(measurement.batches))


def _figures(arm: Arm, kind: str, runs: Sequence[RunRecord], *, greedy: bool) -> Figures:
    own = [r for r in runs if r.arm == arm]
    turns = {(r.prompt, r.repeat): r for r in runs if r.arm == PLAIN and r.new_tokens}
    paired = [(r, turns[r.prompt, r.repeat]) for r in own if (r.prompt, r.repeat) in turns and r.new_tokens]
    drafted, judged, accepted = (sum(getattr(r, name) for r in own) for name in ("drafted", "judged", "accepted"))
    tokens, rounds = sum(r.new_tokens for r in own), sum(len(r.round_tokens) for r in own)
    alpha = accepted / judged if judged else None
    cost = _median([r.seconds_draft / r.drafted / _step(plain) for r, plain in paired if r.drafted])
    ratio = _median([r.seconds_verify_drafts / r.rounds_with_drafts / _step(plain) for r, plain in paired if r.rounds_with_drafts])
    gaps = [g for r in own for g in token_gaps(r.round_seconds, r.round_tokens)]
    pauses = [s for r in own for s, n in zip(r.round_seconds[1:], r.round_tokens[1:], strict=True) if n]
    with_drafts, seconds = sum(r.rounds_with_drafts for r in own), sum(r.seconds_total for r in own)
    share = with_drafts / rounds if rounds else None
    predicted = None
    if alpha is not None and cost is not None and ratio is not None:
        predicted = theory.speedup(alpha, drafted / with_drafts, cost, ratio, drafting_share=share)
    speedups = {}
    if arm != PLAIN:
        speedups = _medians([(r.prompt, (plain.seconds_total / plain.new_tokens) / (r.seconds_total / r.new_tokens)) for r, plain in paired])
    return Figures(
        arm=arm,
        kind=kind,
        prompts=len({r.prompt for r in own}),
        runs=len(own),
        speedup=median_interval([*speedups.values()]),
        slower=sum(value < 1 for value in speedups.values()) if speedups else None,
        slowest=min(speedups.values(), default=None),
        served_per_second=tokens / seconds if seconds else None,
        tokens_per_second=_by_prompt([(r.prompt, r.new_tokens / r.seconds_decode) for r in own if r.seconds_decode]),
        first_token=_by_prompt([(r.prompt, r.seconds_to_first_token) for r in own if r.new_tokens]),
        answer=_by_prompt([(r.prompt, r.seconds_total) for r in own]),
        acceptance_rate=alpha,
        utilisation=accepted / drafted if drafted else None,
        mean_acceptance_length=tokens / rounds if rounds else None,
        accepted_per_round=accepted / rounds if rounds else None,
        mean_draft_length=drafted / rounds if rounds else None,
        drafting_share=share if arm != PLAIN else None,
        cost_coefficient=cost,
        verify_ratio=ratio,
        predicted_speedup=predicted,
        seconds_prefill=sum(r.seconds_prefill for r in own),
        seconds_draft=sum(r.seconds_draft for r in own),
        seconds_verify=sum(r.seconds_verify for r in own),
        seconds_judge=sum(r.seconds_judge for r in own),
        seconds_other=sum(max(0.0, r.seconds_decode - r.seconds_draft - r.seconds_verify - r.seconds_judge) for r in own),
        gaps=_percentiles(gaps),
        pauses=_percentiles(pauses),
        same_text=(sum(r.text == plain.text for r, plain in paired), len(paired)) if greedy and arm != PLAIN and paired else None,
        memory=_most(own),
    )


def _step(plain: RunRecord) -> float:
    """Seconds of a plain target step in this turn."""
    return plain.seconds_verify / len(plain.round_seconds)


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _by_prompt(values: Sequence[tuple[int, float]]) -> Interval | None:
    """values: (prompt, value) of each run. Repeats are brought together first."""
    return median_interval([*_medians(values).values()])


def _medians(values: Sequence[tuple[int, float]]) -> dict[int, float]:
    """values: (prompt, value) of each run -> prompt -> the median of its repeats."""
    repeats: dict[int, list[float]] = {}
    for prompt, value in values:
        repeats.setdefault(prompt, []).append(value)
    return {prompt: statistics.median(own) for prompt, own in repeats.items()}


def _percentiles(values: Sequence[float]) -> Percentiles | None:
    return tuple(percentile(values, share) for share in SHARES) if values else None


def _most(records: Sequence[RunRecord] | Sequence[BatchRecord]) -> Memory:
    def most(name: str) -> int | None:
        known = [v for v in (getattr(r.memory, name) for r in records) if v is not None]
        return max(known) if known else None

    return Memory(peak=most("peak"), weights=most("weights"), cache=most("cache"))


def _loads(records: Sequence[BatchRecord]) -> tuple[Load, ...]:
    plain = {(r.at_once, r.repeat): r for r in records if r.arm == PLAIN}
    loads = []
    for key in sorted({(r.at_once, r.arm) for r in records}):
        own = [r for r in records if (r.at_once, r.arm) == key]
        ratios = [r.tokens_per_second / plain[r.at_once, r.repeat].tokens_per_second for r in own if (r.at_once, r.repeat) in plain]
        judged = sum(r.judged for r in own)

        def middle(value: Callable[[BatchRecord], float], own: Sequence[BatchRecord] = own) -> float:
            return statistics.median(value(r) for r in own)

        loads.append(
            Load(
                arm=key[1],
                at_once=key[0],
                repeats=len(own),
                tokens_per_second=middle(lambda r: r.tokens_per_second),
                speedup=_median(ratios) if key[1] != PLAIN else None,
                first_token=middle(lambda r: statistics.median(r.first_token_seconds)),
                answer=middle(lambda r: statistics.median(r.answer_seconds)),
                answer_p90=middle(lambda r: percentile(r.answer_seconds, 0.9)),
                acceptance_rate=sum(r.accepted for r in own) / judged if judged else None,
                memory=_most(own),
            )
        )
    return tuple(loads)


# Verdicts


def verdict(kind: str, figures: Sequence[Figures]) -> Verdict:
    """use it, where even the lower bound of the best arm's interval is above 1; do not, where its upper bound is not; else open."""
    known = [f for f in figures if f.speedup is not None]
    if not known:
        return Verdict(kind=kind, use=None, best=None, speedup=None)
    best = max(known, key=lambda f: f.speedup.value)
    found = best.speedup
    use = None if found.count < FEWEST else True if found.low > 1 else False if found.high <= 1 else None
    return Verdict(kind=kind, use=use, best=best.arm, speedup=found, figures=best)


def _cause(figures: Figures) -> str:
    """What made the best arm slow, asked like `specdec.metrics.slow_cause`: which of c = 0 and v = 1 would have been enough."""
    cost, ratio, tokens = figures.cost_coefficient, figures.verify_ratio, figures.mean_acceptance_length
    if cost is None or ratio is None or tokens is None or figures.acceptance_rate is None:
        return text("said.cause.nothing")
    share, drafted = figures.drafting_share or 0.0, figures.mean_draft_length or 0.0  # per round, those without drafts included
    saved = {"c": drafted * cost, "v": share * (ratio - 1)}
    worst = max(saved, key=saved.get)
    if tokens <= 1 + sum(saved.values()) - saved[worst]:
        return text("said.cause.alpha", alpha=figures.acceptance_rate, tokens=tokens)
    return text("said.cause.c", cost=cost) if worst == "c" else text("said.cause.v", ratio=ratio)
