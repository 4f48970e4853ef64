"""The closed forms against the figures of the papers, against the limits that have a plain answer, and against simulation."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec import theory

settings.register_profile("busy machine", deadline=None)  # a slow example is no failure
settings.load_profile("busy machine")

rates = st.floats(0, 1)
lengths = st.integers(1, 32)

# Leviathan et al. 2023, Table 1: α, γ, operations, speed (c = 0)
TABLE_1 = [
    (0.6, 2, 1.53, 1.96),
    (0.7, 3, 1.58, 2.53),
    (0.8, 2, 1.23, 2.44),
    (0.8, 5, 1.63, 3.69),
    (0.9, 2, 1.11, 2.71),
    (0.9, 10, 1.60, 6.86),
]

# c -> {α: (best γ, its speed-up)}, v = 1
BEST = {
    0.01: {0.5: (5, 1.88), 0.6: (7, 2.30), 0.7: (9, 2.97), 0.8: (14, 4.23), 0.9: (24, 7.49)},
    0.05: {0.5: (3, 1.63), 0.6: (4, 1.92), 0.7: (6, 2.35), 0.8: (8, 3.09), 0.9: (13, 4.67)},
    0.10: {0.5: (2, 1.46), 0.6: (3, 1.67), 0.7: (4, 1.98), 0.8: (6, 2.47), 0.9: (10, 3.43)},
    0.20: {0.5: (1, 1.25), 0.6: (2, 1.40), 0.7: (3, 1.58), 0.8: (4, 1.87), 0.9: (7, 2.37)},
    0.50: {0.5: (0, 1.00), 0.6: (1, 1.07), 0.7: (1, 1.13), 0.8: (2, 1.22), 0.9: (3, 1.38)},
}


@pytest.mark.parametrize("alpha, gamma, operations, speed", TABLE_1)
def test_table_1_of_the_paper(alpha, gamma, operations, speed):
    assert round(theory.operations_factor(alpha, gamma), 2) == operations
    assert round(theory.speedup(alpha, gamma, 0.0), 2) == speed


@pytest.mark.parametrize("cost, alpha", [(c, a) for c, row in BEST.items() for a in row])
def test_best_draft_length_of_the_reference_table(cost, alpha):
    best = theory.best_draft_length(alpha, cost)
    assert (best.draft_length, round(best.speedup, 2)) == BEST[cost][alpha]


def test_best_draft_length_takes_the_whole_table_as_arrays():
    costs, alphas = np.array(list(BEST))[:, None], np.array([0.5, 0.6, 0.7, 0.8, 0.9])
    best = theory.best_draft_length(alphas, costs)
    assert best.draft_length.tolist() == [[cell[0] for cell in row.values()] for row in BEST.values()]
    assert np.round(best.speedup, 2).tolist() == [[cell[1] for cell in row.values()] for row in BEST.values()]


def test_bigram_drafter():
    assert round(theory.speedup(0.2, 3, 0.0), 2) == 1.25


def test_expected_tokens_by_hand():
    assert theory.expected_tokens(0.5, 1) == pytest.approx(1.5, abs=1e-15)
    assert theory.expected_tokens(0.5, 3) == pytest.approx(1 + 0.5 + 0.25 + 0.125, abs=1e-15)
    assert theory.expected_tokens(0.8, 4) == pytest.approx(3.3616, abs=1e-12)


def test_expected_tokens_is_exact_at_the_ends():
    assert theory.expected_tokens(1.0, 7) == 8.0
    assert theory.expected_tokens(1, 0) == 1.0
    assert theory.expected_tokens(0.0, 7) == 1.0
    assert theory.expected_tokens(0.0, 0) == 1.0
    assert theory.expected_tokens(0.37, 0) == 1.0


@given(rates, lengths)
def test_expected_tokens_is_the_sum_of_powers(alpha, gamma):
    assert theory.expected_tokens(alpha, gamma) == pytest.approx(math.fsum(alpha**i for i in range(gamma + 1)), rel=1e-12)


@pytest.mark.parametrize("distance", [1e-3, 1e-6, 1e-9, 1e-12, 2**-53])
def test_expected_tokens_keeps_its_digits_near_one(distance):
    alpha = 1 - distance
    assert theory.expected_tokens(alpha, 8) == pytest.approx(math.fsum(alpha**i for i in range(9)), rel=1e-14)


def test_numbers_give_numbers_and_arrays_give_arrays():
    assert type(theory.expected_tokens(0.5, 4)) is float
    assert type(theory.speedup(0.5, 4, 0.1, 1.2)) is float
    assert type(theory.best_draft_length(0.5, 0.1).draft_length) is int
    alphas = np.array([0.0, 0.5, 1.0])
    assert theory.expected_tokens(alphas, 2).tolist() == [1.0, pytest.approx(1.75), 3.0]
    grid = theory.speedup(alphas[:, None], np.arange(0, 5), 0.1, 1.1)
    assert grid.shape == (3, 5)
    assert grid[1, 3] == pytest.approx(theory.speedup(0.5, 3, 0.1, 1.1))


def test_speedup_with_a_measured_verify_ratio():
    # E(.5, 3) = 1.875; a round costs 3 × 0.2 + 1.4 = 2 plain steps
    assert theory.round_cost(3, 0.2, 1.4) == pytest.approx(2.0)
    assert theory.speedup(0.5, 3, 0.2, 1.4) == pytest.approx(0.9375)
    assert theory.speedup(0.5, 3, 0.2) == pytest.approx(1.875 / 1.6)


def test_operations_with_a_draft_model():
    # (γĉ + γ + 1) / E = (2 × 0.5 + 3) / 1.75
    assert theory.operations_factor(0.5, 2, 0.5) == pytest.approx(4 / 1.75)
    assert theory.operations_factor(1.0, 5) == 1.0


def test_best_draft_length_follows_a_verify_ratio_that_grows():
    # up to γ = 3 as before, 2.533 / 1.15; behind it at most 2.20 is out of reach
    best = theory.best_draft_length(0.7, 0.05, lambda gamma: 1 + 0.5 * (gamma > 3))
    assert (best.draft_length, round(best.speedup, 2)) == (3, 2.20)
    assert theory.best_draft_length(0.7, 0.05, 3.5) == (0, 1.0)


def test_best_draft_length_stops_at_the_longest():
    assert theory.best_draft_length(1.0, 0.0) == (32, 33.0)
    assert theory.best_draft_length(1.0, 0.0, longest=5) == (5, 6.0)
    assert theory.best_draft_length(1.0, 0.0, longest=0) == (0, 1.0)


@given(rates, st.floats(0, 2))
def test_some_draft_length_pays_exactly_when_alpha_exceeds_c(alpha, cost):
    best = theory.best_draft_length(alpha, cost)
    if abs(alpha - cost) > 1e-9:
        assert (best.draft_length > 0) == theory.improvement_possible(alpha, cost) == (alpha > cost)
    if alpha > cost:
        assert best.speedup >= theory.least_improvement(alpha, cost) * (1 - 1e-9)


def test_least_improvement_by_hand():
    assert theory.least_improvement(0.8, 0.2) == pytest.approx(1.5)
    assert theory.improvement_possible(0.3, 0.3) is False
    assert theory.improvement_possible(np.array([0.2, 0.4]), 0.3).tolist() == [False, True]


@given(rates, lengths, st.floats(0.5, 3))
def test_break_even_cost_and_verify_ratio_give_a_speedup_of_one(alpha, gamma, ratio):
    cost = theory.break_even_cost(alpha, gamma, ratio)
    if cost >= 0:
        assert theory.speedup(alpha, gamma, cost, ratio) == pytest.approx(1.0)
    limit = theory.break_even_verify_ratio(alpha, gamma, 0.1)
    if limit > 1e-6:
        assert theory.speedup(alpha, gamma, 0.1, limit) == pytest.approx(1.0)


def test_break_even_acceptance():
    # γ = 1: E = 1 + α, so α = γc + v − 1
    assert theory.break_even_acceptance(1, 0.3) == pytest.approx(0.3, abs=1e-12)
    assert theory.break_even_acceptance(1, 0.3, 1.2) == pytest.approx(0.5, abs=1e-12)
    # γ = 2: 1 + α + α² = 2 × 0.2 + 1.35 = 1.75
    assert theory.break_even_acceptance(2, 0.2, 1.35) == pytest.approx(0.5, abs=1e-12)
    assert theory.break_even_acceptance(4, 0.0) == 0.0
    assert theory.break_even_acceptance(4, 1.0) == 1.0
    assert math.isnan(theory.break_even_acceptance(4, 1.2))
    found = theory.break_even_acceptance(np.array([1, 2, 4]), 0.2)
    assert theory.speedup(found, np.array([1, 2, 4]), 0.2) == pytest.approx([1, 1, 1])


@given(st.floats(0, 1), lengths)
def test_acceptance_for_tokens_inverts_expected_tokens(alpha, gamma):
    assert theory.acceptance_for_tokens(theory.expected_tokens(alpha, gamma), gamma) == pytest.approx(alpha, abs=1e-9)


def test_different_rates_by_position():
    assert theory.expected_tokens_by_position([]) == 1.0
    assert theory.expected_tokens_by_position([0.8, 0.5, 0.25]) == pytest.approx(1 + 0.8 + 0.4 + 0.1)
    assert theory.expected_tokens_by_position([0.7] * 4) == pytest.approx(theory.expected_tokens(0.7, 4))
    assert theory.expected_tokens_by_position(np.array([[1.0, 1.0], [0.5, 0.0]])).tolist() == [3.0, 1.5]


def test_accepted_drafts_of_a_round_are_capped_geometric():
    assert theory.accepted_distribution(0.5, 3).tolist() == [0.5, 0.25, 0.125, 0.125]
    assert theory.accepted_distribution(0.0, 2).tolist() == [1, 0, 0]
    assert theory.accepted_distribution(1.0, 2).tolist() == [0, 0, 1]
    assert theory.accepted_distribution(0.4, 0).tolist() == [1.0]


@given(st.floats(0, 1), st.integers(0, 32))
def test_the_distribution_of_accepted_drafts_has_the_expected_tokens_as_mean(alpha, gamma):
    chances = theory.accepted_distribution(alpha, gamma)
    assert chances.sum() == pytest.approx(1.0)
    assert 1 + chances @ np.arange(gamma + 1) == pytest.approx(theory.expected_tokens(alpha, gamma))


def test_overlap_of_the_reference_distributions():
    assert theory.overlap([0.5, 0.25, 0.15, 0.10], [0.2, 0.5, 0.1, 0.2]) == pytest.approx(0.65)
    assert theory.overlap([1, 0], [0, 1]) == 0.0


def test_a_simulation_agrees():
    """Drafts accepted by coin, 40,000 rounds; 5 standard errors, a false alarm in 1 of 1.7 million seeds (the seed is fixed)."""
    random = np.random.default_rng(7)
    alpha, gamma, rounds, cost, ratio = 0.7, 5, 40_000, 0.1, 1.3
    tokens = 1 + np.cumprod(random.random((rounds, gamma)) < alpha, axis=1).sum(axis=1)
    error = tokens.std() / math.sqrt(rounds)
    assert abs(tokens.mean() - theory.expected_tokens(alpha, gamma)) < 5 * error
    simulated = tokens.sum() / (rounds * (gamma * cost + ratio))
    assert abs(simulated - theory.speedup(alpha, gamma, cost, ratio)) < 5 * error / (gamma * cost + ratio)
    counts = np.bincount(tokens - 1, minlength=gamma + 1) / rounds
    assert np.abs(counts - theory.accepted_distribution(alpha, gamma)).max() < 5 * math.sqrt(0.25 / rounds)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: theory.expected_tokens(1.2, 4), "acceptance rate is 1.2"),
        (lambda: theory.expected_tokens(float("nan"), 4), "acceptance rate is nan"),
        (lambda: theory.expected_tokens(0.5, -1), "draft length is -1"),
        (lambda: theory.speedup(0.5, 4, -0.1), "cost coefficient is -0.1"),
        (lambda: theory.speedup(0.5, 4, 0.1, 0), "verify ratio is 0"),
        (lambda: theory.break_even_cost(0.5, 0), "draft length is 0"),
        (lambda: theory.best_draft_length(0.5, 0.1, longest=-3), "longest draft length is -3"),
        (lambda: theory.expected_tokens([0.5, -0.5], 4), "an array from -0.5 to 0.5"),
    ],
)
def test_a_value_out_of_range_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_theory_needs_no_torch():
    code = "import sys, specdec.theory, specdec.metrics; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
