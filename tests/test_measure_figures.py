"""The figures of a measurement: their arithmetic by hand, from the traces again, and the verdicts that follow."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from made_up_measurements import DESIGN, ORIGIN, batch, made_up, run_record

from specdec import decoding, measure_tables, theory
from specdec.measure import Measurement, carry_out
from specdec.measure_analysis import FEWEST, analyse, verdict
from specdec.measure_records import PLAIN, Arm, RunRecord
from specdec.measure_stats import Interval, cost_per_million, histogram_quantile, median_interval, percentile, token_gaps

# Arithmetic, by hand


def test_percentiles_lie_between_the_values_in_proportion():
    assert percentile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.5
    assert percentile([0.0, 10.0], 0.9) == 9.0
    assert percentile([7.0], 0.99) == 7.0 and percentile([], 0.5) is None
    values = [0.3, 0.1, 0.9, 0.4, 0.4, 2.0]
    for share in (0.01, 0.5, 0.9, 0.99):
        assert percentile(values, share) == pytest.approx(np.percentile(values, 100 * share))


def test_a_burst_is_one_wait_and_then_none():
    # Rounds of 3, 1 and 2 tokens: the first round is the wait for the first token; behind it come two tokens at once.
    assert token_gaps([0.5, 0.2, 0.3], [3, 1, 2]) == [0.0, 0.0, 0.2, 0.3, 0.0]
    assert token_gaps([0.5, 0.2], [1, 1]) == [0.2]  # plain decoding


def test_a_million_tokens_at_100_a_second_on_a_device_for_3_60_an_hour_cost_10():
    assert cost_per_million(3.60, 100.0) == pytest.approx(10.0)  # 10,000 s at 0.001 a second


def test_the_interval_of_a_median_by_hand():
    """Of six values all lie on one side of the true median with 2 · (½)⁶ = 3.1 %; of five with 6.3 %, too often for 95 %."""
    six = median_interval([6.0, 1.0, 3.0, 4.0, 2.0, 5.0])
    assert (six.value, six.low, six.high, six.count) == (3.5, 1.0, 6.0, 6)
    # Of nine, at most one on one side: 2 · (1 + 9) / 512 = 3.9 %. With two, 2 · (1 + 9 + 36) / 512 = 18 %.
    nine = median_interval([float(n) for n in range(9)])
    assert (nine.value, nine.low, nine.high) == (4.0, 1.0, 7.0)
    three = median_interval([4.0, 1.0, 2.0])
    assert (three.value, three.low, three.high) == (2.0, 1.0, 4.0)  # the whole range, which holds it in three of four cases
    assert median_interval([5.0]) == Interval(5.0, 5.0, 5.0, 1) and median_interval([]) is None
    assert median_interval([1.0, 2.0, 3.0], level=0.7).low == 1.0 and median_interval([1.0, 2.0, 3.0], level=0.2).low == 1.0


@pytest.mark.parametrize("count", [*range(FEWEST, 41), 500])
def test_the_interval_holds_the_true_median_as_often_as_it_says(count):
    """Exactly, with whole numbers; and the next narrower one would not."""
    found = median_interval([float(n) for n in range(1, count + 1)])
    k = int(found.low)
    assert found.high == count + 1 - k

    def missed(k):
        return 2 * sum(math.comb(count, n) for n in range(k)) / 2**count

    assert missed(k) <= 0.05 < missed(k + 1)


def test_five_values_are_too_few_for_any_interval():
    assert 2 * 0.5**FEWEST <= 0.05 < 2 * 0.5 ** (FEWEST - 1)


def test_percentiles_of_a_histogram():
    buckets = [(0.1, 50.0), (0.2, 90.0), (math.inf, 100.0)]
    assert histogram_quantile(buckets, 0.5) == pytest.approx(0.1)
    assert histogram_quantile(buckets, 0.7) == pytest.approx(0.15)  # 20 of the 40 in the second bucket
    assert histogram_quantile(buckets, 0.99) == 0.2  # beyond the last bound nobody knows
    assert histogram_quantile([(0.1, 0.0)], 0.5) is None


# Figures


@pytest.fixture(scope="module")
def traced():
    """A real measurement on two small random models, with the trace of every run: (measurement, {key: trace})."""
    from tiny import make_tiny_pair

    pair = make_tiny_pair(draft=True)
    traces = {}

    def perform(step):
        start = decoding.plain if step.arm == PLAIN else decoding.generate
        trace = start(pair, DESIGN.prompts[step.prompts[0]].text, DESIGN.settings(step.arm, step.repeat))
        if step.warm_up:
            return RunRecord.of(trace, prompt=99, repeat=0)
        traces[step.key] = trace
        return RunRecord.of(trace, prompt=step.prompts[0], repeat=step.repeat)

    kept = []
    made = carry_out(Measurement(design=DESIGN, origin=ORIGIN), perform=perform, keep=kept.append)
    assert list(made.records) == kept
    return made, traces


def test_every_figure_comes_out_again_from_the_traces(traced):
    made, traces = traced
    assert made.complete and len(made.records) == 5 * 3 * 2 == DESIGN.total
    arm, kind = Arm("draft", 3), "a"
    found = next(f for f in analyse(made).of(kind) if f.arm == arm)
    own = {(p, r): traces[arm.name, p, r, 0] for p in (0, 1) for r in (0, 1)}
    plain = {turn: traces["plain", *turn, 0] for turn in own}

    def seconds(trace):  # of the complete answer, from the trace's own totals
        return trace.totals.seconds - trace.totals.seconds_record

    def per_token(trace):
        return seconds(trace) / len(trace.output_ids)

    ratios = {turn: per_token(plain[turn]) / per_token(own[turn]) for turn in own}
    by_prompt = [np.median([ratios[p, 0], ratios[p, 1]]) for p in (0, 1)]
    assert found.speedup.value == pytest.approx(np.median(by_prompt), rel=1e-3) and found.speedup.count == 2
    assert found.answer.value == pytest.approx(
        np.median([np.median([seconds(own[p, r]) for r in (0, 1)]) for p in (0, 1)]), rel=1e-3
    )
    statuses = [d.status for t in own.values() for r in t.rounds for d in r.drafts]
    accepted, rejected = statuses.count("accepted"), statuses.count("rejected")
    assert found.acceptance_rate == accepted / (accepted + rejected)
    assert found.utilisation == accepted / len(statuses)
    tokens, passes = sum(len(t.output_ids) for t in own.values()), sum(t.totals.target_passes for t in own.values())
    assert found.mean_acceptance_length == tokens / passes
    assert found.accepted_per_round == accepted / passes
    step = {turn: np.mean([r.seconds.verify for r in t.rounds]) for turn, t in plain.items()}
    cost = [sum(sum(r.seconds.draft) for r in t.rounds) / t.totals.drafted / step[turn] for turn, t in own.items()]
    assert found.cost_coefficient == pytest.approx(np.median(cost), rel=1e-3)
    ratio = [np.mean([r.seconds.verify for r in t.rounds if r.drafts]) / step[turn] for turn, t in own.items()]
    assert found.verify_ratio == pytest.approx(np.median(ratio), rel=1e-3)
    assert found.first_token.value == pytest.approx(
        np.median([np.median([own[p, r].seconds_to_first_token for r in (0, 1)]) for p in (0, 1)])
    )
    gaps = []
    for t in own.values():
        spare = t.totals.seconds_other / len(t.rounds)
        for r in t.rounds:
            n = len(r.new_ids)
            gaps += ([] if r.index == 0 else [sum(r.seconds.draft) + r.seconds.verify + r.seconds.judge + spare]) + [0.0] * (n - 1)
    assert found.gaps == pytest.approx([np.percentile(gaps, p) for p in (50, 90, 99)], rel=1e-3, abs=1e-6)
    assert found.same_text == (4, 4)  # greedy: the same tokens as plain decoding
    assert found.runs == 4 and found.prompts == 2


def test_over_all_tasks_every_prompt_counts_once(traced):
    made, _ = traced
    found = analyse(made)
    assert [v.kind for v in found.verdicts] == ["", "a", "b"]
    assert {f.speedup.count for f in found.of("") if f.arm != PLAIN} == {3}
    assert {f.speedup.count for f in found.of("b") if f.arm != PLAIN} == {1}
    assert all(f.speedup is None for f in found.figures if f.arm == PLAIN)


@pytest.mark.parametrize(
    ("speedups", "use", "words"),
    [
        ([1.5, 1.4, 1.6, 1.7, 1.3, 1.8], True, "use it, head with γ = 4: 1.55× (95 % interval 1.30 to 1.80, 6 prompts)."),
        ([1.5, 1.4, 1.6, 1.7, 1.3, 1.8, 1.7, 0.6, 1.5], True, "1.30 to 1.70, 9 prompts, slower on 1)"),
        ([1.5, 1.4, 1.6, 1.7, 1.3, 1.8, 0.9], None, "7 prompts, slower on 1), and 1× lies within"),
        ([0.8, 0.7, 0.9, 0.85, 0.8, 0.9], False, "do not use it: the best was 0.83×"),
        ([0.8, 1.2, 0.9, 1.3, 0.9, 1.2], None, "6 prompts, slower on 3), and 1× lies within"),
        ([1.5, 1.6, 1.7, 1.5, 1.6], None, "too few prompts to decide: 1.60× with head γ = 4 on 5 prompts, 6 are the fewest"),
    ],
)
def test_the_verdict_follows_the_interval(speedups, use, words):
    found = analyse(made_up(speedups)).overall
    assert found.use is use and words in found.sentence, found.sentence


def test_a_median_does_not_hide_who_loses():
    found = analyse(made_up([1.5, 1.4, 0.6, 1.7, 0.9, 1.8])).of("")[1]
    assert (found.slower, found.slowest) == (2, pytest.approx(0.6))
    row = next(r for r in measure_tables.speed(analyse(made_up([1.5, 0.5])), "") if r["arm"] == "head γ = 4")
    assert row["slower than plain (prompts)"] == 1 and row["slowest prompt (×)"] == pytest.approx(0.5)
    assert analyse(made_up([1.5])).of("")[0].slower is None  # plain decoding itself


def test_the_formula_counts_rounds_without_drafts_as_plain_steps():
    """In 4 of 10 rounds 5 drafts each: α = ½, c and v as the records give them, the other six rounds are plain steps."""
    made = made_up([1.0])
    records = [r if r.arm == PLAIN else dataclasses.replace(r, drafted=20, rounds_with_drafts=4) for r in made.records]
    found = analyse(dataclasses.replace(made, records=tuple(records))).of("")[1]
    assert (found.acceptance_rate, found.drafting_share, found.mean_draft_length) == (0.5, 0.4, 2.0)
    c, v, tokens = 0.2 / 20 / 0.08, 0.8 / 4 / 0.08, (1 - 0.5**6) / 0.5
    assert (found.cost_coefficient, found.verify_ratio) == (pytest.approx(c), pytest.approx(v))
    assert found.predicted_speedup == pytest.approx((0.4 * tokens + 0.6) / (0.4 * (5 * c + v) + 0.6))
    assert theory.speedup(0.5, 5, c, v, drafting_share=0.0) == 1.0
    assert theory.speedup(0.5, 5, c, v, drafting_share=1.0) == theory.speedup(0.5, 5, c, v) == pytest.approx(tokens / (5 * c + v))


def test_texts_that_are_drawn_are_not_compared():
    made = made_up([1.0, 1.1])
    drawn = dataclasses.replace(made, design=dataclasses.replace(made.design, temperature=1.0))
    assert analyse(made).of("")[1].same_text == (2, 2) and analyse(drawn).of("")[1].same_text is None


def test_cost_of_one_request_after_the_other_counts_the_prompt():
    """Ten tokens in a second, one second more for the prompt: 5 a second, a million in 200,000 s, 3.60 an hour: 200."""
    made = made_up([1.0])
    slow = tuple(dataclasses.replace(r, seconds_prefill=1.0) for r in made.records)
    plain = analyse(dataclasses.replace(made, records=slow)).of("")[0]
    assert plain.served_per_second == pytest.approx(5.0) and measure_tables.cost_alone(plain, 3.6) == pytest.approx(200.0)


def test_a_lost_case_names_its_cause():
    base = analyse(made_up([0.8, 0.7, 0.9, 0.85, 0.8, 0.8])).of("")[1]
    assert FEWEST == 6 and base.drafting_share == 1.0

    def sentence(**figures):
        return verdict("code", [dataclasses.replace(base, **figures)]).sentence

    # γ = 4. Drafting free: 2.5 tokens for v = 1.2, which would have paid: c was it.
    assert "Drafting cost too much for what it brought (c = 0.50)" in sentence(
        cost_coefficient=0.5, verify_ratio=1.2, mean_acceptance_length=2.5
    )
    assert "Verifying several tokens at once cost too much (v = 2.50)" in sentence(
        cost_coefficient=0.1, verify_ratio=2.5, mean_acceptance_length=2.5
    )
    assert "Too few drafts were accepted" in sentence(cost_coefficient=0.1, verify_ratio=1.3, mean_acceptance_length=1.2)
    # Drafts in a tenth of the rounds: what those cost is shared by all.
    assert "Nothing was drafted" in sentence(acceptance_rate=None)
    seldom = dict(drafting_share=0.1, mean_draft_length=0.4)
    assert "Verifying several" in sentence(cost_coefficient=0.1, verify_ratio=2.5, mean_acceptance_length=1.1, **seldom)


def test_a_longer_answer_is_no_slower_one():
    made = made_up([1.0, 1.0, 1.0])
    longer = tuple(r if r.arm == PLAIN else run_record(r.arm, r.prompt, 2.0, tokens=20) for r in made.records)
    assert analyse(dataclasses.replace(made, records=longer)).overall.speedup.value == pytest.approx(1.0)


# Requests at once


def test_throughput_and_cost_of_requests_at_once():
    arm = Arm("head", 4)
    records = (batch(PLAIN, 1, 8.0), batch(arm, 1, 4.0), batch(PLAIN, 8, 2.0), batch(arm, 8, 2.5))
    made = dataclasses.replace(made_up([1.5]), records=records)
    found = {(load.at_once, load.arm.name): load for load in analyse(made).loads}
    assert found[1, arm.name].tokens_per_second == 200 and found[1, arm.name].speedup == 2.0
    assert found[8, arm.name].speedup == 0.8  # 320 against 400 tokens/s: on a busy device it loses
    assert found[8, "plain"].cost(3.6) == pytest.approx(2.5)  # 400 tokens/s: 2,500 s at 0.001
    rows = measure_tables.loads(analyse(made), 3.6)
    assert [r["cost of a million tokens"] for r in rows if r["arm"] == "plain"] == pytest.approx([10.0, 2.5])
    assert found[1, "plain"].answer == 1.5 and found[1, "plain"].answer_p90 == 2.0
