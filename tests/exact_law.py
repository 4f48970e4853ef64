"""The exact law of what the real loop emits, by adding up every branch of it instead of sampling.

All randomness of a run goes through one `Draws`. `Branch` stands in its place: it tells the loop which token is picked and whether a
draft is accepted, and multiplies the chances of these choices. Replaying the loop once for each sequence of choices gives the law of the
output as exactly as floating point allows. The rules that turn a uniform draw into a decision stay the real ones: a branch only chooses
the draw, half-way through the interval of draws that leads to the decision it wants.

`chain` is what the law should be: the target alone, warped by definitions that are written here a second time, in plain Python.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from unittest import mock

from torch import Tensor

from specdec import decoding
from specdec.decoding import Run, stream
from specdec.drafters import Drafter
from specdec.sampling import Draws
from specdec.table import TableModel, TablePair
from specdec.trace import Settings

# Two distributions by hand: overlap .65
P = (0.5, 0.25, 0.15, 0.10)
Q = (0.2, 0.5, 0.1, 0.2)

Law = dict[tuple, float]
Tokens = tuple[int, ...]
ALMOST_ONE = math.nextafter(1.0, 0.0)


class Branch(Draws):
    """Draws that follow prescribed choices, then take the first option of everything."""

    def __init__(self, choices: Sequence[int] = ()) -> None:
        self.choices = list(choices)
        self.taken: list[tuple[int, int]] = []  # (choice, how many there were)
        self.weight = 1.0
        self.u = 0.0
        self.chances: dict[tuple[float, float], float] = {}
        self._random = self  # the real rules ask their generator for random()

    def random(self) -> float:
        return self.u

    def pick(self, probabilities: Tensor) -> tuple[int, float]:
        weights = probabilities.double().tolist()
        total = sum(weights)
        options = [i for i, weight in enumerate(weights) if weight > 0]
        token = options[self._choose([weights[i] / total for i in options])]
        self.u = (sum(weights[:token]) + weights[token] / 2) / total
        picked, u = super().pick(probabilities)
        assert picked == token, f"u = {u} falls into the interval of token {token}, not of {picked}"
        return picked, u

    def accept(self, p: float, q: float) -> tuple[bool, float]:
        if (p, q) not in self.chances:
            self.chances[p, q] = self._chance(p, q)
        chance = self.chances[p, q]
        options = [(chance, chance / 2)] if chance > 0 else []
        options += [(1 - chance, (1 + chance) / 2)] if chance < 1 else []
        self.u = options[self._choose([weight for weight, _ in options])][1]
        return super().accept(p, q)

    def _chance(self, p: float, q: float) -> float:
        """The share of all u with which the real rule accepts, found by bisection: whatever it does, it is monotone in u."""

        def accepts(u: float) -> bool:
            self.u = u
            return super(Branch, self).accept(p, q)[0]

        if not accepts(0.0):
            return 0.0
        if accepts(ALMOST_ONE):
            return 1.0
        low, high = 0.0, 1.0
        while low < (middle := (low + high) / 2) < high:
            low, high = (middle, high) if accepts(middle) else (low, middle)
        return high

    def _choose(self, chances: list[float]) -> int:
        step = len(self.taken)
        choice = self.choices[step] if step < len(self.choices) else 0
        self.taken.append((choice, len(chances)))
        self.weight *= chances[choice]
        return choice

    def next(self) -> list[int] | None:
        """The choices of the next branch, or None when this was the last."""
        for step in range(len(self.taken) - 1, -1, -1):
            choice, count = self.taken[step]
            if choice + 1 < count:
                return [c for c, _ in self.taken[:step]] + [choice + 1]
        return None


def branches(
    pair: TablePair,
    settings: Settings,
    *,
    drafter: Callable[[], Drafter] | None = None,
    prompt: str = "a",
    branch: type[Branch] = Branch,
    record: bool = False,
) -> Iterator[tuple[Run, Branch]]:
    """The run of each branch, not begun: iterate over it as far as you need before you ask for the next."""
    choices: list[int] | None = []
    chances: dict[tuple[float, float], float] = {}
    while choices is not None:
        draws = branch(choices)
        draws.chances = chances  # looked up once for all branches
        with mock.patch.object(decoding, "Draws", return_value=draws):
            run = stream(pair, prompt, settings, drafter=drafter() if drafter else None, record=record)
        yield run, draws
        choices = draws.next()


def law(pair: TablePair, settings: Settings, *, tokens: int | None = None, **options) -> Law:
    """first `tokens` tokens of the output -> probability. None: whole outputs, with the finish reason at the end of the key."""
    result: Law = defaultdict(float)
    for run, draws in branches(pair, settings, **options):
        while (tokens is None or len(run.output_ids) < tokens) and next(run, None) is not None:
            pass
        key = (*run.output_ids, run.finish_reason) if tokens is None else tuple(run.output_ids[:tokens])
        result[key] += draws.weight
    return dict(result)


def chain(pair: TablePair, settings: Settings, *, tokens: int | None = None, prompt: str = "a") -> Law:
    """The same law of the target alone, token by token, from the definitions."""
    start = tuple(pair.encode(prompt))
    limit = min(settings.max_new_tokens, pair.context - len(start))
    last = "length" if limit == settings.max_new_tokens else "context"
    result: Law = {}

    def go(output: Tokens, weight: float) -> None:
        if tokens is not None and len(output) == tokens:
            result[output] = weight
        elif output and output[-1] in pair.eos_ids:
            result[output if tokens is not None else (*output, "eos")] = weight
        elif len(output) == limit:
            result[output if tokens is not None else (*output, last)] = weight
        else:
            for token, p in enumerate(warp(pair.target.next_distribution(start + output), settings)):
                if p > 0:
                    go((*output, token), weight * p)

    go((), 1.0)
    return result


def warp(p: Sequence[float], settings: Settings) -> list[float]:
    """Temperature, top-k, top-p by their definitions; equal probabilities do not occur in the tables where a filter would have to choose."""
    order = sorted(range(len(p)), key=lambda i: -p[i])
    weights = [x ** (1 / settings.temperature) for x in p]
    if settings.top_k:
        weights = [w if i in order[: settings.top_k] else 0.0 for i, w in enumerate(weights)]
    weights = [w / sum(weights) for w in weights]
    if settings.top_p < 1:
        kept, mass = set(), 0.0
        for i in order:
            if mass < settings.top_p:
                kept.add(i)
                mass += weights[i]
        weights = [w if i in kept else 0.0 for i, w in enumerate(weights)]
    return [w / sum(weights) for w in weights]


def total_variation(left: Law, right: Law) -> float:
    return sum(abs(left.get(key, 0.0) - right.get(key, 0.0)) for key in left.keys() | right.keys()) / 2


def assert_same_law(found: Law, wanted: Law, *, within: float = 1e-12) -> None:
    """The statement that every exact drafter and loop must make true."""
    assert abs(sum(found.values()) - 1) < within, f"the branches add up to {sum(found.values())}"
    worst = max(found.keys() | wanted.keys(), key=lambda key: abs(found.get(key, 0.0) - wanted.get(key, 0.0)))
    found_p, wanted_p = found.get(worst, 0.0), wanted.get(worst, 0.0)
    assert abs(found_p - wanted_p) < within, f"{worst} has probability {found_p}, the target alone gives it {wanted_p}"


# Tables


def fixed(probabilities: Sequence[float]) -> TableModel:
    """The same distribution whatever came before."""
    return TableModel(lambda context: probabilities, vocabulary=len(probabilities))


def scrambled(name: str, *, vocabulary: int, only: Sequence[int] | None = None, zeros: bool = True) -> TableModel:
    """Another distribution for every context, all of the context, so that one stale token in a cache is noticed.

    only: the tokens that get any probability. zeros: leave out one of three tokens or more, depending on the context.
    """
    allowed = range(vocabulary) if only is None else only

    @cache
    def next_distribution(context: Tokens) -> list[float]:
        numbers = random.Random(f"{name} {context}")
        weights = [numbers.uniform(0.1, 1.0) if i in allowed else 0.0 for i in range(vocabulary)]
        if zeros and len(allowed) > 2:
            weights[numbers.choice(list(allowed))] = 0.0
        return [w / sum(weights) for w in weights]

    return TableModel(next_distribution, vocabulary=vocabulary)


def pair_of(target: TableModel, draft: TableModel, **options) -> TablePair:
    """Tokens are called a, b, c…"""
    return TablePair(words=tuple("abcdefgh"[: target.vocabulary]), target=target, draft=draft, **options)


def reference_pair() -> TablePair:
    return pair_of(fixed(P), fixed(Q))
