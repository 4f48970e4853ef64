"""The figures of a run: right values by hand, every ratio over its own denominator, and the sums by another path."""

import dataclasses
import math

import pytest
from sample_traces import SAMPLES, all_samples
from trace_builder import Plan, make_trace, sure

from specdec import metrics, theory
from specdec.metrics import METRICS, Summary, summary
from specdec.trace import Draft, Outcome, Round, Seconds, Settings, TokenProbability, Totals, Trace

STATUS = {"a": "accepted", "r": "rejected", "d": "discarded"}
TOP_1 = (TokenProbability(7, "x", 1.0),)
PAIR = SAMPLES["bonus"]().pair


def run(
    *rounds: str,
    temperature=1.0,
    draft=0.01,
    verify=0.1,
    judge=0.005,
    record=0.02,
    prefill=0.5,
    other=0.03,
    step=0.08,
    overlap=0.6,
    method="speculative",
    top=TOP_1,
) -> Trace:
    """A trace from the verdicts of its rounds: "aard" is two accepted drafts, a rejected and a discarded one.

    Seconds of a draft step, a pass, judging, recording (each round), and of the prefill and the rest (each run).
    """
    made, start = [], 3
    for index, verdicts in enumerate(rounds):
        drafts = tuple(
            Draft(
                id=7,
                text="x",
                q=0.5,
                p=0.3,
                accept_probability=0.6,
                u=None,
                status=STATUS[s],
                overlap=overlap,
                top_p=top,
                top_q=top,
            )
            for s in verdicts.rstrip("!")
        )
        # "!" ends on an accepted end-of-text token: the target adds nothing
        kind = "none" if verdicts.endswith("!") else "replacement" if "r" in verdicts else "bonus"
        outcome = Outcome(kind=kind, id=None if kind == "none" else 8, text="y", p=0.5, u=None, distribution=(), residual_mass=None)
        seconds = Seconds(draft=(draft,) * len(drafts), verify=verify, judge=judge, record=record)
        made.append(Round(index=index, start=start, drafts=drafts, outcome=outcome, seconds=seconds))
        start += len(made[-1].new_ids)
    count = "".join(rounds).count
    drafted = count("a") + count("r") + count("d")
    parts = drafted * draft, len(rounds) * verify, len(rounds) * judge, len(rounds) * record
    return Trace(
        method=method,
        settings=Settings(temperature=temperature),
        pair=PAIR,
        device="cpu",
        versions={},
        created="",
        prompt="",
        prompt_ids=(1, 2, 3),
        output_ids=tuple(i for r in made for i in r.new_ids),
        output_text="",
        finish_reason="length",
        seconds_to_first_token=0.65,
        rounds=tuple(made),
        totals=Totals(
            prompt_tokens=3,
            new_tokens=start - 3,
            target_passes=len(made),
            drafted=drafted,
            judged=count("a") + count("r"),
            accepted=count("a"),
            rejected=count("r"),
            discarded=count("d"),
            replacements=sum(r.outcome.kind == "replacement" for r in made),
            bonuses=sum(r.outcome.kind == "bonus" for r in made),
            seconds=prefill + other + sum(parts),
            seconds_prefill=prefill,
            seconds_draft=parts[0],
            seconds_verify=parts[1],
            seconds_judge=parts[2],
            seconds_record=parts[3],
            seconds_other=other,
        ),
        plain_step_seconds=step,
    )


THREE = ("aard", "aaaa", "rddd")  # 12 drafted, 8 judged, 6 accepted; 3 + 5 + 1 = 9 tokens in 3 passes


def test_counts_and_ratios_by_hand():
    s = summary(run(*THREE))
    assert (s.prompt_tokens, s.new_tokens, s.target_passes) == (3, 9, 3)
    assert (s.drafted, s.judged, s.accepted) == (12, 8, 6)
    assert s.acceptance_rate == 6 / 8
    assert s.draft_utilisation == 6 / 12
    assert s.mean_acceptance_length == 9 / 3
    assert s.mean_draft_length == 4


def test_times_by_hand():
    # decoding: 12 × 0.01 drafting + 3 × 0.1 verifying + 3 × 0.005 judging + 0.03 other
    s = summary(run(*THREE))
    assert s.seconds_decode == pytest.approx(0.465)
    assert s.seconds_total == pytest.approx(0.965)
    assert s.seconds_record == pytest.approx(0.06)
    assert s.tokens_per_second == pytest.approx(9 / 0.465)
    assert s.share_draft == pytest.approx(0.12 / 0.465)
    assert s.share_verify == pytest.approx(0.3 / 0.465)
    assert s.share_judge == pytest.approx(0.015 / 0.465)
    assert s.share_other == pytest.approx(0.03 / 0.465)
    assert s.seconds_to_first_token == 0.65


