"""Does it work on this machine? Checks of a loaded pair that take minutes and need nothing else; `python -m specdec selfcheck`.

The exactness tests of the project run on the CPU. Another device has other kernels, other roundings and, on CUDA, graphs: here the
same questions are put to that very device. A check passes, fails, or only tells a figure.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from specdec.decoding import generate, plain, stream, stream_plain
from specdec.goodness import chi_square
from specdec.metrics import summary
from specdec.runner import Runner
from specdec.sampling import SamplingRule
from specdec.static_runner import StaticRunner, static_runner
from specdec.trace import Settings

PROMPTS = (
    "Why is the sky blue?",
    "Write a Python function that reverses a list.",
    "Repeat this exactly: one two three one two three one two three.",
    "Translate to French: The cat sleeps on the sofa.",
    "Who wrote Romeo and Juliet?",
    "Write a haiku about autumn.",
)
OPENING = "Once upon a time, there was a"
LEAST_P_VALUE = 1e-4  # a right program falls below it once in ten thousand machines
SIZES = (1, 2, 3, 5, 9)  # tokens of the passes that are compared


@dataclass(frozen=True)
class Check:
    """passed: None where there is only something to tell. found, wanted: for people. figures: for programs."""

    name: str
    passed: bool | None
    found: str
    wanted: str = ""
    figures: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


Part = tuple[str, Callable[[], Iterator[Check]]]  # what is being checked, and the checks


@dataclass
class Subject:
    """What is checked. reference: makes the target as transformers has it, for the eager runner to compute. time: how long the
    whole may take, seconds; half of it for the statistics and the greedy texts, which do less on a slow machine."""

    pair: Any
    reference: Callable[[], Any]
    time: float = 90.0
    rounding: float = 0.0  # by how much logits differ between passes of different shapes, found by `passes_agree`

    @property
    def step(self) -> float:
        """Seconds of a plain step."""
        return self.pair.plain_step_seconds or 0.05

    def affordable(self, share: float, cost_in_steps: float, *, least: int, most: int) -> int:
        return max(least, min(most, int(share * self.time / (cost_in_steps * self.step))))


def run(subject: Subject, *, name: Callable[[str], None] = lambda title: None) -> Iterator[Check]:
    """All checks, one after the other. name: told what is being checked."""
    parts: list[Part] = [
        ("how passes are run", lambda: how(subject)),
        ("passes of all sizes", lambda: passes_agree(subject)),
        *greedy_texts(subject),
        *(laws(subject) if subject.pair.dtype == "float32" else ()),
        ("speed", lambda: speed(subject)),
    ]
    if subject.pair.device.type == "cuda":
        from specdec import selfcheck_cuda

        parts.append(("on the GPU", lambda: selfcheck_cuda.checks(subject.pair)))
    else:
        parts.append(("launches a round", lambda: iter([Check("launches a round", None, "not applicable: no GPU")])))
    yield from carry_out(parts, name=name)


def in_float32(subject: Subject, *, name: Callable[[str], None]) -> Iterator[Check]:
    """For a pair in a shorter number format, the same pair in float32: where rounding leaves hardly a tie, texts must be the same to the
    letter, and the k most probable tokens are the same ones whatever the shape of the pass."""
    parts: list[Part] = [("passes of all sizes", lambda: passes_agree(subject)), *greedy_texts(subject), *laws(subject)]
    for check in carry_out(parts, name=lambda title: name(f"{title}, float32")):
        yield dataclasses.replace(check, name=f"{check.name}, float32")


def greedy_texts(subject: Subject) -> list[Part]:
    """Texts of every drafter against those of the target alone."""
    return [(f"greedy text, {d}", lambda d=d: greedy_identity(subject, d)) for d in subject.pair.drafters]


def laws(subject: Subject) -> list[Part]:
    """Sampled tokens against their law, for as many drafters as there is time for."""
    return [(f"sampled tokens, {d}", lambda d=d: sampled_law(subject, d)) for d in sampled_drafters(subject)]


def carry_out(parts: Sequence[Part], *, name: Callable[[str], None]) -> Iterator[Check]:
    """One part after the other. A part that breaks has failed; the next one is done all the same."""
    for title, make in parts:
        name(title)
        begun = time.perf_counter()
        try:
            for check in make():
                yield dataclasses.replace(check, seconds=round(time.perf_counter() - begun, 2))
                begun = time.perf_counter()
        except Exception as error:  # noqa: BLE001  whatever broke is what the person wants to hear about
            reason = (str(error).strip().splitlines() or [""])[0]
            yield Check(title, False, f"broke: {type(error).__name__}: {reason}"[:300], "no error")


def how(subject: Subject) -> Iterator[Check]:
    pair = subject.pair
    for role, runner in (("target", pair.target), ("draft", pair.draft)):
        if runner is None:
            continue
        note, kind = getattr(runner, "note", ""), type(runner).__name__
        on_cuda = pair.device.type == "cuda" and isinstance(runner, Runner)
        found = f"{kind}, {str(runner.dtype).removeprefix('torch.')}" + (f", {note}" if note else "")
        yield Check(
            f"how passes are run, {role}", note == "CUDA graphs" if on_cuda else None, found, "CUDA graphs" if on_cuda else ""
        )


@torch.inference_mode()
def passes_agree(subject: Subject) -> Iterator[Check]:
    """The pair's target against the eager runner over transformers, in passes of all sizes, with tokens taken back; where the
    target is not static, the passes of fixed shapes as well, without graphs."""
    pair = subject.pair
    ids = pair.encode(" ".join(PROMPTS), raw=True)[:64]
    eager = Runner(subject.reference(), vocabulary=pair.vocabulary)
    wanted = eager.open().forward(ids)
    found = {size: _in_passes(pair.target, ids, size) for size in SIZES}
    subject.rounding = max(float((logits - found[1]).abs().max()) for logits in found.values())
    yield _agreement("passes against eager ones", found, wanted, pair.target.dtype, rounding=subject.rounding)
    if not isinstance(pair.target, StaticRunner):
        static = static_runner(eager.model, vocabulary=pair.vocabulary, capture=False)
        if not isinstance(static, StaticRunner):
            yield Check("passes of fixed shapes", None, static.note)
            return
        found = {size: _in_passes(static, ids, size) for size in (1, 5)}
        yield _agreement("passes of fixed shapes against eager ones", found, wanted, static.dtype)


def _in_passes(runner: Runner, ids: list[int], size: int) -> Tensor:
    """Logits behind each token of `ids`, the last part of it in passes of `size` tokens, each of them once in vain."""
    sequence = runner.open()
    length = len(ids) // 2
    rows = [sequence.forward(ids[:length])]
    while length < len(ids):
        part = ids[length : length + size]
        sequence.forward(part[::-1])
        sequence.crop(length)
        rows.append(sequence.forward(part))
        length += len(part)
    return torch.cat(rows)


def _agreement(name: str, found: dict[int, Tensor], wanted: Tensor, dtype: torch.dtype, **more: float) -> Check:
    spread = float(wanted.std())
    worst = max(float((logits - wanted).abs().max()) for logits in found.values())
    mean = max(float((logits - wanted).abs().mean()) for logits in found.values())
    exact = dtype == torch.float32
    passed = worst <= 1e-3 * spread if exact else mean <= 0.05 * spread
    limit = f"largest ≤ {1e-3 * spread:.2g}" if exact else f"mean ≤ {0.05 * spread:.2g}"
    sizes = ", ".join(map(str, found))
    return Check(
        name,
        passed,
        f"logits of {sizes} tokens differ by {worst:.2g} at most, {mean:.2g} on average",
        limit,
        {"largest": worst, "mean": mean, "spread": spread, **more},
    )


def greedy_identity(subject: Subject, drafter: str) -> Iterator[Check]:
    """Speculative greedy text against plain one. A difference is allowed only where two logits are equal to rounding."""
    pair, tokens = subject.pair, 24
    count = subject.affordable(0.25 / len(pair.drafters), 2 * tokens, least=1, most=len(PROMPTS))
    settings = Settings(drafter=drafter, draft_length=4, max_new_tokens=tokens)
    tolerance = 2 * subject.rounding + 1e-6
    ties, wrong, worst = 0, [], 0.0
    for prompt in PROMPTS[:count]:
        right, found = plain(pair, prompt, settings, record=False), generate(pair, prompt, settings, record=False)
        if found.output_ids == right.output_ids:
            continue
        gap = _gap(pair, right, found)
        worst = max(worst, gap)
        if gap <= tolerance:
            ties += 1
        else:
            wrong.append(prompt)
    text = f"{count - ties - len(wrong)} of {count} texts identical"
    if ties:
        text += f", {ties} part where two logits are equal to rounding"
    if wrong:
        text += f", {len(wrong)} differ where the best leads by {worst:.2g}: {wrong[0]!r}"
    figures = {"texts": count, "ties": ties, "different": len(wrong), "gap": min(worst, 1e9), "tolerance": tolerance}
    yield Check(f"greedy text, {drafter}", not wrong, text, f"identical, or a tie within {tolerance:.2g}", figures)


def _gap(pair: Any, right: Any, found: Any) -> float:
    """By how much the plain text's token leads the other one's, where the two texts part."""
    a, b = list(right.output_ids), list(found.output_ids)
    place = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    if place is None:
        return float("inf")
    logits = pair.target.open().forward([*right.prompt_ids, *a[:place]], keep=1)[0]
    return float((logits[a[place]] - logits[b[place]]).abs())


def sampled_drafters(subject: Subject) -> tuple[str, ...]:
    """On a slow machine only the pair's own choice."""
    return subject.pair.drafters if subject.step < 0.01 else subject.pair.drafters[:1]


