"""A race on one clock: every figure with its right value by hand, every sentence in the case that it is for."""

from __future__ import annotations

import dataclasses
import json
import math
from itertools import pairwise

import pytest
from sample_traces import SAMPLES
from trace_builder import Place, Plan, distribution, make_trace, sure

from specdec.errors import TraceError
from specdec.race import Race, arrivals, bars, compare, first_difference
from specdec.race_words import seconds, texts, verdict
from specdec.trace import Settings

GREEDY = Settings(drafter="draft", draft_length=2, temperature=0.0, raw=True)
PLAIN = GREEDY.replace(drafter="none", draft_length=0)
PREFILL, JUDGE, RECORD = 0.04, 0.0004, 0.0006  # those of `make_trace`
WORDS = (" to", " be", " or", " not", " to", " be")


def timed(trace, *, other=0.003, first=None):
    """`trace` with its whole length right; other: seconds between the parts; first: to the first token."""
    parts = sum(sum(r.seconds.draft) + r.seconds.verify + r.seconds.judge + r.seconds.record for r in trace.rounds)
    begun = PREFILL + sum(trace.rounds[0].seconds.draft) + trace.rounds[0].seconds.verify + JUDGE
    totals = dataclasses.replace(trace.totals, seconds=PREFILL + parts + other, seconds_other=other)
    return dataclasses.replace(trace, totals=totals, seconds_to_first_token=begun if first is None else first)


def plain_run(words=WORDS, *, step=0.1, settings=PLAIN, **more):
    plans = [Plan((), word, distribution((word, 0.62)), verify_seconds=step - JUDGE) for word in words]
    return timed(make_trace(["Say"], plans, settings=settings, method="plain", plain_step_seconds=0.5), **more)


def drafted_run(*, draft=0.01, verify=0.12, settings=GREEDY, kept=True, **more):
    """Six tokens: two rounds of three if the drafts are kept, else six rounds of one, whose first draft is rejected."""
    if kept:
        plans = [
            Plan((sure(WORDS[i], 0.8, 0.7), sure(WORDS[i + 1], 0.8, 0.7)), WORDS[i + 2], draft_seconds=draft, verify_seconds=verify)
            for i in (0, 3)
        ]
    else:
        wrong = [Place(" x", distribution((word, 0.7)), distribution((" x", 0.8)), 0.9) for word in WORDS]
        plans = [
            Plan((w, sure(" y", 0.5, 0.5)), word, draft_seconds=draft, verify_seconds=verify)
            for w, word in zip(wrong, WORDS, strict=True)
        ]
    return timed(make_trace(["Say"], plans, settings=settings, plain_step_seconds=0.5), **more)


@pytest.fixture
def won():
    return Race(plain=plain_run(), speculative=drafted_run())


# --- the clock ---


def test_each_plain_token_is_there_one_step_after_the_other():
    # 0.04 prefill, 0.1 a step; 3 ms between the parts: the first round measured none of it, so 0.6 ms before each of the other five
    assert arrivals(plain_run()) == pytest.approx([0.14 + i * 0.1006 for i in range(6)])


def test_the_tokens_of_a_round_come_together_at_its_end():
    first = 0.04 + 2 * 0.01 + 0.12 + 0.0004
    assert arrivals(drafted_run()) == pytest.approx([first] * 3 + [first + 0.003 + 0.1404] * 3)


def test_the_first_token_is_there_when_it_was_measured_and_the_last_at_the_end_of_the_run():
    trace = plain_run(first=0.1415)
    times = arrivals(trace)
    assert times[0] == pytest.approx(0.1415)
    assert times[-1] == pytest.approx(trace.totals.seconds - 6 * RECORD)  # recording is left out
    assert times[2] - times[1] == pytest.approx(0.1 + 0.0015 / 5)


def test_the_bars_are_the_parts_in_order_and_end_where_the_tokens_come():
    found = bars(drafted_run())
    assert [b.kind for b in found] == ["prefill"] + ["draft", "draft", "verify", "judge"] * 2
    assert [b.tokens for b in found] == [1, 1, 2, 3, 3, 1, 2, 3, 3]
    assert [b.round for b in found] == [None, 0, 0, 0, 0, 1, 1, 1, 1]
    assert [b.start for b in found[:5]] == pytest.approx([0, 0.04, 0.05, 0.06, 0.18])
    assert [b.seconds for b in found[:5]] == pytest.approx([0.04, 0.01, 0.01, 0.12, 0.0004])
    assert found[5].start == pytest.approx(0.1804 + 0.003)
    assert found[-1].start + found[-1].seconds == pytest.approx(arrivals(drafted_run())[-1])
    assert {b.kind for b in bars(plain_run())} == {"prefill", "plain", "judge"}


