"""A measured comparison: this project's loops against what people would use instead, on one machine, in one process.

Every arm decodes the same prompts with the same weights, greedily, to the same number of new tokens (the end-of-text token is
ignored, so that no arm may stop early). The arms take turns on every prompt, in an order that moves on, so that a machine that
gets slower for a minute does so to all of them. Ratios are formed prompt by prompt and repeat by repeat; what is reported is their
median and quartiles. A first turn that nobody counts warms up.
"""

from __future__ import annotations

import dataclasses
import datetime
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from specdec import theory
from specdec.metrics import summary
from specdec.trace import Settings, Trace

WHOLE_PROMPT = "plain, whole prompt"
HALF_TRACED = ", half traced"
LEAST_ROUNDS = 4  # of each kind, to say what a trace costs


class Timed(NamedTuple):
    """One request: seconds in all and to the first token, output ids, the trace of our own arms. trace_cost: time of a recorded round
    over that of one without a record."""

    seconds: float
    seconds_to_first_token: float
    output_ids: Sequence[int]
    trace: Trace | None = None
    trace_cost: float | None = None


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One arm on one prompt once; the rest as in `Timed`."""

    arm: str
    prompt: int
    repeat: int
    seconds: float
    seconds_to_first_token: float
    output_ids: tuple[int, ...]
    trace: Trace | None = None
    trace_cost: float | None = None

    @property
    def tokens_per_second(self) -> float:
        return len(self.output_ids) / self.seconds


@dataclass(frozen=True)
class Arm:
    """A way to decode."""

    name: str
    run: Callable[[str], Timed]


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of some measurements."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """None where there is nothing to summarise."""
        values = sorted(values)
        if not values:
            return None
        if len(values) == 1:
            return cls(values[0], values[0], values[0], 1)
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high, len(values))


@dataclass(frozen=True, kw_only=True)
class Report:
    """All samples and what they add up to. ratios: name -> spread of ratios within a turn; differing: arms whose greedy text differed
    from the plain one, with how often."""

    pair: str
    device: str
    created: str
    machine: str
    threads: int
    versions: dict[str, str]
    new_tokens: int
    draft_length: int
    prompts: tuple[str, ...]
    samples: tuple[Sample, ...]
    tokens_per_second: dict[str, Spread]
    first_token: dict[str, Spread]
    ratios: dict[str, Spread]
    differing: dict[str, str] = field(default_factory=dict)
    passes: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; traces are left out, their figures are in the samples."""
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "samples"}
        for name in ("tokens_per_second", "first_token", "ratios"):
            data[name] = {key: dataclasses.asdict(spread) for key, spread in data[name].items()}
        data["samples"] = [
            {
                "arm": s.arm,
                "prompt": s.prompt,
                "repeat": s.repeat,
                "seconds": s.seconds,
                "seconds_to_first_token": s.seconds_to_first_token,
                "new_tokens": len(s.output_ids),
                "acceptance_rate": summary(s.trace).acceptance_rate if s.trace else None,
                "trace_cost": s.trace_cost,
            }
            for s in self.samples
        ]
        return data


def our_arms(pair: Any, *, new_tokens: int, draft_length: int, drafters: Sequence[str] | None = None) -> list[Arm]:
    """Plain decoding and every drafter of the pair; the first drafter with every other round untraced as well, to show what the trace
    costs, and plain decoding that reads the whole prompt each time, to show what it brings to keep the beginning of every chat."""
    from specdec import decoding

    endless = dataclasses.replace(pair, eos_ids=frozenset())
    names = tuple(drafters or pair.drafters)

    def settings(drafter: str) -> Settings:
        return Settings(drafter=drafter, draft_length=draft_length, max_new_tokens=new_tokens)

    def arm(name: str, begin: Callable[..., Any], drafter: str, pair: Any = endless) -> Arm:
        def run(prompt: str) -> Timed:
            begun = time.perf_counter()
            running = begin(pair, prompt, settings(drafter))
            for _ in running:
                pass
            seconds = time.perf_counter() - begun
            trace = running.trace()
            return Timed(seconds, trace.seconds_to_first_token, trace.output_ids, trace)

        return Arm(name, run)

    arms = [arm("plain", decoding.stream_plain, "")]
    arms += [arm(name, decoding.stream, name) for name in names]
    arms.append(Arm(names[0] + HALF_TRACED, lambda prompt: half_traced(endless, prompt, settings(names[0]))))
    arms.append(arm(WHOLE_PROMPT, decoding.stream_plain, "", dataclasses.replace(endless, keep_beginning=False)))
    return arms


