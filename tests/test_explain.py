"""Every sentence and every bar speaks with the numbers of its own token, and token text is never markup."""

from __future__ import annotations

import dataclasses
import math

import pytest
from sample_traces import SAMPLES

from specdec import metrics
from specdec.ui.explain import against_plain, code, explain, latex, literal, number, numbers, plain, visible
from specdec.ui.figures import OTHERS, distribution_figure, overlap_figure, rows_of


@pytest.fixture(scope="module")
def rejected():
    return SAMPLES["rejected"]()


@pytest.fixture(scope="module")
def greedy():
    return SAMPLES["greedy"]()


def test_a_draft_that_the_target_wants_more_is_kept_whatever_the_dice_say(rejected):
    said = explain(rejected.settings, rejected.rounds[0], 0)  # q .62, p .71, u .38
    assert said.title == "`␣send` is accepted"
    assert "the probability q = 0.62, the target p = 0.71" in said.words and "whatever the dice say" in said.words
    assert r"\tfrac{0.71}{0.62}\right) = 1 " in said.formula and r"\Rightarrow\; \text{accepted}" in said.formula


def test_a_draft_that_the_target_wants_less_is_kept_when_u_is_below_the_ratio(rejected):
    said = explain(rejected.settings, rejected.rounds[0], 1)  # q .55, p .44, u .51
    assert "0.44 / 0.55 = 0.80" in said.words and "u = 0.51, below that: it stays" in said.words
    assert r"\tfrac{0.44}{0.55}\right) = 0.80 \\ u = 0.51 < 0.80 \;\Rightarrow\; \text{accepted}" in said.formula


def test_a_rejected_draft_is_replaced_from_the_residual(rejected):
    round_ = rejected.rounds[0]
    said = explain(rejected.settings, round_, 2)  # q .41, p .16, u .72
    assert said.title == "`␣invoice` is rejected, `␣report` takes its place"
    assert "0.16 / 0.41 = 0.39" in said.words and "u = 0.72, not below that: it goes" in said.words
    assert r"u = 0.72 \ge 0.39 \;\Rightarrow\; \text{rejected}" in said.formula
    overlap, mass = round_.drafts[2].overlap, round_.outcome.residual_mass
    assert overlap + mass == pytest.approx(1)
    assert f"Σ min(p, q) = {number(overlap)}" in said.exact and f"Σ max(0, p − q) = {number(mass)}" in said.exact
    share = (0.52 - 0.18) / mass  # " report": p .52, q .18
    assert f"`␣report` has {number(share)}" in said.exact


def test_a_discarded_draft_names_the_draft_that_fell_before_it(rejected):
    said = explain(rejected.settings, rejected.rounds[0], 3)
    assert said.title == "`␣today` is discarded" and "written to follow `␣invoice`" in said.words and "(p = 0.29)" in said.words
    assert r"\text{not judged}" in said.formula


def test_the_replacement_is_explained_by_the_draft_that_it_replaces(rejected):
    said = explain(rejected.settings, rejected.rounds[0], 4)
    assert said.title == "`␣report` replaces `␣invoice`" and said.words == explain(rejected.settings, rejected.rounds[0], 2).words


def test_greedy_runs_have_no_dice(greedy):
    kept, lost = explain(greedy.settings, greedy.rounds[0], 0), explain(greedy.settings, greedy.rounds[0], 2)
    assert "no dice" in kept.words and r"\operatorname{arg\,max}" in kept.formula and "u =" not in kept.formula
    assert "That is `␣report` (p = 0.52) and not `␣invoice` (p = 0.16)" in lost.words
    assert lost.formula.startswith("p(x) = 0.16 < 0.52 = ")


def test_a_bonus_token_comes_without_another_pass():
    trace = SAMPLES["bonus"]()
    said = explain(trace.settings, trace.rounds[0], 4)
    assert said.title == "`,` is a bonus token" and "without another pass" in said.words and "(p = 0.70)" in said.words
    assert said.exact == "This round committed 5 tokens with one pass of the target."


def test_drafts_behind_the_end_of_the_text_are_explained():
    trace = SAMPLES["ends_in_drafts"]()
    round_ = trace.rounds[0]
    assert "already ended with `<|im_end|>`" in explain(trace.settings, round_, 2).words
    assert explain(trace.settings, round_, 4).title == "The text ends here"


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_every_token_of_every_kind_of_round_has_words_a_formula_and_figures(name):
    trace = SAMPLES[name]()
    for round_ in trace.rounds:
        for token in range(len(round_.drafts) + 1):
            said = explain(trace.settings, round_, token)
            assert said.title and said.words and said.formula
            assert all(bad not in said.words + said.exact for bad in ("None", "nan", "1.00 ", "0.00 "))
        for draft in round_.drafts:
            figure, alt = overlap_figure(round_, draft)
            assert visible(draft.text) in alt and len(figure["data"]) == 3
        if (found := distribution_figure(round_.outcome)) is not None:
            assert visible(round_.outcome.text) in found[1]


def test_the_rows_of_a_position_add_up(rejected):
    for round_ in rejected.rounds:
        for draft in round_.drafts:
            rows = rows_of(round_, draft)
            assert math.isclose(sum(r.p or 0 for r in rows), 1, abs_tol=1e-3) and math.isclose(
                sum(r.q or 0 for r in rows), 1, abs_tol=1e-3
            )
            assert math.isclose(sum(r.common for r in rows), draft.overlap, abs_tol=2e-3)
            assert draft.text in [r.label for r in rows]


def test_the_drafted_token_and_its_replacement_are_marked(rejected):
    marks = {r.label: r.mark for r in rows_of(rejected.rounds[0], rejected.rounds[0].drafts[2]) if r.mark}
    assert marks == {" invoice": " ✕", " report": " ↵"}