@pytest.mark.parametrize("name", SAMPLES)
def test_no_bar_overlaps_another_and_no_token_comes_before_one(name):
    trace = SAMPLES[name]()
    found, times = bars(trace), arrivals(trace)
    for one, next_ in pairwise(found):
        assert next_.start >= one.start + one.seconds - 1e-12
    assert len(times) == len(trace.output_ids) and list(times) == sorted(times)
    assert times[-1] == pytest.approx(found[-1].start + found[-1].seconds)


# --- who won, and why ---


def test_the_comparison_by_hand(won):
    found = compare(won)
    assert (found.tokens, found.whole, found.plain.passes, found.speculative.passes) == (6, True, 6, 2)
    assert (found.plain.first, found.speculative.first) == pytest.approx((0.14, 0.1804))
    assert (found.plain.complete, found.speculative.complete) == pytest.approx((0.643, 0.3238))
    assert found.speedup == pytest.approx(0.643 / 0.3238) and found.faster is True and found.cause is None
    assert (found.plain.tokens_per_pass, found.speculative.tokens_per_pass) == (1, 3)


def test_costs_are_counted_in_the_plain_steps_of_this_race(won):
    step = 0.603 / 6  # and not the 0.5 s that were measured at load
    figures = compare(won).figures
    assert figures.cost_coefficient == pytest.approx(0.01 / step) and figures.verify_ratio == pytest.approx(0.12 / step)
    assert figures.speedup == pytest.approx(0.603 / 0.2838)


@pytest.mark.parametrize(
    ("run", "cause", "said"),
    [
        (dict(draft=0.16, verify=0.1), "cost_coefficient", "The cause is c: each drafted token cost 1.59 plain steps"),
        (dict(verify=0.35), "verify_ratio", "The cause is v: a pass that checks drafts cost 3.48 plain steps"),
        (dict(kept=False), "acceptance_rate", "The cause is α: 0.00 of the judged drafts were accepted"),
    ],
)
def test_a_lost_race_names_its_cause(run, cause, said):
    race = Race(plain=plain_run(), speculative=drafted_run(**run))
    found, words = compare(race), verdict(race)
    assert (found.faster, found.cause) == (False, cause)
    assert words.faster is False and words.head.startswith("The drafter loses here: the complete answer took")
    assert words.rest.startswith(f"The target ran {found.speculative.passes} times instead of 6. {said}")


def test_a_race_won_by_its_rounds_and_lost_at_the_start_says_so():
    slow = drafted_run(first=0.9, other=0.75)  # a drafter that reads the prompt slowly
    slow = dataclasses.replace(slow, totals=dataclasses.replace(slow.totals, seconds_prefill=0.7596))
    race = Race(plain=plain_run(), speculative=slow)
    assert compare(race).cause == "start"
    assert "The cause is the start" in (said := verdict(race).rest)
    assert "but the first token came after 0.90 s instead of 0.14 s." in said


def test_a_drafter_that_found_nothing_is_said_to_have_found_nothing():
    nothing = timed(
        make_trace(["Say"], [Plan((), w, verify_seconds=0.12) for w in WORDS], settings=GREEDY.replace(drafter="lookup"))
    )
    race = Race(plain=plain_run(), speculative=nothing)
    assert compare(race).cause == "nothing drafted" and "found nothing to propose" in verdict(race).rest


def test_the_sentence_of_a_won_race(won):
    words = verdict(won)
    assert (
        words.head == "The drafter pays here: the complete answer took 0.32 s instead of 0.64 s, 1.99× the speed of plain decoding."
    )
    rest = "The target ran 2 times instead of 6. (α = 1.00, c = 0.10, v = 1.19; costs in plain steps of this race.)"
    assert words.rest.replace("\u00a0", " ") == rest


@pytest.mark.parametrize(("ratio", "faster"), [(0.975, False), (0.985, None), (1.015, None), (1.025, True)])
def test_less_than_two_percent_is_no_victory(ratio, faster):
    # the other side takes 0.3238 s; plain takes 0.043 + 6 · step
    race = Race(plain=plain_run(step=(0.3238 * ratio - 0.043) / 6), speculative=drafted_run())
    assert compare(race).speedup == pytest.approx(ratio)
    assert compare(race).faster is faster
    assert ("about the same time" in verdict(race).head) is (faster is None)


def test_runs_of_different_length_are_compared_over_what_both_have():
    race = Race(plain=plain_run(WORDS[:4]), speculative=drafted_run())
    found = compare(race)
    assert (found.tokens, found.whole) == (4, False)
    assert found.seconds_plain == pytest.approx(0.14 + 3 * 0.101) and found.seconds_speculative == pytest.approx(0.3238)
    assert (
        "the first 4 tokens" in verdict(race).head
        and "too short a piece to judge by. Each pass of the target brought 3.00 tokens" in verdict(race).rest
    )