def test_costs_and_speedup_by_hand():
    s = summary(run(*THREE))  # a plain step takes 0.08 s
    assert s.cost_coefficient == pytest.approx(0.01 / 0.08)
    assert s.verify_ratio == pytest.approx(0.1 / 0.08)
    assert s.round_cost == pytest.approx(0.465 / 3 / 0.08)
    assert s.speedup == pytest.approx(9 * 0.08 / 0.465)
    # E(.75, 4) = (1 − .75⁵) / .25 = 3.05078125, a round costs 4 × 0.125 + 1.25
    assert s.predicted_speedup == pytest.approx(3.05078125 / 1.75)


def test_recording_and_prefill_are_in_no_figure_of_decoding():
    slow = summary(run(*THREE, record=5.0, prefill=60.0))
    quick = summary(run(*THREE, record=0.0, prefill=0.0))
    for name in ("tokens_per_second", "speedup", "predicted_speedup", "share_verify", "cost_coefficient", "round_cost"):
        assert getattr(slow, name) == pytest.approx(getattr(quick, name)), name


def test_a_discarded_draft_counts_for_utilisation_and_not_for_alpha():
    some, more = summary(run("ar")), summary(run("ardddd"))
    assert some.acceptance_rate == more.acceptance_rate == 1 / 2
    assert (some.draft_utilisation, more.draft_utilisation) == (1 / 2, 1 / 6)


def test_nothing_to_divide_by_is_none():
    nothing = summary(run())
    for name in (
        "acceptance_rate",
        "draft_utilisation",
        "mean_acceptance_length",
        "mean_draft_length",
        "mean_overlap",
        "seconds_to_first_token",
        "cost_coefficient",
        "verify_ratio",
        "round_cost",
        "predicted_speedup",
    ):
        assert getattr(nothing, name) is None, name
    assert (nothing.new_tokens, nothing.drafted) == (0, 0)
    assert summary(run(other=0.0)).tokens_per_second is None
    assert summary(run(other=0.0)).share_draft is None


def test_without_a_measured_plain_step_nothing_is_said_about_speed():
    s = summary(run(*THREE, step=None))
    assert (s.cost_coefficient, s.verify_ratio, s.round_cost, s.speedup, s.predicted_speedup) == (None,) * 5
    assert metrics.speed_sentence(s) is None
    assert s.tokens_per_second == pytest.approx(9 / 0.465)


def test_a_plain_run_has_no_acceptance_and_is_not_compared_with_itself():
    s = summary(run("", "", "", "", method="plain"))
    assert s.mean_acceptance_length == 1.0
    assert (s.acceptance_rate, s.draft_utilisation, s.mean_overlap, s.speedup, s.cost_coefficient) == (None,) * 5
    assert s.share_draft == 0.0


def test_a_run_that_ends_on_an_accepted_draft_has_no_bonus():
    s = summary(run("aaaa", "aadd!"))
    assert (s.new_tokens, s.judged, s.accepted, s.drafted) == (5 + 2, 6, 6, 8)
    assert s.mean_acceptance_length == 3.5
    assert s.acceptance_rate == 1.0


def test_expected_alpha_is_the_mean_overlap_of_the_judged_drafts():
    trace = run("ard", "aaa")
    overlaps = iter([0.9, 0.3, 0.0, 0.8, 0.6, 0.7])  # the third is discarded
    rounds = tuple(
        dataclasses.replace(r, drafts=tuple(dataclasses.replace(d, overlap=next(overlaps)) for d in r.drafts)) for r in trace.rounds
    )
    s = summary(dataclasses.replace(trace, rounds=rounds))
    assert s.mean_overlap == s.expected_acceptance_rate == pytest.approx(3.3 / 5)
    assert s.expected_acceptance_error == pytest.approx(math.sqrt(0.09 + 0.21 + 0.16 + 0.24 + 0.21) / 5)


def test_greedy_verdicts_are_no_draws():
    s = summary(run(*THREE, temperature=0.0))
    assert s.mean_overlap == pytest.approx(0.6)
    assert (s.expected_acceptance_rate, s.expected_acceptance_error) == (None, None)