@torch.inference_mode()
def sampled_law(subject: Subject, drafter: str) -> Iterator[Check]:
    """The first two tokens of many sampled runs against the exact joint law of the target (Pearson's chi-square)."""
    pair = subject.pair
    settings = Settings(drafter=drafter, draft_length=2, max_new_tokens=3, temperature=1.0, top_k=4, raw=True)
    rule, prompt = SamplingRule.of(settings), pair.encode(OPENING, raw=True)
    first = rule.probabilities(pair.target.open().forward(prompt, keep=1))[0].cpu()
    law: dict[tuple[int, ...], float] = {}
    for token in first.nonzero()[:, 0].tolist():
        if token in pair.eos_ids:
            law[token,] = float(first[token])
            continue
        second = rule.probabilities(pair.target.open().forward([*prompt, token], keep=1))[0].cpu()
        for following in second.nonzero()[:, 0].tolist():
            law[token, following] = float(first[token] * second[following])
    runs = subject.affordable(0.3 / len(sampled_drafters(subject)), 5, least=60, most=600)
    counts = dict.fromkeys(law, 0)
    for seed in range(runs):
        run = stream(pair, OPENING, settings.replace(seed=seed), record=False)
        while len(run.output_ids) < 2 and next(run, None) is not None:
            pass
        outcome = tuple(run.output_ids[:2])
        counts[outcome] = counts.get(outcome, 0) + 1
        law.setdefault(outcome, 0.0)
    result = chi_square([counts[key] for key in law], list(law.values()))
    passed = result.p_value is not None and result.p_value > LEAST_P_VALUE
    figures = {"runs": runs, "outcomes": len(law), "statistic": result.statistic, "degrees": result.degrees, "p": result.p_value}
    text = f"{runs} runs, chi-square {result.statistic:.1f} at {result.degrees} degrees of freedom, p = {result.p_value or 0:.3g}"
    yield Check(f"sampled tokens, {drafter}", passed, text, f"p > {LEAST_P_VALUE:g}", figures)