def test_the_residual_figure_shows_where_the_replacement_was_drawn(rejected):
    outcome = rejected.rounds[0].outcome
    figure, alt = distribution_figure(outcome)
    bars = figure["data"][0]
    assert sum(bars["x"]) == pytest.approx(1, abs=1e-3) and alt.startswith("What ␣report was drawn from: residual.")
    drawn = [t for t in figure["layout"]["yaxis"]["ticktext"] if "✓" in t]
    assert drawn == ["<b>␣report ✓</b>"] and bars["marker"]["opacity"].count(1.0) == 1


def test_others_is_no_token_of_that_name():
    trace = SAMPLES["rejected"]()
    labels = overlap_figure(trace.rounds[0], trace.rounds[0].drafts[2])[0]["layout"]["yaxis"]["ticktext"]
    assert labels[-1] == f"<i>{OTHERS}</i>"


def test_token_text_is_data_in_labels_and_sentences():
    trace = SAMPLES["hostile"]()
    for round_ in trace.rounds:
        for i, draft in enumerate(round_.drafts):
            labels = "".join(overlap_figure(round_, draft)[0]["layout"]["yaxis"]["ticktext"])
            assert "<img" not in labels and "<script" not in labels
            assert code(draft.text) in explain(trace.settings, round_, i).title


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" the", "`␣the`"),
        ("\n", "`⏎`"),
        ("a`b", "``a`b``"),
        ("`", "`` ` ``"),
        ("", "`∅`"),
        ("\u202ex", "`⟨U+202E⟩x`"),
        ("**b**", "`**b**`"),
    ],
)
def test_a_token_in_a_sentence(text, shown):
    assert code(text) == shown


def test_a_long_token_is_cut():
    assert len(visible("x" * 500)) == 40 and visible("x" * 500).endswith("…")


def test_a_message_with_somebody_elses_words_is_no_markdown():
    assert literal("![x](http://a) `b` $c$ :d: <e>") == r"\!\[x\]\(http\://a\) \`b\` \$c\$ \:d\: \<e\>"


@pytest.mark.parametrize(
    ("value", "shown", "words", "formula"),
    [
        (0.5, "0.50", "0.50", "0.50"),
        (0.0, "0", "0", "0"),
        (1.0, "1", "1", "1"),
        (0.004, "0.004", "0.004", "0.004"),
        (2.2e-9, "2.2e-09", "almost 0", r"2.2 \cdot 10^{-9}"),
        (1.4e-6, "1.4e-06", "0.0000014", r"1.4 \cdot 10^{-6}"),
        (0.9981, "0.9981", "0.9981", "0.9981"),
        (0.9999999, "≈ 1", "almost 1", r"{\approx}1"),
    ],
)
def test_numbers_for_newcomers_and_for_experts(value, shown, words, formula):
    assert (number(value), plain(number(value)), latex(number(value))) == (shown, words, formula)


def test_numbers_that_are_compared_look_different():
    assert numbers(0.551, 0.549) == ["0.551", "0.549"] and numbers(0.5, 0.5) == ["0.50", "0.50"]


@pytest.mark.parametrize(
    ("p", "q", "words"),
    [
        (1.4e-6, 2e-4, "the target only p = 0.0000014. So it may stay with probability 0.0000014 / 0.0002 = 0.007"),
        (2e-9, 0.9, "the target only p ≈ 0. So it may stay with probability p / q ≈ 0"),
    ],
)
def test_very_small_numbers_make_sentences(rejected, p, q, words):
    round_ = rejected.rounds[0]
    small = dataclasses.replace(round_.drafts[2], p=p, q=q, accept_probability=p / q)
    changed = dataclasses.replace(round_, drafts=(*round_.drafts[:2], small, *round_.drafts[3:]))
    assert words in explain(rejected.settings, changed, 2).words


def test_quotes_and_ampersands_are_what_they_are_in_labels(rejected):
    round_ = rejected.rounds[0]
    odd = dataclasses.replace(round_.drafts[0], text='"&<')
    labels = overlap_figure(round_, odd)[0]["layout"]["yaxis"]["ticktext"]
    assert '<b>"&amp;&lt; ✓</b>' in labels


def test_a_slow_run_says_so_and_why_with_alpha_c_and_v(rejected):
    slow = dataclasses.replace(rejected, plain_step_seconds=1e-4)
    s = metrics.summary(slow)
    faster, sentence = against_plain(slow)
    assert faster is False and s.speedup < 1
    assert f"{s.speedup:.2f}× the speed of plain decoding: slower" in sentence
    assert (
        f"α = {s.acceptance_rate:.2f}" in sentence
        and f"c = {s.cost_coefficient:.2f}" in sentence
        and f"v = {s.verify_ratio:.2f}" in sentence
    )
    fast = dataclasses.replace(rejected, plain_step_seconds=10.0)
    assert against_plain(fast)[0] is True and "slower" not in against_plain(fast)[1]
    figures = metrics.summary(slow)
    as_fast = dataclasses.replace(slow, plain_step_seconds=slow.plain_step_seconds / figures.speedup)
    assert against_plain(as_fast)[0] is None and against_plain(as_fast)[1].startswith("**As fast as plain decoding (1.00×)")
    assert against_plain(dataclasses.replace(rejected, plain_step_seconds=None))[0] is None


def test_a_p_value_is_said_and_so_is_that_there_is_none():
    from specdec.texts import spoken
    from specdec.ui.explain import p_value

    assert [p_value(p) for p in (0.543, 0.01, 0.0043, None)] == ["0.54", "0.01", "0.004", "–"]
    with spoken("de"):
        assert p_value(0.543) == "0,54"