def test_a_run_without_full_recording_has_no_overlap():
    s = summary(run(*THREE, overlap=0.0, top=()))
    assert (s.mean_overlap, s.expected_acceptance_rate, s.expected_acceptance_error) == (None, None, None)
    assert s.acceptance_rate == 0.75


def test_acceptance_by_position_by_hand():
    found = metrics.acceptance_by_position(run("aard", "aaaa", "rddd", "ar"))
    assert [(e.position, e.judged, e.accepted, e.rate, e.drafted) for e in found] == [
        (1, 4, 3, 3 / 4, 4),
        (2, 3, 2, 2 / 3, 4),
        (3, 2, 1, 1 / 2, 3),
        (4, 1, 1, 1.0, 3),
    ]
    assert metrics.acceptance_by_position(run("rd", "rd"))[1] == metrics.PositionAcceptance(2, 0, 0, None, 2)
    assert metrics.acceptance_by_position(run("", "")) == []


def test_accepted_per_round_by_hand():
    trace = run("aard", "aaaa", "rddd", "ar", "", "aaaa")
    assert metrics.accepted_per_round(trace) == [1, 1, 1, 0, 2]
    assert metrics.accepted_per_round(trace, draft_length=4) == [1, 0, 1, 0, 2]
    assert metrics.accepted_per_round(trace, draft_length=2) == [0, 1, 0]
    assert metrics.accepted_per_round(trace, draft_length=1) == [0, 0]
    assert metrics.accepted_per_round(run("", "")) == []
    assert metrics.draft_lengths(trace) == {0: 1, 2: 1, 4: 4}


def test_verify_ratio_of_each_draft_length():
    trace = run("aaaa", "aaaa", "ar", "")
    times = iter([0.12, 0.08, 0.1, 0.06])
    rounds = tuple(dataclasses.replace(r, seconds=dataclasses.replace(r.seconds, verify=next(times))) for r in trace.rounds)
    trace = dataclasses.replace(trace, rounds=rounds)
    assert metrics.verify_ratio_by_draft_length(trace) == pytest.approx({0: 0.75, 2: 1.25, 4: 1.25})
    assert summary(trace).verify_ratio == pytest.approx(1.25)  # the pass without drafts is no verification
    assert metrics.verify_ratio_by_draft_length(dataclasses.replace(trace, plain_step_seconds=None)) == {}


def test_drafting_that_finds_nothing_costs_time_all_the_same():
    trace = run("aa", "")
    searched = dataclasses.replace(trace.rounds[1], seconds=Seconds(draft=(0.06,), verify=0.1, judge=0.0))
    s = summary(dataclasses.replace(trace, rounds=(trace.rounds[0], searched)))
    assert s.cost_coefficient == pytest.approx((0.01 + 0.01 + 0.06) / 2 / 0.08)


def test_prediction_takes_each_round_as_it_was():
    # α = 3/4; E(.75, 3) = 2.734375, E(.75, 1) = 1.75, E(.75, 0) = 1; 4 draft steps and 3 passes of 0.1 s
    predicted = metrics.predicted_speedup(run("aar", "a", ""))
    assert predicted == pytest.approx(0.08 * (2.734375 + 1.75 + 1) / (4 * 0.01 + 3 * 0.1))


def test_prediction_equals_the_formula_for_one_draft_length():
    s = summary(run(*THREE))
    assert s.predicted_speedup == pytest.approx(theory.speedup(s.acceptance_rate, 4, s.cost_coefficient, s.verify_ratio))


def test_time_split_and_timeline_by_hand():
    trace = run("aard", "r")
    assert [(t.index, t.draft, t.verify, t.judge, t.record) for t in metrics.time_split(trace)] == [
        (0, pytest.approx(0.04), 0.1, 0.005, 0.02),
        (1, pytest.approx(0.01), 0.1, 0.005, 0.02),
    ]
    # prefill 0.5, then each round with half of the 0.03 s that no part has a name for
    points = metrics.timeline(trace)
    assert [tokens for _, tokens in points] == [0, 3, 4]
    assert [seconds for seconds, _ in points] == pytest.approx([0.5, 0.66, 0.79])
    assert points[-1][0] == pytest.approx(summary(trace).seconds_total)
    assert metrics.timeline(run(other=0.0)) == [(0.5, 0)]


