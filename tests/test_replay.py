"""A recorded run tells how every other draft length would have gone: against the real loop, run with each of them."""

from __future__ import annotations

import dataclasses
import random

import pytest

from specdec import theory
from specdec.decoding import generate
from specdec.metrics import summary
from specdec.replay import Costs, Replay, costs_of, every_draft_length, places, replay
from specdec.table import TableModel, TablePair
from specdec.trace import Seconds, Settings

WORDS = tuple("abcdefgh")


def pair(agreement: float, *, seed: int = 3, sampled: bool = False, eos: int | None = None) -> TablePair:
    """A target whose next token depends on how many there are, and a draft that agrees with it at random places."""
    dice = random.Random(seed)
    wanted = [dice.randrange(len(WORDS) - 1) for _ in range(400)]
    agrees = [dice.random() < agreement for _ in range(400)]
    if eos is not None:
        wanted[eos] = len(WORDS) - 1

    def row(best: int) -> list[float]:
        rest = 0.4 if sampled else 0.07
        return [1 - rest if i == best else rest / (len(WORDS) - 1) for i in range(len(WORDS))]

    def target(tokens):
        return row(wanted[len(tokens)])

    def draft(tokens):
        n = len(tokens)
        return row(wanted[n] if agrees[n] else (wanted[n] + 1) % (len(WORDS) - 1))

    size = len(WORDS)
    made = TablePair(words=WORDS, target=TableModel(target, vocabulary=size), draft=TableModel(draft, vocabulary=size))
    made.eos_ids = frozenset() if eos is None else frozenset({len(WORDS) - 1})
    return made


def greedy(length: int, **changes) -> Settings:
    return Settings(drafter="draft", draft_length=length, max_new_tokens=60, **changes)


@pytest.mark.parametrize("agreement", [0.0, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("eos", [None, 31, 32, 33])
def test_a_long_draft_tells_how_every_shorter_one_goes(agreement, eos):
    two = pair(agreement, eos=eos)
    recorded = generate(two, "a", greedy(32))
    for found in every_draft_length(recorded, longest=16):
        real = generate(two, "a", greedy(found.likely.draft_length))
        assert real.output_ids == recorded.output_ids
        assert found.low.rounds >= real.totals.target_passes >= found.high.rounds
        if found.exact:
            assert found.likely.rounds == pytest.approx(real.totals.target_passes)
            assert found.likely.drafted == pytest.approx(real.totals.drafted)
    assert agreement == 1.0 or all(r.exact for r in every_draft_length(recorded))


def test_a_short_draft_tells_it_within_bounds():
    two = pair(0.8)
    recorded = generate(two, "a", greedy(3))
    assert None in places(recorded)
    for found in every_draft_length(recorded, longest=12):
        real = generate(two, "a", greedy(found.likely.draft_length)).totals.target_passes
        assert found.high.rounds <= real <= found.low.rounds
    own = every_draft_length(recorded)[2]
    assert own.exact and own.likely.rounds == recorded.totals.target_passes  # at its own γ nothing is unknown


def test_places_of_a_round():
    def settings(n):
        return Settings(drafter="draft", draft_length=n, max_new_tokens=3)

    assert places(generate(pair(0.0), "a", settings(2))) == (0.0, 0.0, None)  # the last token is never drafted
    assert places(generate(pair(1.0), "a", settings(1))) == (1.0, None, None)


def test_with_the_same_chance_everywhere_it_is_the_formula():
    found = replay([0.7] * 20_000, 5)
    assert found.tokens_per_round == pytest.approx(theory.expected_tokens(0.7, 5), rel=1e-3)
    assert found.speedup(Costs(draft=0.1, verify=0.06)) == pytest.approx(theory.speedup(0.7, 5, 0.1, 1.3), rel=1e-3)


def test_in_a_sampled_run_the_overlap_is_the_chance():
    """60 tokens, 120 seeds: the mean number of rounds of the real loop, within 4 standard errors (1 in 16,000 by chance)."""
    two = pair(0.7, sampled=True)
    settings = Settings(drafter="draft", draft_length=4, max_new_tokens=60, temperature=1.0)
    recorded = generate(two, "a", settings.replace(draft_length=32))
    wanted = every_draft_length(recorded)[3].likely.rounds
    real = [generate(two, "a", settings.replace(seed=s)).totals.target_passes for s in range(120)]
    mean = sum(real) / len(real)
    error = (sum((r - mean) ** 2 for r in real) / len(real)) ** 0.5 / len(real) ** 0.5
    assert abs(mean - wanted) < 4 * error + 0.05


def test_look_up_that_finds_nothing_is_no_unknown():
    trace = generate(pair(1.0), "a", Settings(drafter="lookup", draft_length=4, max_new_tokens=12))
    assert None not in places(trace)[:-1]


def test_costs_give_back_the_measured_speed_at_its_own_length():
    trace = generate(pair(0.8), "a", greedy(4))
    assert costs_of(trace) is None  # no plain step was measured
    seconds = Seconds(draft=(0.01,) * 4, verify=0.13, judge=0.0)
    rounds = tuple(dataclasses.replace(r, seconds=seconds) for r in trace.rounds if len(r.drafts) == 4)
    totals = dataclasses.replace(trace.totals, seconds=len(rounds) * 0.18, seconds_prefill=0.0)  # 0.01 a round beside the parts
    timed = dataclasses.replace(trace, rounds=rounds, totals=totals, plain_step_seconds=0.1)
    costs = costs_of(timed)
    assert (costs.draft, costs.verify, costs.rest) == (pytest.approx(0.1), pytest.approx(0.3 / 4), pytest.approx(0.1))
    tokens = sum(len(r.new_ids) for r in rounds)
    again = Replay(draft_length=4, rounds=len(rounds), drafted=4 * len(rounds), tokens=tokens)
    assert again.speedup(costs) == pytest.approx(summary(timed).speedup)


def test_nothing_to_replay():
    assert every_draft_length(generate(pair(1.0), "a", Settings(drafter="draft", draft_length=4, max_new_tokens=1))) == ()
    with pytest.raises(ValueError, match="draft length is 0"):
        replay([0.5], 0)