def half_traced(pair: Any, prompt: str, settings: Settings) -> Timed:
    """A run whose rounds are recorded in full in turns. Two runs, one with and one without, would differ by what the machine does in
    the meantime, which is several times what a record costs."""
    from specdec import decoding

    begun = time.perf_counter()
    running = decoding.stream(pair, prompt, settings)
    times: dict[tuple[str, int], dict[bool, list[float]]] = {}  # rounds are compared with those that drafted as much, in the same way
    while running.finish_reason is None:
        turn = time.perf_counter()
        if (round_ := next(running, None)) is None:
            break
        if round_.index:  # the first one has the prompt in it
            kind = times.setdefault((running.way, len(round_.drafts)), {True: [], False: []})
            kind[running.record].append(time.perf_counter() - turn)
        running.record = not running.record
    seconds = time.perf_counter() - begun
    most = max(times.values(), key=lambda kind: min(map(len, kind.values())), default={True: [], False: []})
    enough = min(map(len, most.values())) >= LEAST_ROUNDS
    cost = statistics.median(most[True]) / statistics.median(most[False]) if enough else None
    return Timed(seconds, running.seconds_to_first_token, running.output_ids, trace_cost=cost)


def measure(
    arms: Sequence[Arm],
    prompts: Sequence[str],
    *,
    repeats: int = 3,
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
    stop: Callable[[], bool] = lambda: False,
    into: list[Sample] | None = None,
) -> list[Sample]:
    """Every arm on every prompt, `repeats` times, in turns. Ends early, with what there is, when `stop` says so.

    into: the list that is filled, for a caller that wants what there is even if something goes wrong.
    """
    total, done = len(arms) * (1 + len(prompts) * repeats), 0
    samples: list[Sample] = [] if into is None else into
    for arm in arms:
        progress(f"warming up: {arm.name}", done, total)
        arm.run(prompts[0])
        done += 1
    for repeat in range(repeats):
        for number, prompt in enumerate(prompts):
            shift = (repeat + number) % len(arms)
            for arm in [*arms[shift:], *arms[:shift]]:
                if stop():
                    return samples
                progress(arm.name, done, total)
                found = arm.run(prompt)._asdict()
                found["output_ids"] = tuple(found["output_ids"])
                samples.append(Sample(arm=arm.name, prompt=number, repeat=repeat, **found))
                done += 1
    return samples


def paired(samples: Sequence[Sample], upper: str, lower: str, value: Callable[[Sample], float]) -> list[float]:
    """value(upper) / value(lower) for each prompt and repeat that both arms have."""
    by_turn = {(s.arm, s.prompt, s.repeat): s for s in samples}
    turns = sorted({(s.prompt, s.repeat) for s in samples})
    return [
        value(by_turn[upper, *turn]) / value(by_turn[lower, *turn])
        for turn in turns
        if (upper, *turn) in by_turn and (lower, *turn) in by_turn
    ]


def speed(sample: Sample) -> float:
    return sample.tokens_per_second


def prediction_ratios(samples: Sequence[Sample], drafter: str) -> list[float]:
    """Measured speed-up of decoding / E(α, γ) / (γ·c + v), all from the same turn. c and v are relative to the plain arm's step."""
    by_turn = {(s.arm, s.prompt, s.repeat): s for s in samples}
    ratios = []
    for sample in samples:
        other = by_turn.get(("plain", sample.prompt, sample.repeat))
        if sample.arm != drafter or other is None or not sample.trace or not other.trace:
            continue
        step = statistics.fmean(r.seconds.verify + r.seconds.judge for r in other.trace.rounds)
        own, plain = summary(sample.trace), summary(other.trace)
        if own.acceptance_rate is None:
            continue
        tokens = sum(theory.expected_tokens(own.acceptance_rate, len(r.drafts)) for r in sample.trace.rounds)
        cost = sum(sum(r.seconds.draft) + r.seconds.verify + r.seconds.judge for r in sample.trace.rounds) / step
        ratios.append(own.tokens_per_second / plain.tokens_per_second / (tokens / cost))
    return ratios