def test_clocks_that_disagree_never_make_a_negative_share():
    s = summary(run(*THREE, other=-0.2))
    assert s.share_other == 0.0
    assert s.share_draft + s.share_verify + s.share_judge == pytest.approx(1.0)


@pytest.mark.parametrize(
    "verdicts, times, cause",
    [
        (("aaaa", "aaaa"), {"draft": 0.15, "verify": 0.08}, "cost_coefficient"),
        (("aaaa", "aaaa"), {"draft": 0.001, "verify": 0.5}, "verify_ratio"),
        (("rddd", "rddd"), {"draft": 0.01, "verify": 0.1}, "acceptance_rate"),
        (("aaaa", "aaaa"), {"draft": 0.001, "verify": 0.08}, None),
    ],
)
def test_a_slow_run_names_its_cause(verdicts, times, cause):
    s = summary(run(*verdicts, **times))
    assert (s.speedup < 1) == (cause is not None)
    assert metrics.slow_cause(s) == cause
    assert ("The cause:" in metrics.speed_sentence(s)) == (cause is not None)


def test_speed_sentence_has_the_runs_own_numbers():
    assert metrics.speed_sentence(summary(run(*THREE))) == (
        "Faster than plain decoding: 1.55×. A round made 3.00 tokens and took the time of 1.94 plain steps: "
        "drafting 0.50, verifying 1.25, the rest 0.19."
    )
    slow = metrics.speed_sentence(summary(run("rddd", "ardd")))
    assert slow.startswith("Slower than plain decoding: 0.75×. A round made 1.50 tokens and took the time of 2.00 plain steps")
    even = metrics.speed_sentence(summary(run("a", draft=0.06, verify=0.1, judge=0.0, other=0.0)))
    assert even.startswith("As fast as plain decoding (1.00×).")


def test_a_comparison_with_a_step_that_was_measured_in_a_busier_moment_is_doubted():
    s = summary(run("rddd", "rddd", draft=0.001, verify=0.07, step=0.1))  # a pass over 5 tokens quicker than one over 1
    assert (s.mean_acceptance_length, s.speedup > 1) == (1.0, True)
    assert metrics.speed_sentence(s).endswith(
        "Doubtful: passes with drafts took less time than a plain step (v = 0.70), so the machine was busier when the plain step "
        "was measured."
    )


def test_every_figure_has_a_definition_and_every_definition_a_figure():
    assert set(METRICS) == {f.name for f in dataclasses.fields(Summary)}
    for name, metric in METRICS.items():
        assert metric.title and metric.definition.endswith(".") and metric.definition.count("\n") == 0, name
    assert "judged" in METRICS["acceptance_rate"].definition
    assert "all drafted" in METRICS["draft_utilisation"].definition
    assert len({m.title for m in METRICS.values()}) == len(METRICS)


def test_figures_as_text():
    assert metrics.show("acceptance_rate", 0.7249) == "0.72"
    assert metrics.show("draft_utilisation", 0.5) == "50 %"
    assert metrics.show("tokens_per_second", 12.345) == "12.3 tokens/s"
    assert metrics.show("speedup", 1.308) == "1.31×"
    assert metrics.show("mean_acceptance_length", 3.0) == "3.00 tokens"
    assert metrics.show("new_tokens", 64) == "64 tokens"
    assert metrics.show("plain_step_seconds", 0.0972) == "97.2 ms"
    assert metrics.show("seconds_total", 4.071) == "4.07 s"
    assert metrics.show("seconds_total", 0.9999) == "1.00 s"
    assert metrics.show("seconds_record", 0.0) == "0 ms"
    assert metrics.show("acceptance_rate", None) == "–"
    assert metrics.show("finish_reason", "eos") == "eos"


@pytest.mark.parametrize("name", SAMPLES)
def test_the_totals_of_a_trace_say_the_same_by_another_path(name):
    trace = SAMPLES[name]()
    s, t = summary(trace), trace.totals
    assert (s.prompt_tokens, s.new_tokens, s.target_passes) == (t.prompt_tokens, t.new_tokens, t.target_passes)
    assert (s.drafted, s.judged, s.accepted) == (t.drafted, t.judged, t.accepted)
    assert t.rejected + t.accepted == t.judged == t.drafted - t.discarded
    assert t.new_tokens == t.accepted + t.replacements + t.bonuses == len(trace.output_ids)
    assert s.seconds_decode == pytest.approx(t.seconds - t.seconds_prefill - t.seconds_record)
    assert s.share_draft * s.seconds_decode == pytest.approx(t.seconds_draft)
    assert s.share_verify * s.seconds_decode == pytest.approx(t.seconds_verify)
    assert s.share_other * s.seconds_decode == pytest.approx(t.seconds_other)
    assert s.share_draft + s.share_verify + s.share_judge + s.share_other == pytest.approx(1.0)
    places = metrics.acceptance_by_position(trace)
    assert (sum(e.judged for e in places), sum(e.accepted for e in places)) == (t.judged, t.accepted)
    per_round = metrics.accepted_per_round(trace)
    assert sum(n * rounds for n, rounds in enumerate(per_round)) == t.accepted
    assert metrics.timeline(trace)[-1] == (pytest.approx(s.seconds_total), t.new_tokens)


