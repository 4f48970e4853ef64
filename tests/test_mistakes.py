"""The law of the exact rule is p; each mistake is off by as much as the reference says; the dice agree with the closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec import theory
from specdec.goodness import band, chi_square, survival
from specdec.mistakes import MISTAKES, exact, normalised, residual, simulate

P, Q = np.array([0.5, 0.25, 0.15, 0.10]), np.array([0.2, 0.5, 0.1, 0.2])

# name -> total variation from the target on P, Q
BIAS = {
    "exact": 0.0,
    "argmax": 0.250,
    "from-p": 0.125,
    "top-k": 0.143,
    "temperature": 0.049,
    "same-u": 0.350,
    "redraw": 0.1875,
    "lenience": 0.350,
}

weights = st.lists(st.floats(0, 1), min_size=5, max_size=5).filter(lambda w: sum(w) > 1e-3)


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_off_by_what_the_reference_says(name):
    assert MISTAKES[name](P, Q).bias == pytest.approx(BIAS[name], abs=5e-4 if BIAS[name] else 1e-12)


@given(weights, weights)
def test_the_exact_rule_gives_p_whatever_q_is(p, q):
    p, q = normalised(p), normalised(q)
    assert exact(p, q).law == pytest.approx(p, abs=1e-12)


@given(weights, weights)
def test_accepted_and_residual_part_add_up_to_p_bar_by_bar(p, q):
    p, q = normalised(p), normalised(q)
    left, mass = residual(p, q)
    assert np.minimum(p, q) + mass * left == pytest.approx(p, abs=1e-12)
    assert mass == pytest.approx(1 - theory.overlap(p, q), abs=1e-9)


@pytest.mark.parametrize("name", MISTAKES)
@given(weights, weights)
def test_every_law_is_a_distribution(name, p, q):
    law = MISTAKES[name](normalised(p), normalised(q)).law
    assert law.sum() == pytest.approx(1) and (law >= -1e-12).all()


@pytest.mark.parametrize("name", MISTAKES)
def test_the_dice_follow_the_closed_form(name):
    """200,000 draws; a chi-square beyond a chance of 1 in 10,000 fails. The seed is fixed."""
    rule = MISTAKES[name](P, Q)
    found = chi_square(simulate(rule, 200_000, seed=5), rule.law)
    assert found.p_value is None or found.p_value > 1e-4


def test_more_draws_go_on_where_fewer_ended():
    rule = exact(P, Q)
    few, more = simulate(rule, 1_000, seed=9), simulate(rule, 1_500, seed=9)
    assert few.sum() == 1_000 and (more >= few).all() and more.sum() == 1_500


def test_the_test_sees_a_mistake():
    rule = MISTAKES["temperature"](P, Q)  # the smallest of them
    assert chi_square(simulate(rule, 10_000, seed=1), rule.wanted).p_value < 1e-6


def test_p_values_of_a_right_rule_are_uniform():
    """400 runs of 2,000 draws: about 5 % below 0.05. Binomial: between 4 and 40 but for 1 in 10,000."""
    rule = exact(P, Q)
    low = sum(chi_square(simulate(rule, 2_000, seed=s), P).p_value < 0.05 for s in range(400))
    assert 4 <= low <= 40


# Tables of the chi-square distribution (Abramowitz and Stegun, table 26.8, and the closed forms)
@pytest.mark.parametrize(
    "statistic, degrees, wanted",
    [
        (3.841459, 1, 0.05),
        (6.634897, 1, 0.01),
        (5.991465, 2, 0.05),
        (7.814728, 3, 0.05),
        (9.487729, 4, 0.05),
        (16.265, 3, 0.001001),
        (18.307038, 10, 0.05),
        (124.342113, 100, 0.05),
        (2.0, 2, math.exp(-1)),
    ],
)
def test_survival_of_chi_square(statistic, degrees, wanted):
    assert survival(statistic, degrees) == pytest.approx(wanted, rel=2e-3 if degrees == 3 else 1e-6)


def test_survival_agrees_with_scipy_where_it_is_there():
    stats = pytest.importorskip("scipy.stats")
    for degrees in (1, 2, 3, 4, 7, 30):
        for x in (1e-6, 0.3, 1, 5, 20, 100, 700):
            assert survival(x, degrees) == pytest.approx(float(stats.chi2.sf(x, degrees)), rel=1e-9, abs=1e-300)


def test_survival_at_the_ends():
    assert survival(0, 3) == 1 and survival(1e5, 3) == 0
    with pytest.raises(ValueError, match="degrees of freedom are 0"):
        survival(1, 0)


def test_chi_square_by_hand():
    found = chi_square([48, 35, 15, 2], [0.5, 0.3, 0.15, 0.05])  # 4/50 + 25/30 + 0 + 9/5
    assert (found.statistic, found.degrees) == (pytest.approx(4 / 50 + 25 / 30 + 9 / 5), 3)
    assert chi_square([10, 1], [1.0, 0.0]).p_value == 0.0  # something impossible happened
    assert chi_square([0, 0], [0.5, 0.5]).p_value is None and chi_square([7, 0], [1.0, 0.0]).p_value is None
    assert chi_square([50, 48, 1, 1], [0.5, 0.48, 0.01, 0.01]).degrees == 1  # rare cells are put together


def test_band_by_hand():
    assert band([0.5, 0.0], 10_000) == pytest.approx([0.0098, 0.0])


def test_weights_must_be_able_to_become_probabilities():
    for bad in ([0, 0], [-1, 2], [float("nan"), 1]):
        with pytest.raises(ValueError, match="the weights are"):
            normalised(bad)
