"""Mixtures of experts by hand, and by drawing them."""

from __future__ import annotations

import random

import pytest

from specdec import theory
from specdec.experts import MIXTURES, Mixture

SMALL = Mixture(name="small", total=11e9, active=5e9, experts=4, chosen=1)  # an expert has 2e9, every token needs 3e9 besides


def test_one_token_needs_what_is_active():
    for mixture in (SMALL, *MIXTURES.values()):
        assert mixture.needed(1) == pytest.approx(mixture.chosen)
        assert mixture.read(1) == pytest.approx(mixture.active)
        assert mixture.read(10**6) == pytest.approx(mixture.total)
        assert 0 < mixture.active - mixture.chosen * mixture.expert < mixture.active


def test_by_hand():
    # Two tokens, four experts, one each: the second meets the first one's with ¼: 1¾ experts, 3e9 + 1.75 · 2e9.
    assert SMALL.expert == pytest.approx(2e9) and SMALL.needed(2) == pytest.approx(1.75)
    assert SMALL.read(2) == pytest.approx(6.5e9) and SMALL.verify_ratio(1) == pytest.approx(1.3)
    assert SMALL.speedup(0.5, 1, 0.1) == pytest.approx(1.5 / (0.1 + 1.3))


def test_as_drawn():
    draw = random.Random(0)
    mixture = MIXTURES["Mixtral 8x7B"]
    found = [len({e for _ in range(5) for e in draw.sample(range(mixture.experts), mixture.chosen)}) for _ in range(4000)]
    assert sum(found) / len(found) == pytest.approx(float(mixture.needed(5)), abs=0.05)


def test_many_requests_read_all_experts_anyway():
    mixture = MIXTURES["gpt-oss-120b"]
    assert mixture.verify_ratio(4, 1) > 3 and mixture.verify_ratio(4, 256) == pytest.approx(1, abs=0.01)
    cost = 0.05 * 5.1e9 / mixture.read(256)  # a plain step reads 22 times as much, a dense drafter what it always reads
    assert mixture.read(256) / 5.1e9 > 20
    assert mixture.speedup(0.8, 4, 0.05, 256) == pytest.approx(theory.speedup(0.8, 4, cost), rel=0.01)


def test_a_whole_answer_is_reading_and_decoding():
    assert theory.answer_speedup(2.0, 100, 0) == pytest.approx(2.0)
    assert theory.answer_speedup(2.0, 50, 50, 0.1) == pytest.approx(100 / (55 + 25))
    assert theory.break_even_answer(2.0, 50, 0.1) == pytest.approx(10)
    assert theory.answer_speedup(2.0, 10, 50, 0.1) == pytest.approx(1.0)
    assert theory.break_even_answer(0.9, 50, 0.1) != theory.break_even_answer(0.9, 50, 0.1)  # nan
    with pytest.raises(ValueError, match="reading time is -1"):
        theory.answer_speedup(2.0, 10, -1)