def test_alpha_and_utilisation_agree_only_where_nothing_is_discarded():
    for name, trace in all_samples().items():
        s = summary(trace)
        if s.drafted:
            assert s.draft_utilisation <= s.acceptance_rate, name
            assert (s.draft_utilisation == s.acceptance_rate) == (trace.totals.discarded == 0 or not s.accepted), name


def test_a_measured_run_is_explained_by_its_parts():
    """speed-up = (tokens a round) / (cost of a round), whatever the run was like."""
    for trace in all_samples().values():
        s = summary(trace)
        if s.speedup is not None:
            assert s.speedup == pytest.approx(s.mean_acceptance_length / s.round_cost)


def test_summary_survives_json():
    plan = Plan((sure(" a", 0.6, 0.5), sure(" b", 0.6, 0.5)), " c")
    trace = make_trace(["x"], [plan, plan], settings=Settings(temperature=1.0))
    assert summary(Trace.from_json(trace.to_json())) == summary(trace)


# Over the real loop


def real_run(**changes) -> Trace:
    from specdec import decoding
    from specdec.table import TableModel, TablePair

    def follows(shift):
        return lambda tokens: [
            0.55 if i == (tokens[-1] + 1) % 6 else 0.2 if i == (tokens[-1] + shift) % 6 else 0.0625 for i in range(6)
        ]

    target, draft = (TableModel(follows(shift), vocabulary=6) for shift in (2, 3))
    pair = TablePair(words=tuple("abcdef"), target=target, draft=draft, plain_step_seconds=0.001)
    return decoding.generate(pair, "ab", Settings(drafter="draft", **changes))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_real_run_comes_back_from_json_and_its_clock_adds_up(temperature):
    trace = real_run(temperature=temperature, max_new_tokens=50, seed=4)
    assert Trace.from_json(trace.to_json()) == trace
    s, points = summary(trace), metrics.timeline(trace)
    assert (s.drafted, s.judged, s.accepted) == (trace.totals.drafted, trace.totals.judged, trace.totals.accepted)
    assert points[-1] == (pytest.approx(s.seconds_total), 50)
    assert s.seconds_total + s.seconds_record == pytest.approx(trace.totals.seconds, abs=1e-5)
    assert [seconds for seconds, _ in points] == sorted(seconds for seconds, _ in points)
    assert s.seconds_prefill <= s.seconds_to_first_token <= trace.totals.seconds


def test_alpha_of_sampled_runs_is_the_mean_overlap_of_their_judged_drafts():
    """About 1,500 judged drafts; more than 4 standard errors apart by chance in 1 of 16,000 seeds, and the seeds are fixed."""
    figures = [summary(real_run(temperature=1.0, max_new_tokens=500, seed=seed)) for seed in range(3)]
    judged = sum(s.judged for s in figures)
    expected = sum(s.expected_acceptance_rate * s.judged for s in figures) / judged
    error = math.sqrt(sum((s.expected_acceptance_error * s.judged) ** 2 for s in figures)) / judged
    measured = sum(s.accepted for s in figures) / judged
    assert judged > 1000 and 0.005 < error < 0.015
    assert abs(measured - expected) < 4 * error
    assert expected == pytest.approx(0.55 + 5 * 0.0625, abs=1e-6)


def test_a_draft_length_that_is_chosen_is_the_mean_of_the_rounds_that_drafted():
    trace = run("aard", "ra", "", "a!")
    assert metrics.usual_draft_length(trace) == trace.settings.draft_length
    chosen = dataclasses.replace(trace, settings=trace.settings.replace(adaptive=True))
    assert metrics.usual_draft_length(chosen) == (4 + 2 + 1) / 3
