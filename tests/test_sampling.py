"""The rules: logits become the distribution that transformers would sample from, and a uniform draw becomes the decision it should."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from specdec.errors import ModelError
from specdec.sampling import (
    Draws,
    SamplingRule,
    accept_probability,
    accepts,
    keep_top_p,
    most_probable,
    one_hot,
    overlap,
    residual,
)
from specdec.trace import Settings

ALMOST_ONE = math.nextafter(1.0, 0.0)
SMALLEST = math.ulp(0.0)


def transformers_probabilities(logits: torch.Tensor, rule: SamplingRule) -> torch.Tensor:
    """What `generate` would sample from: its warpers in its order."""
    warpers = LogitsProcessorList()
    if rule.temperature != 1:
        warpers.append(TemperatureLogitsWarper(rule.temperature))
    if rule.top_k:
        warpers.append(TopKLogitsWarper(top_k=rule.top_k))
    if rule.top_p < 1:
        warpers.append(TopPLogitsWarper(top_p=rule.top_p))
    return warpers(torch.zeros(len(logits), 1, dtype=torch.long), logits.clone()).softmax(-1)


def random_logits(rows: int, vocabulary: int, *, spread: float, seed: int) -> torch.Tensor:
    return torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed)) * spread


# Logits to probabilities

RULES = [
    SamplingRule(temperature=t, top_k=k, top_p=p)
    for t in (0.3, 1.0, 1.9)
    for k in (0, 1, 2, 50, 100_000)
    for p in (1.0, 0.95, 0.6, 0.1, 1e-6)
]


@pytest.mark.parametrize("rule", RULES, ids=lambda r: f"T{r.temperature}-k{r.top_k}-p{r.top_p}")
@pytest.mark.parametrize("spread", [0.01, 1.0, 8.0])
def test_probabilities_are_those_of_transformers(rule, spread):
    """float64, so that no rounding moves a token across the border of top-p."""
    logits = random_logits(6, 997, spread=spread, seed=int(spread * 100)).double()
    wanted = transformers_probabilities(logits, rule)
    found = rule.probabilities(logits)
    assert ((found > 0) == (wanted > 0)).all()
    assert torch.allclose(found, wanted, rtol=1e-9, atol=0)


@pytest.mark.parametrize("rule", [SamplingRule(0.7, 40, 0.9), SamplingRule(1.0, 0, 0.95), SamplingRule(1.3, 0, 0.5)], ids=str)
def test_probabilities_of_a_real_sized_vocabulary_in_float32_agree_to_rounding(rule):
    """Sums of 49,152 numbers differ in the seventh digit, so the border of top-p may move by tokens that weigh as little."""
    logits = random_logits(4, 49_152, spread=3.0, seed=5)
    wanted, found = transformers_probabilities(logits, rule), rule.probabilities(logits)
    assert (found - wanted).abs().sum(-1).max() < 2e-5
    disputed = ((found > 0) != (wanted > 0)).double() * torch.maximum(found, wanted)
    assert disputed.sum() < 1e-5


def test_ties_at_the_border_of_top_k_all_stay():
    logits = torch.tensor([[2.0, 1.0, 1.0, 1.0, 0.0]])
    rule = SamplingRule(top_k=2)
    assert (rule.probabilities(logits) > 0).tolist() == [[True, True, True, True, False]]
    assert torch.equal(rule.probabilities(logits), transformers_probabilities(logits, rule))


@pytest.mark.parametrize("top_p", [0.1, 0.3, 0.55, 0.9])
def test_ties_at_the_border_of_top_p_are_broken_as_in_transformers(top_p):
    logits = torch.tensor([[1.0, 2.0, 2.0, 0.0, 2.0, 1.0, 1.0, 0.0]], dtype=torch.float64)
    rule = SamplingRule(top_p=top_p)
    assert torch.allclose(rule.probabilities(logits), transformers_probabilities(logits, rule), atol=1e-15)


@pytest.mark.parametrize("top_p", [1e-12, 1e-9, 1e-8, 1e-7, 0.5])
@pytest.mark.parametrize("vocabulary", [2, 3, 1000, 4096, 49_152])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_top_p_never_leaves_nothing_when_all_tokens_are_equal(top_p, vocabulary, dtype):
    p = SamplingRule(top_p=top_p).probabilities(torch.zeros(2, vocabulary, dtype=dtype))
    assert p.sum(-1).tolist() == pytest.approx([1.0, 1.0], abs=1e-4)
    kept = (p > 0).sum(-1)
    assert (kept >= 1).all() and (kept <= max(1, math.ceil(top_p * vocabulary) + 1)).all()


def test_top_p_is_the_smallest_set_that_holds_the_mass():
    p = torch.tensor([[0.5, 0.25, 0.15, 0.10]], dtype=torch.float64)
    for top_p, kept in [(0.4, 1), (0.51, 2), (0.74, 2), (0.76, 3), (0.89, 3), (0.91, 4)]:
        assert (keep_top_p(p, top_p) > 0).sum() == kept
    assert keep_top_p(p, 0.7)[0].tolist() == pytest.approx([2 / 3, 1 / 3, 0, 0])


def test_top_k_comes_before_top_p():
    """Top-p of .6 over the renormalised two best keeps one; the other way round it would keep two."""
    logits = torch.tensor([[0.4, 0.25, 0.2, 0.15]]).log()
    assert (SamplingRule(top_k=2, top_p=0.6).probabilities(logits) > 0).sum() == 1
    assert (SamplingRule(top_p=0.6).probabilities(logits) > 0).sum() == 2


@pytest.mark.parametrize("rule", [SamplingRule(), SamplingRule(0.5), SamplingRule(top_k=2), SamplingRule(1.0, 3, 0.9)], ids=str)
def test_extreme_logits_give_probabilities(rule):
    logits = torch.tensor([[1e4, -1e4, 0.0, 3.0], [float("-inf"), 1.0, float("-inf"), 1.0], [-3e38, -3e38, -3e38, 0.0]])
    p = rule.probabilities(logits)
    assert p.isfinite().all() and p.sum(-1).tolist() == pytest.approx([1.0] * 3)
    assert p[0].tolist() == [1.0, 0.0, 0.0, 0.0] and p[1].tolist() == [0.0, 0.5, 0.0, 0.5]


def test_greedy_shows_the_distribution_at_temperature_1():
    logits = random_logits(2, 9, spread=2.0, seed=1)
    rule = SamplingRule.of(Settings(temperature=0.0, top_k=3, top_p=0.4))
    assert rule.greedy and torch.equal(rule.probabilities(logits), logits.softmax(-1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_probability_maths_is_done_in_float32_whatever_the_model_computes_in(dtype):
    """In float16 the probabilities of 49,152 equal tokens would be subnormal and their sum wrong; 60,000 / .7 would overflow."""
    p = SamplingRule().probabilities(torch.zeros(1, 49_152, dtype=dtype))
    assert p.dtype == torch.float32 and float(p.double().sum()) == pytest.approx(1.0, abs=1e-6)
    hot = torch.tensor([[60_000.0, 59_000.0]]).to(dtype)
    assert SamplingRule(temperature=0.7).probabilities(hot)[0].tolist() == [1.0, 0.0]
    logits = random_logits(3, 1000, spread=4.0, seed=2).to(dtype)
    rule = SamplingRule(0.8, 50, 0.9)
    assert torch.equal(rule.probabilities(logits), rule.probabilities(logits.float()))
    assert one_hot(torch.tensor([1]), 3).dtype == torch.float32


def test_float64_stays_float64():
    assert SamplingRule(0.5, 2, 0.9).probabilities(torch.zeros(1, 4, dtype=torch.float64)).dtype == torch.float64


# Accepting a draft

probability = st.floats(0.0, 1.0) | st.sampled_from([0.0, SMALLEST, 1e-310, 2**-149, 1e-30, 1.0])
uniform = st.floats(0.0, ALMOST_ONE) | st.sampled_from([0.0, SMALLEST, ALMOST_ONE])


@given(q=probability, u=uniform)
def test_what_the_target_rules_out_is_never_accepted(q, u):
    assert not accepts(0.0, q, u)
    assert accept_probability(0.0, q) == 0.0


@given(p=probability, u=uniform)
def test_a_draft_that_the_target_likes_as_much_is_always_accepted(p, u):
    if p >= 2**-149:  # the smallest number of float32; below 1e-308 the product u·q would be rounded up to p
        assert accepts(p, p, u)
        assert accepts(p, p / 2, u)
        assert accept_probability(p, p) == accept_probability(p, p / 2) == 1.0


@given(p=probability, u=uniform)
def test_a_q_that_underflows_to_zero_does_no_harm(p, u):
    assert accepts(p, 0.0, u) == (p > 0)


@given(p=st.floats(1e-30, 1.0), q=st.floats(1e-30, 1.0), u=uniform)
def test_a_draft_is_accepted_below_p_over_q(p, q, u):
    ratio = p / q
    if abs(u - ratio) > 1e-12 * ratio:  # beside rounding
        assert accepts(p, q, u) == (u < ratio)
    assert accept_probability(p, q) == pytest.approx(min(1.0, ratio), rel=1e-12)


def test_the_worked_example_of_the_rule():
    assert accept_probability(0.25, 0.5) == 0.5
    assert accepts(0.25, 0.5, 0.499) and not accepts(0.25, 0.5, 0.5)


# What is left for the replacement

P = torch.tensor([0.5, 0.25, 0.15, 0.10], dtype=torch.float64)
Q = torch.tensor([0.2, 0.5, 0.1, 0.2], dtype=torch.float64)


def test_the_residual_is_what_p_has_more_than_q():
    rest, mass = residual(P, Q)
    assert rest.tolist() == pytest.approx([6 / 7, 0, 1 / 7, 0]) and mass == pytest.approx(0.35)
    assert float(overlap(P, Q)) == pytest.approx(0.65)


def test_the_residual_of_a_one_hot_draft_is_p_without_that_token():
    rest, mass = residual(P, one_hot(torch.tensor([1]), 4)[0])
    assert rest.tolist() == pytest.approx([0.5 / 0.75, 0, 0.15 / 0.75, 0.1 / 0.75]) and mass == pytest.approx(0.75)


def test_equal_distributions_leave_no_mass_and_then_p_is_the_limit():
    rest, mass = residual(P, P)
    assert torch.equal(rest, P) and mass == 0.0


def test_the_residual_of_disjoint_distributions_is_p():
    rest, mass = residual(torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.5, 0.5, 0.0]))
    assert rest.tolist() == [0.0, 0.0, 1.0] and mass == 1.0


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=2, max_size=9))
def test_acceptance_and_residual_add_up_to_p(weights):
    """min(p, q) + (1 − Σ min(p, q)) · residual = p: the whole proof of exactness, with numbers."""
    p = torch.tensor([a for a, _ in weights], dtype=torch.float64)
    q = torch.tensor([b for _, b in weights], dtype=torch.float64)
    if p.sum() == 0 or q.sum() == 0:
        return
    p, q = p / p.sum(), q / q.sum()
    rest, mass = residual(p, q)
    shared = float(overlap(p, q))
    assert mass == pytest.approx(1 - shared, abs=1e-12)
    assert torch.allclose(torch.minimum(p, q) + (1 - shared) * rest, p, atol=1e-12)


def test_one_hot_puts_all_mass_on_the_proposed_ids():
    q = one_hot(torch.tensor([0, 3, 3]), 4)
    assert q.tolist() == [[1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 1]] and q.dtype == torch.float32
    assert one_hot(torch.tensor([], dtype=torch.long), 4).shape == (0, 4)


# Draws


class Prescribed(Draws):
    """Draws that return the u they are told."""

    def __init__(self, *us: float) -> None:
        self._random = self
        self._us = iter(us)

    def random(self) -> float:
        return next(self._us)


def test_a_token_is_picked_by_the_inverse_of_the_cumulative_sum():
    p = torch.tensor([0.25, 0.0, 0.5, 0.25], dtype=torch.float64)
    edges = [(0.0, 0), (math.nextafter(0.25, 0), 0), (0.25, 2), (0.5, 2), (math.nextafter(0.75, 0), 2), (0.75, 3), (ALMOST_ONE, 3)]
    for u, token in edges:
        assert Prescribed(u).pick(p) == (token, u)


def test_a_draw_that_rounding_moves_to_the_very_end_takes_the_last_token_with_probability():
    """.75 times the smallest number is the smallest number again: no cumulative sum is above it."""
    assert Prescribed(0.75).pick(torch.tensor([0.0, SMALLEST, 0.0], dtype=torch.float64)) == (1, 0.75)


@pytest.mark.parametrize("u", [0.0, SMALLEST, 0.5, ALMOST_ONE])
@pytest.mark.parametrize("p", [[0.0, 0.0, 1.0, 0.0, 0.0], [0.0, 0.5, 0.5, 0.0]], ids=str)
def test_a_token_without_probability_is_never_picked(p, u):
    p = torch.tensor(p)
    assert p[Prescribed(u).pick(p)[0]] > 0


@settings(max_examples=300)
@given(weights=st.lists(st.floats(0.0, 1.0, width=32) | st.just(0.0), min_size=1, max_size=30), u=uniform)
def test_whatever_the_weights_the_pick_has_probability_and_its_interval_holds_u(weights, u):
    """Weights need not add up to 1 exactly: float32 rows never do."""
    p = torch.tensor(weights)
    if not p.sum() > 0 or not math.isfinite(float(p.sum())):
        return
    token, returned = Prescribed(u).pick(p)
    exact = [float(w) for w in p]
    total = math.fsum(exact)
    assert exact[token] > 0 and returned == u
    before, after = math.fsum(exact[:token]), math.fsum(exact[: token + 1])
    assert before <= u * total * (1 + 1e-12) and u * total <= after * (1 + 1e-12)


@pytest.mark.parametrize("rule", [SamplingRule(), SamplingRule(top_p=0.9), SamplingRule(top_k=2)], ids=str)
@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_a_model_that_overflows_is_an_error_and_no_token(value, rule):
    """Silently picking the last token of the vocabulary would look like a model that babbles."""
    with pytest.raises(ModelError, match="add up to nan"):
        Draws(0).pick(rule.probabilities(torch.full((1, 5), value))[0])


def test_picks_of_half_precision_rows_are_exact_too():
    row = torch.tensor([0.1, 0.2, 0.7]).half()
    for u in (0.05, 0.2, 0.9):
        assert Prescribed(u).pick(row)[0] == Prescribed(u).pick(row.double())[0]


def test_token_0_is_a_token_like_any_other():
    assert Prescribed(0.0).pick(torch.tensor([1.0, 0.0]))[0] == 0
    assert Prescribed(ALMOST_ONE).pick(torch.tensor([1.0, 0.0]))[0] == 0


def test_each_decision_has_a_draw_of_its_own():
    draws = Draws(3)
    us = [draws.accept(0.5, 1.0)[1] for _ in range(50)] + [draws.pick(torch.tensor([0.5, 0.5]))[1] for _ in range(50)]
    assert len(set(us)) == 100 and all(0 <= u < 1 for u in us)


def test_two_runs_share_no_random_stream():
    left, right, alone = Draws(1), Draws(1), Draws(1)
    mixed = []
    for _ in range(20):
        mixed.append(left.accept(0.5, 1.0))
        right.pick(torch.tensor([0.5, 0.5]))
    assert mixed == [alone.accept(0.5, 1.0) for _ in range(20)]


def test_different_seeds_draw_differently():
    assert [Draws(1).accept(1, 1)[1]] != [Draws(2).accept(1, 1)[1]]


@pytest.mark.parametrize(
    ("rows", "size", "count"), [(5, 49_152, 10), (1, 50_257, 10), (3, 2_561, 10), (2, 300, 10), (2, 7, 10), (4, 6_000, 1)]
)
def test_the_most_probable_are_those_of_topk(rows, size, count):
    p = torch.randn(rows, size, generator=torch.Generator().manual_seed(size)).mul(4).softmax(-1)
    p[:, -1] = p.max() * 1.5  # in the last, perhaps incomplete, block
    p[0, size // 2 : size // 2 + 4] = p[0, -1] * 1.1  # several in one block
    values, places = most_probable(p, count)
    expected = p.topk(min(count, size))
    assert torch.equal(values, expected.values) and torch.equal(p.gather(1, places), values)
    assert all(len(set(row)) == min(count, size) for row in places.tolist())


def test_the_most_probable_of_a_distribution_with_few_tokens_are_those_first():
    p = torch.zeros(1, 49_152)
    p[0, [7, 40_000]] = torch.tensor([0.25, 0.75])
    values, places = most_probable(p, 10)
    assert values[0, :3].tolist() == [0.75, 0.25, 0.0] and places[0, :2].tolist() == [40_000, 7]