def speed(subject: Subject) -> Iterator[Check]:
    """Plain and speculative decoding in turns; figures, for what they ought to be depends on the pair and the machine."""
    pair = dataclasses.replace(subject.pair, eos_ids=frozenset())
    tokens = subject.affordable(0.2, 3 * (1 + len(pair.drafters)), least=12, most=64)
    arms = {"plain": (stream_plain, ""), **{name: (stream, name) for name in pair.drafters}}
    rates: dict[str, list[float]] = {name: [] for name in arms}
    accepted: dict[str, float | None] = {}
    for turn in range(4):
        for name, (begin, drafter) in arms.items():
            settings = Settings(drafter=drafter, draft_length=4, max_new_tokens=8 if turn == 0 else tokens)
            running = begin(pair, PROMPTS[turn % len(PROMPTS)], settings, record=False)
            for _ in running:
                pass
            if turn:  # the first turn warms up
                figures = summary(running.trace())
                rates[name].append(figures.tokens_per_second)
                accepted[name] = figures.acceptance_rate
    middle = {name: statistics.median(values) for name, values in rates.items()}
    yield Check("speed, plain", None, f"{middle['plain']:.1f} tokens/s", figures={"tokens_per_second": middle["plain"]})
    for name in pair.drafters:
        times = middle[name] / middle["plain"]
        text = f"{middle[name]:.1f} tokens/s, {times:.2f} × plain"
        yield Check(f"speed, {name}", None, text, figures={"tokens_per_second": middle[name], "against_plain": times})