def test_a_stop_before_the_second_run_leaves_nothing_to_compare_and_nothing_breaks():
    none = make_trace(["Say"], [], settings=GREEDY, finish_reason="stopped")
    race = Race(plain=plain_run(), speculative=none)
    assert arrivals(none) == () and [b.kind for b in bars(none)] == ["prefill"]
    assert verdict(race).faster is None and "nothing to compare" in verdict(race).head and texts(race).good is None


# --- the two texts ---


def test_identical_texts_are_checked_and_said(won):
    assert first_difference(won) is None
    assert texts(won).good is True and texts(won).head == "Identical text, checked: all 6 tokens are the same."


def other_ending(p_plain, p_speculative, **changes):
    """Two greedy runs that part at the third token: " or" against " and", with these probabilities of the two in each run."""
    a = plain_run(WORDS[:2])
    last = Plan((), " or", distribution((" or", p_plain[0]), (" and", p_plain[1])), verify_seconds=0.1)
    a = make_trace(
        ["Say"], [Plan((), w, distribution((w, 0.62))) for w in WORDS[:2]] + [last], settings=PLAIN, method="plain", **changes
    )
    behind = distribution((" and", p_speculative[1]), (" or", p_speculative[0]))
    b = make_trace(["Say"], [Plan((sure(" to", 0.8, 0.7), sure(" be", 0.8, 0.7)), " and", behind)], settings=GREEDY, **changes)
    return Race(plain=a, speculative=b)


def test_a_tie_is_shown_with_its_logits_and_is_no_mistake():
    race = other_ending((0.4, 0.3999), (0.3999, 0.4))
    found = first_difference(race)
    assert (found.place, found.plain, found.speculative, found.tie) == (2, " or", " and", True)
    assert found.logits_plain == pytest.approx((math.log(0.4), math.log(0.3999)))
    assert found.gap == pytest.approx(math.log(0.4 / 0.3999))
    said = texts(race)
    assert said.good is True and said.head.startswith("The texts differ from token 3 on: plain decoding wrote “ or”")
    assert "-0.9163 and -0.9165 in the plain run, -0.9165 and -0.9163 in the speculative one. A numerical tie" in said.rest


def test_a_difference_that_is_no_tie_is_called_a_mistake():
    said = texts(other_ending((0.6, 0.3), (0.3, 0.6)))
    assert said.good is False and "more than rounding in float32 explains" in said.rest


def test_one_run_that_was_sure_is_enough_to_rule_out_a_tie():
    assert first_difference(other_ending((0.4, 0.3999), (0.2, 0.6))).tie is False


def test_sampled_texts_may_differ_and_that_is_explained():
    sampled = SAMPLES["rejected"]()
    plain = plain_run(settings=sampled.settings.replace(drafter="none", draft_length=0))
    said = texts(Race(plain=plain, speculative=sampled))
    assert said.good is None and said.head == "Two texts, one law." and "temperature 1." in said.rest
    assert (
        "6 times in the plain run, where its own probabilities promise 4 ± 1" in said.rest
    )  # 6 · 0.62 = 3.7, √(6 · .62 · .38) = 1.2


# --- as a file ---


def test_a_race_comes_back_as_it_was(won):
    race = dataclasses.replace(won, title="Mine")
    assert Race.from_json(race.to_json()) == race
    assert set(json.loads(race.to_json())) == {"race", "title", "plain", "speculative"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d.clear(), "This is no race"),
        (lambda d: d.update(race=9), "has format 9"),
        (lambda d: d.update(title=3), "its title should be a text"),
        (lambda d: d.pop("plain"), "This is no trace"),
        (lambda d: d.update(plain=d["speculative"]), "should hold a plain run and a speculative one"),
        (lambda d: d["speculative"].update(device="cuda:0"), "they differ in their device"),
        (lambda d: d["speculative"]["settings"].update(seed=5), "they differ in their settings"),
        (lambda d: d["speculative"]["pair"].update(target="another"), "they differ in their target"),
    ],
)
def test_a_foreign_or_damaged_race_is_refused_with_one_sentence(won, change, said):
    data = json.loads(won.to_json())
    change(data)
    with pytest.raises(TraceError, match=said):
        Race.from_json(json.dumps(data))
    with pytest.raises(TraceError, match="not readable JSON"):
        Race.from_json(b"\xff")


@pytest.mark.parametrize(
    ("value", "said"), [(None, "–"), (0.0123, "12.3 ms"), (0.0996, "0.10 s"), (2.104, "2.10 s"), (12.34, "12.3 s")]
)
def test_seconds_as_they_are_written(value, said):
    assert seconds(value) == said
