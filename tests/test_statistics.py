"""Sampled continuations of real models have the target's law: chi-square tests with fixed seeds.

False alarms: with seeds chosen afresh each comparison would fail a right program once in 10,000 times (`ALPHA`), so a test with its
three comparisons at most 3 times in 10,000; with the seeds here it always passes or always fails on a machine. Top-k keeps the
support small, so that the law of three tokens is known exactly: the target says it, one prefix after the other. What a mistake
looks like is tested as well, so that a pass means something.
"""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from families import related_pair

from specdec import Settings, judging
from specdec.batch import BatchRun
from specdec.decoding import stream
from specdec.sampling import SamplingRule

ALPHA = 1e-4
Law = dict[tuple[int, ...], float]


def law_of_target(pair, prompt: str, settings: Settings, *, tokens: int = 3) -> Law:
    """first tokens -> probability, from the target alone. A text that ends early is shorter."""
    rule = SamplingRule.of(settings)
    law: Law = {}
    ids = pair.encode(prompt, raw=settings.raw)
    sequence = pair.target.open()
    sequence.forward(ids[:-1], keep=1)

    def go(prefix: tuple[int, ...], weight: float) -> None:
        if len(prefix) == tokens or (prefix and prefix[-1] in pair.eos_ids):
            law[prefix] = weight
            return
        length = sequence.length
        p = rule.probabilities(sequence.forward([prefix[-1] if prefix else ids[-1]], keep=1))[0].double()
        for token in p.nonzero().flatten().tolist():
            go((*prefix, token), weight * float(p[token]))
        sequence.crop(length)

    go((), 1.0)
    return law


def sample(pair, prompt: str, settings: Settings, *, runs: int, tokens: int = 3) -> Counter:
    """How often the loop begins its output with which tokens, over seeds from 0."""
    counts: Counter = Counter()
    for seed in range(runs):
        run = stream(pair, prompt, settings.replace(seed=seed), record=False)
        while len(run.output_ids) < tokens and next(run, None) is not None:
            pass
        counts[tuple(run.output_ids[:tokens])] += 1
    return counts


def sample_together(pair, prompt: str, settings: Settings, *, runs: int, tokens: int = 3, at_once: int = 15) -> Counter:
    """The same with so many runs in shared passes, which takes a third of the time on a model of some size."""
    requests = [(prompt, settings.replace(seed=seed)) for seed in range(runs)]
    batch = BatchRun(pair, requests, at_once=at_once)
    for _ in batch:
        pass
    return Counter(tuple(run.output_ids[:tokens]) for run in batch.runs)


def p_value(counts: Counter, law: dict) -> float:
    """Pearson's chi-square test of counts against a law; cells with an expectation under 5 are taken together."""
    runs = sum(counts.values())
    assert counts.keys() <= law.keys(), f"something that the target rules out was emitted: {counts.keys() - law.keys()}"
    cells, rest = [], [0.0, 0.0]
    for key, p in law.items():
        if p * runs >= 5:
            cells.append((counts[key], p * runs))
        else:
            rest = [rest[0] + counts[key], rest[1] + p * runs]
    if rest[1] > 0:
        cells.append(tuple(rest))
    statistic = sum((found - expected) ** 2 / expected for found, expected in cells)
    return float(torch.special.gammaincc(torch.tensor((len(cells) - 1) / 2), torch.tensor(statistic / 2)))


def of_token(numbers: dict, place: int) -> dict:
    """The law, or the counts, of one token."""
    result: dict = type(numbers)()
    for key, value in numbers.items():
        if len(key) > place:
            result[key[place]] = result.get(key[place], 0) + value
        else:
            result[None] = result.get(None, 0) + value  # the text had ended
    return result


def smallest_p_value(counts: Counter, law: Law) -> float:
    """Of the second token, the third token and all three together."""
    assert sum(law.values()) == pytest.approx(1.0, abs=1e-6)
    found = [p_value(of_token(counts, place), of_token(law, place)) for place in (1, 2)]
    return min(*found, p_value(counts, law))