def pass_times(runner: Any, *, context: int = 64, sizes: Sequence[int] = (1, 2, 3, 5, 7, 9), repeats: int = 15) -> dict[str, float]:
    """Median seconds of one pass over n tokens behind `context` tokens, in turns: "1" is a plain step, "5" verifies four drafts."""
    sequence = runner.open()
    sequence.forward(list(range(10, 10 + context)), keep=1)
    times: dict[int, list[float]] = {n: [] for n in sizes}
    for turn in range(repeats + 2):
        for n in sizes:
            begun = time.perf_counter()
            sequence.forward(list(range(20, 20 + n)), keep=n)
            runner.synchronize()
            if turn >= 2:
                times[n].append(time.perf_counter() - begun)
            sequence.crop(context)
    return {str(n): statistics.median(values) for n, values in times.items()}


def report(pair: Any, samples: Sequence[Sample], prompts: Sequence[str], *, new_tokens: int, draft_length: int) -> Report:
    """Medians, quartiles and paired ratios of what was measured."""
    import torch

    from specdec.decoding import versions

    names = list(dict.fromkeys(s.arm for s in samples))
    drafters = [n for n in names if n in pair.drafters]
    best = max(drafters, key=lambda n: statistics.median(s.tokens_per_second for s in samples if s.arm == n), default=None)
    ratios: dict[str, Spread | None] = {}
    for name in drafters:
        ratios[f"{name} / plain"] = Spread.of(paired(samples, name, "plain", speed))
        ratios[f"{name}: measured / E/(γc+v)"] = Spread.of(prediction_ratios(samples, name))
    ratios["plain / hf generate"] = Spread.of(paired(samples, "plain", "hf generate", speed))
    ratios["draft / hf assisted"] = Spread.of(paired(samples, "draft", "hf assisted", speed))
    ratios["lookup / hf look-up"] = Spread.of(paired(samples, "lookup", "hf look-up", speed))
    if best:
        ratios[f"best drafter ({best}) / plain"] = ratios[f"{best} / plain"]
        ratios[f"best drafter ({best}) / hf assisted"] = Spread.of(paired(samples, best, "hf assisted", speed))
    ratios["a round with its trace / without"] = Spread.of([s.trace_cost for s in samples if s.trace_cost is not None])
    for name in [n for n in ("plain", *drafters, WHOLE_PROMPT) if n in names]:
        ratios[f"first token: {name} / hf generate"] = Spread.of(
            paired(samples, name, "hf generate", lambda s: s.seconds_to_first_token)
        )
    return Report(
        pair=pair.title,
        device=pair.device_name,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        machine=f"{platform.system()} {platform.machine()}",
        threads=torch.get_num_threads(),
        versions=versions(),
        new_tokens=new_tokens,
        draft_length=draft_length,
        prompts=tuple(prompts),
        samples=tuple(samples),
        tokens_per_second={n: Spread.of([s.tokens_per_second for s in samples if s.arm == n]) for n in names},
        first_token={n: Spread.of([s.seconds_to_first_token for s in samples if s.arm == n]) for n in names},
        ratios={name: spread for name, spread in ratios.items() if spread},
        differing=_differing(samples, names),
        passes=pass_times(pair.target),
    )


def _differing(samples: Sequence[Sample], names: Sequence[str]) -> dict[str, str]:
    """Arm -> on how many prompts its text was not the plain one. Greedy texts part where two logits are equal to rounding."""
    plain = {s.prompt: s.output_ids for s in samples if s.arm == "plain"}
    found = {}
    for name in names:
        wrong = {s.prompt for s in samples if s.arm == name and s.prompt in plain and s.output_ids != plain[s.prompt]}
        if wrong:
            found[name] = f"{len(wrong)} of {len(plain)} prompts"
    return found
