"""A right run keeps its promises; a mistake in the rule breaks the one that is about the output."""

from __future__ import annotations

import numpy as np
import pytest
from exact_law import pair_of, reference_pair, scrambled

from specdec import judging
from specdec.decoding import generate
from specdec.promises import Promise, acceptance, favourites
from specdec.trace import Settings

SETTINGS = Settings(temperature=1.0, drafter="draft", draft_length=3, max_new_tokens=150)


def deviations(promise, pair, *, seeds: int) -> np.ndarray:
    found = [promise(generate(pair, "a", SETTINGS.replace(seed=s))) for s in range(seeds)]
    return np.array([(f.count - f.expected) / f.error for f in found])


@pytest.mark.parametrize("promise", [acceptance, favourites])
@pytest.mark.parametrize(
    "make",
    [reference_pair, lambda: pair_of(scrambled("target", vocabulary=3), scrambled("draft", vocabulary=3))],
    ids=["same", "changing"],
)
def test_a_right_run_keeps_its_promises(promise, make):
    """16 runs of 150 tokens: the mean deviation has a standard error of 0.25; 4 of them fail by chance once in 16,000."""
    found = deviations(promise, make(), seeds=16)
    assert abs(found.mean()) < 4 / np.sqrt(16) and 0.4 < found.std() < 1.8


def test_a_mistake_breaks_the_promise_about_the_output(monkeypatch):
    """Replacements drawn from p: the favourite a (p = .5, q = .2) comes only with .375."""
    monkeypatch.setattr(judging, "residual", lambda p, q: (p, 1.0))
    found = deviations(favourites, reference_pair(), seeds=5)
    assert found.mean() < -1  # judged places only; bonus tokens are right all the same
    long = SETTINGS.replace(max_new_tokens=1200, seed=1)
    assert favourites(generate(reference_pair(), "a", long)).p_value < 1e-3


def test_by_hand():
    promise = Promise(np.array([0.5, 0.5, 1.0, 0.2]), np.array([True, False, True, True]))
    assert promise.expected == pytest.approx(2.2) and promise.count == 3
    assert promise.error == pytest.approx((0.25 + 0.25 + 0 + 0.16) ** 0.5)
    assert promise.p_value == pytest.approx(0.3248, abs=1e-3)  # 0.985 standard deviations
    assert Promise(np.array([1.0]), np.array([True])).p_value is None


def test_every_token_of_the_output_counts_once():
    trace = generate(reference_pair(), "a", SETTINGS)
    assert len(favourites(trace).chances) == trace.totals.new_tokens
    assert len(acceptance(trace).chances) == trace.totals.judged and acceptance(trace).count == trace.totals.accepted