def test_the_p_value_is_that_of_the_textbook():
    """A die thrown 60 times: 5, 8, 9, 8, 10, 20 gives a statistic of 13.4 at 5 degrees of freedom, p = 0.0199."""
    counts = Counter(dict(enumerate((5, 8, 9, 8, 10, 20))))
    assert p_value(counts, {i: 1 / 6 for i in range(6)}) == pytest.approx(0.0199, abs=1e-4)
    assert p_value(Counter({0: 50, 1: 50}), {0: 0.5, 1: 0.5}) == pytest.approx(1.0)


# Small models, many runs

SMALL = Settings(temperature=1.5, top_k=4, draft_length=3, max_new_tokens=4, raw=True)


@pytest.fixture(scope="module")
def small_pair():
    return related_pair()


@pytest.mark.parametrize("drafter", ["draft", "early-exit", "lookup"])
def test_samples_of_a_small_pair_follow_the_target(small_pair, drafter):
    settings = SMALL.replace(drafter=drafter)
    counts = sample(small_pair, "abcabcab", settings, runs=400)
    assert smallest_p_value(counts, law_of_target(small_pair, "abcabcab", settings)) > ALPHA


def test_a_replacement_drawn_from_p_is_noticed(small_pair, monkeypatch):
    settings = SMALL.replace(drafter="draft")
    monkeypatch.setattr(judging, "residual", lambda p, q: (p, 1.0))
    counts = sample(small_pair, "abcabcab", settings, runs=400)
    assert smallest_p_value(counts, law_of_target(small_pair, "abcabcab", settings)) < ALPHA / 100


def test_accepting_everything_is_noticed(monkeypatch):
    pair = related_pair(noise=0.05)
    settings = SMALL.replace(drafter="draft", top_k=0, temperature=1.0)
    law = of_token(law_of_target(pair, "abcabcab", settings, tokens=1), 0)
    monkeypatch.setattr("specdec.sampling.accepts", lambda p, q, u: True)
    counts = of_token(sample(pair, "abcabcab", settings, runs=400, tokens=1), 0)
    assert p_value(counts, law) < ALPHA / 100


# The real pair

REAL = Settings(temperature=1.2, top_k=5, draft_length=3, max_new_tokens=4, raw=True)
PROMPT = "My favourite animal is the"


def test_samples_of_the_real_pair_follow_the_target(embedded_pair):
    """The short form: 100 runs of the default drafter, the same loop with its passes shared."""
    counts = sample_together(embedded_pair, PROMPT, REAL, runs=100, at_once=20)
    assert smallest_p_value(counts, law_of_target(embedded_pair, PROMPT, REAL)) > ALPHA


@pytest.mark.slow
@pytest.mark.parametrize("warp", [{"top_k": 5, "temperature": 1.2}, {"top_k": 8, "top_p": 0.8, "temperature": 1.0}], ids=str)
@pytest.mark.parametrize("drafter", ["head", "head-lookup", "draft", "early-exit", "lookup"])
def test_many_samples_of_the_real_pair_follow_the_target(embedded_pair, drafter, warp):
    if drafter not in embedded_pair.drafters:
        pytest.skip(f"the embedded pair does not offer {drafter!r}")
    settings = REAL.replace(drafter=drafter, **warp)
    counts = sample(embedded_pair, PROMPT, settings, runs=1500)
    assert smallest_p_value(counts, law_of_target(embedded_pair, PROMPT, settings)) > ALPHA


@pytest.mark.slow
@pytest.mark.parametrize("drafter", ["head", "draft", "early-exit"])
def test_drafts_of_the_real_pair_are_accepted_as_often_as_the_overlap_says(embedded_pair, drafter):
    """The first draft of each run: same place, same p and q, so the number accepted is binomial."""
    if drafter not in embedded_pair.drafters:
        pytest.skip(f"the embedded pair does not offer {drafter!r}")
    settings = Settings(drafter=drafter, temperature=1.0, draft_length=1, max_new_tokens=2, raw=True)
    first = [next(stream(embedded_pair, PROMPT, settings.replace(seed=seed))).drafts[0] for seed in range(400)]
    overlap = first[0].overlap
    accepted = sum(d.status == "accepted" for d in first)
    z = (accepted - 400 * overlap) / (400 * overlap * (1 - overlap)) ** 0.5
    assert abs(z) < 3.89  # two-sided ALPHA, in normal approximation
