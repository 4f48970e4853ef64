"""A measurement before adopting it: its arithmetic by hand, its figures again from the traces, its order, stop and resume."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from specdec import decoding, measure_report, measure_tables
from specdec.errors import SettingsError
from specdec.measure import Design, Measurement, Origin, carry_out, single_steps
from specdec.measure_analysis import analyse, verdict
from specdec.measure_device import begin, cache_bytes, memory_of, perform_on
from specdec.measure_records import AUTO, PLAIN, Arm, BatchRecord, RunRecord
from specdec.measure_report import to_json
from specdec.measure_stats import bootstrap_median, cost_per_million, histogram_quantile, percentile, token_gaps
from specdec.measure_store import Store, dump, load
from specdec.prompt_sets import Prompt

ORIGIN = Origin(
    pair="p", target="t", dtype="float32", device="cpu", machine="m", threads=1, versions={"torch": "2"}, weights={}, created="2026"
)
PROMPTS = (Prompt("a", "abc abc abc"), Prompt("a", "hello"), Prompt("b", "one two one two"))


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


def test_the_bootstrap_of_a_median_by_hand():
    # Of 1, 2, 4 the resamples' medians: 1 with 7/27 (three 1s, or two of them), 2 with 13/27, 4 with 7/27.
    found = bootstrap_median([4.0, 1.0, 2.0], level=0.4)
    assert (found.value, found.low, found.high, found.count) == (2.0, 2.0, 2.0, 3)  # 7/27 < 0.3: both bounds are the middle
    assert bootstrap_median([4.0, 1.0, 2.0], level=0.5).low == 1.0  # 7/27 > 0.25
    wide = bootstrap_median([4.0, 1.0, 2.0])
    assert (wide.low, wide.high) == (1.0, 4.0)
    two = bootstrap_median([1.0, 3.0], level=0.4)  # medians 1, 2, 3 with 1/4, 1/2, 1/4
    assert (two.value, two.low, two.high) == (2.0, 2.0, 2.0)
    assert bootstrap_median([5.0]).low == bootstrap_median([5.0]).high == 5.0
    assert bootstrap_median([]) is None


def test_many_values_are_drawn_and_few_are_counted_and_both_agree(monkeypatch):
    values = [1.0, 1.1, 1.3, 1.6, 2.0, 2.1, 2.9]
    counted = bootstrap_median(values, level=0.8)
    monkeypatch.setattr("specdec.measure_stats.EXACT", 3)
    drawn = bootstrap_median(values, level=0.8, seed=1)
    assert (drawn.low, drawn.high) == (counted.low, counted.high) == (1.1, 2.1)
    assert bootstrap_median(values, seed=1) == bootstrap_median(values, seed=1)


def test_percentiles_of_a_histogram():
    buckets = [(0.1, 50.0), (0.2, 90.0), (math.inf, 100.0)]
    assert histogram_quantile(buckets, 0.5) == pytest.approx(0.1)
    assert histogram_quantile(buckets, 0.7) == pytest.approx(0.15)  # 20 of the 40 in the second bucket
    assert histogram_quantile(buckets, 0.99) == 0.2  # beyond the last bound nobody knows
    assert histogram_quantile([(0.1, 0.0)], 0.5) is None


# Figures


@pytest.fixture(scope="module")
def design():
    return Design(pair="tiny", drafters=("draft", "lookup"), draft_lengths=(1, 3), prompts=PROMPTS, repeats=2, new_tokens=10)


@pytest.fixture(scope="module")
def traced(design):
    """A real measurement on two small random models, with the trace of every run: (measurement, {key: trace})."""
    from tiny import make_tiny_pair

    pair = make_tiny_pair(draft=True)
    traces = {}

    def perform(step):
        start = decoding.plain if step.arm == PLAIN else decoding.generate
        trace = start(pair, design.prompts[step.prompts[0]].text, design.settings(step.arm, step.repeat))
        if step.warm_up:
            return RunRecord.of(trace, prompt=99, repeat=0)
        traces[step.key] = trace
        return RunRecord.of(trace, prompt=step.prompts[0], repeat=step.repeat)

    kept = []
    made = carry_out(Measurement(design=design, origin=ORIGIN), perform=perform, keep=kept.append)
    assert list(made.records) == kept
    return made, traces


def test_every_figure_comes_out_again_from_the_traces(traced, design):
    made, traces = traced
    assert made.complete and len(made.records) == 5 * 3 * 2 == design.total
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


def run_record(arm, prompt, seconds, tokens=10, **changes):
    """A made-up run: `tokens` rounds of one token."""
    base = dict(
        drafter=arm.drafter,
        draft_length=arm.draft_length,
        prompt=prompt,
        repeat=0,
        prompt_tokens=3,
        new_tokens=tokens,
        finish_reason="length",
        drafted=40 if arm.drafter else 0,
        judged=20 if arm.drafter else 0,
        accepted=10 if arm.drafter else 0,
        rounds_with_drafts=tokens if arm.drafter else 0,
        seconds_to_first_token=0.1,
        seconds_prefill=0.0,
        seconds_draft=0.2 * seconds if arm.drafter else 0.0,
        seconds_verify=0.8 * seconds,
        seconds_verify_drafts=0.8 * seconds if arm.drafter else 0.0,
        seconds_judge=0.0,
        round_seconds=(seconds / tokens,) * tokens,
        round_tokens=(1,) * tokens,
        text="x",
    )
    return RunRecord(**{**base, **changes})


def made_up(speedups, draft_length=4):
    """A measurement in which prompt i has the speed-up speedups[i]."""
    arm = Arm("head", draft_length)
    prompts = tuple(Prompt("a", str(i)) for i in range(len(speedups)))
    records = [run_record(PLAIN, i, 1.0) for i in range(len(speedups))]
    records += [run_record(arm, i, 1.0 / s) for i, s in enumerate(speedups)]
    design = Design(drafters=("head",), draft_lengths=(draft_length,), prompts=prompts)
    return Measurement(design=design, origin=ORIGIN, records=tuple(records))


@pytest.mark.parametrize(
    ("speedups", "use", "words"),
    [
        ([1.5, 1.4, 1.6, 1.7], True, "use it, head with γ = 4: 1.55× (95 % interval 1.40 to 1.70, 4 prompts)"),
        ([0.8, 0.7, 0.9, 0.85], False, "do not use it: the best was 0.83×"),
        ([0.8, 1.2, 0.9, 1.3], None, "no clear gain"),
        ([1.5, 1.6], None, "too few prompts to decide: 1.55× with head γ = 4 on 2 prompts"),
    ],
)
def test_the_verdict_follows_the_interval(speedups, use, words):
    found = analyse(made_up(speedups)).overall
    assert found.use is use and words in found.sentence, found.sentence


def test_a_lost_case_names_its_cause():
    base = analyse(made_up([0.8, 0.7, 0.9, 0.85])).of("")[1]

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


def test_a_longer_answer_is_no_slower_one():
    made = made_up([1.0, 1.0, 1.0])
    longer = tuple(r if r.arm == PLAIN else run_record(r.arm, r.prompt, 2.0, tokens=20) for r in made.records)
    assert analyse(dataclasses.replace(made, records=longer)).overall.speedup.value == pytest.approx(1.0)


# Requests at once


def batch(arm, at_once, seconds, tokens=800):
    return BatchRecord(
        drafter=arm.drafter,
        draft_length=arm.draft_length,
        repeat=0,
        at_once=at_once,
        requests=8,
        new_tokens=tokens,
        seconds=seconds,
        first_token_seconds=(0.1, 0.3) * 4,
        answer_seconds=(1.0, 2.0) * 4,
        drafted=0,
        judged=10,
        accepted=5,
        target_passes=100,
    )


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


# Order, stop, resume


def test_the_arms_take_turns(design):
    names = [s.arm.name for s in single_steps(design)]
    arms = [a.name for a in design.arms]
    assert names[:5] == arms and names[5:10] == [*arms[1:], arms[0]]
    assert {s.key for s in single_steps(design)} == {(a, p, r, 0) for a in arms for p in range(3) for r in range(2)}


def performer(calls, stop_after=math.inf):
    def perform(step):
        calls.append(step)
        if sum(not s.warm_up for s in calls) > stop_after:
            return None
        if step.at_once:
            return dataclasses.replace(batch(step.arm, step.at_once, 1.0), repeat=step.repeat)
        return run_record(step.arm, step.prompts[0], 1.0, repeat=step.repeat)

    return perform


def test_stopped_and_gone_on_with_is_the_same_as_never_stopped(tmp_path, design):
    design = dataclasses.replace(design, at_once=(1, 2))
    wanted = Measurement(design=design, origin=ORIGIN)
    calls = []
    store = Store(tmp_path / "runs.jsonl", wanted)
    carry_out(store.measurement, perform=performer(calls, stop_after=7), keep=store.keep)
    assert [s.warm_up for s in calls] == [True] * 5 + [False] * 8
    again = Store(tmp_path / "runs.jsonl", wanted)
    assert len(again.measurement.records) == 7  # the eighth was begun and did not end
    calls.clear()
    made = carry_out(again.measurement, perform=performer(calls), keep=again.keep)
    assert made.complete and calls[5].key == single_steps(design)[7].key
    through = carry_out(wanted, perform=performer([]), keep=lambda r: None)
    assert made == through == Store(tmp_path / "runs.jsonl", wanted).measurement
    assert len(made.batches) == 3 * 2 * 2
    calls.clear()
    carry_out(made, perform=performer(calls), keep=again.keep)
    assert calls == []  # nothing is left, so nothing is warmed up


def test_a_stop_between_two_runs_keeps_both(design):
    kept = []
    made = carry_out(
        Measurement(design=design, origin=ORIGIN), perform=performer([]), keep=kept.append, stop=lambda: len(kept) == 2
    )
    assert len(made.records) == 2 and not made.complete


def test_the_time_left_follows_the_pace(design):
    now, left = [0.0], []

    def perform(step):
        now[0] += 2.0
        return performer([])(step)

    carry_out(
        Measurement(design=design, origin=ORIGIN),
        perform=perform,
        keep=lambda r: None,
        progress=lambda p: left.append(p.seconds_left),
        clock=lambda: now[0],
    )
    assert left[:6] == [None] * 6 and left[6] == 2.0 * 29 and left[-1] == 2.0


def test_a_file_that_was_cut_off_loses_the_last_run_only(tmp_path, design):
    wanted = Measurement(design=design, origin=ORIGIN)
    full = dump(wanted.plus(run_record(PLAIN, 0, 1.0)).plus(run_record(PLAIN, 1, 1.0)))
    path = tmp_path / "runs.jsonl"
    path.write_text(full[:-20], encoding="utf-8")
    store = Store(path, wanted)
    assert len(store.measurement.records) == 1
    store.keep(run_record(PLAIN, 1, 3.0))
    assert [r.seconds_total for r in load(path.read_bytes()).runs] == [pytest.approx(1.0), pytest.approx(3.0)]


def test_records_of_two_designs_or_machines_are_not_mixed(tmp_path, design):
    path = tmp_path / "runs.jsonl"
    Store(path, Measurement(design=design, origin=ORIGIN))
    for other, words in [
        (Measurement(design=dataclasses.replace(design, draft_lengths=(2,)), origin=ORIGIN), r"draft lengths \(1, 3\), not \(2,\)"),
        (Measurement(design=design, origin=dataclasses.replace(ORIGIN, device="cuda:0")), "made with device cpu, here cuda:0"),
        (Measurement(design=dataclasses.replace(design, prompts=PROMPTS[:2]), origin=ORIGIN), "its prompts differ"),
    ]:
        with pytest.raises(SettingsError, match=words):
            Store(path, other)


@pytest.mark.parametrize("text", ["", "hello\n", "[1]\n", '{"measurement":2}\n', b"\xff\xfe", '{"measurement":1,"design":{}}\n'])
def test_another_file_is_one_sentence(text):
    with pytest.raises(SettingsError, match="no measurement|damaged"):
        load(text)


def test_a_prompt_may_hold_any_end_of_a_line(design):
    """Text from a web page often has U+2028 in it, and JSON writes that as it is."""
    prompts = (Prompt("a", "one\u2028two\u2029\x85\x0bthree\r\n"), *design.prompts[1:])
    measurement = Measurement(design=dataclasses.replace(design, prompts=prompts), origin=ORIGIN).plus(run_record(PLAIN, 0, 1.0))
    assert load(dump(measurement)) == measurement
    assert len(json.loads(to_json(measurement))["records"]) == 1


def test_a_damaged_record_is_found(design):
    text = dump(Measurement(design=design, origin=ORIGIN).plus(run_record(PLAIN, 0, 1.0)))
    for wrong in (
        text.replace('"new_tokens":10,"finish', '"new_tokens":"10","finish'),
        text.replace('"record":"run"', '"record":"?"'),
        text.replace('"prompt":0', '"prompt":0.0'),
        text.replace('"device":"cpu"', '"device":"\\ud800"'),
    ):
        assert wrong != text
        with pytest.raises(SettingsError, match="damaged"):
            load(wrong)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"drafters": ()}, "No drafter was chosen"),
        ({"draft_lengths": (33,)}, "A draft length is 33"),
        ({"draft_lengths": (2, 2)}, "'2' was chosen twice"),
        ({"repeats": 0}, "repeats is 0"),
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"at_once": (100,)}, "requests at once is 100"),
        ({"requests": 0}, "number of requests is 0"),
    ],
)
def test_a_design_that_cannot_be_is_one_sentence(design, changes, words):
    with pytest.raises(SettingsError, match=words):
        dataclasses.replace(design, **changes)


# On a real pair


def test_memory_is_counted_from_the_shapes(tiny_pair):
    pair = tiny_pair()
    config = pair.target.config
    token = 2 * config.num_hidden_layers * config.num_key_value_heads * (config.hidden_size // config.num_attention_heads) * 4
    assert cache_bytes(pair.target) == token
    sequence = pair.target.open()
    sequence.forward([1, 2, 3, 4, 5])
    alone, both = memory_of(pair, "lookup", tokens=5), memory_of(pair, "draft", tokens=5)
    assert alone.cache == 5 * token and alone.weights == 4 * pair.target.parameters
    assert both.cache == alone.cache + 5 * cache_bytes(pair.draft) and both.weights == alone.weights + 4 * pair.draft.parameters
    assert alone.peak > alone.weights


def test_requests_at_once_are_measured_as_they_were_decoded(tiny_pair):
    pair = tiny_pair()
    design = Design(
        pair="tiny",
        drafters=("draft",),
        draft_lengths=(2, AUTO),
        prompts=PROMPTS,
        new_tokens=8,
        at_once=(1, 3),
        requests=5,
    )
    made = carry_out(begin(pair, design), perform=perform_on(pair, design), keep=lambda r: None)
    assert made.complete and len(made.batches) == 2 * 2
    singles = {r.prompt: r for r in made.runs if r.arm == PLAIN}
    wanted = [singles[i].new_tokens for i in (0, 2, 1, 0, 2)]  # the kinds in turns
    for record in made.batches:
        assert record.requests == 5 and record.new_tokens == sum(wanted)
        assert len(record.answer_seconds) == 5 and max(record.answer_seconds) <= record.seconds + 1e-6
        assert all(first <= answer for first, answer in zip(record.first_token_seconds, record.answer_seconds, strict=True))
        assert record.tokens_per_second == record.new_tokens / record.seconds
    alone, three = (next(r for r in made.batches if r.arm == PLAIN and r.at_once == n) for n in (1, 3))
    assert alone.target_passes == sum(wanted) and three.target_passes < alone.target_passes
    assert sum(alone.answer_seconds) == pytest.approx(alone.seconds, rel=0.05) and three.memory.cache > alone.memory.cache


def test_auto_is_an_arm_of_its_own(tiny_pair):
    arm = Arm("draft", AUTO)
    design = Design(pair="tiny", drafters=("draft",), draft_lengths=(AUTO,), prompts=PROMPTS, new_tokens=6)
    assert arm.name == "draft γ = auto" and design.settings(arm).adaptive and not design.settings(PLAIN).adaptive
    made = carry_out(begin(tiny_pair(), design), perform=perform_on(tiny_pair(), design), keep=lambda r: None)
    assert {r.arm for r in made.runs} == {PLAIN, arm} and made.complete
    assert load(dump(made)) == made


def test_a_run_that_is_stopped_leaves_no_record(tiny_pair, design):
    pair = tiny_pair()
    asked = []

    def stop():
        asked.append(1)
        return len(asked) > 60

    made = carry_out(begin(pair, design), perform=perform_on(pair, design, stop=stop), keep=lambda r: None, stop=stop)
    assert not made.complete and all(r.finish_reason != "stopped" for r in made.runs)


def test_the_report_stands_alone_and_shows_somebodys_text_as_text(design):
    wicked = Prompt("<b>kind</b>", "</pre><script>alert(1)</script>")
    made = made_up([1.5, 1.4, 1.6, 1.7])
    made = dataclasses.replace(made, design=dataclasses.replace(made.design, prompts=(wicked, *made.design.prompts[1:])))
    page = measure_report.to_html(made, price=2.0)
    assert "For one request at a time, greedy" in page
    assert "<script" not in page and "&lt;script&gt;" in page and "<b>kind" not in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert "use it, head with γ = 4" in page and "torch 2" in page and "cpu" in page
    data = json.loads(measure_report.to_json(made))
    assert data["design"]["draft_lengths"] == [4] and len(data["records"]) == 8 and data["origin"]["versions"] == {"torch": "2"}
    rows = measure_report.to_csv(measure_tables.records(made)).splitlines()
    assert len(rows) == 9 and rows[0].startswith("record,arm,drafter,draft_length,kind,prompt")
    assert "'=1+1" in measure_report.to_csv([{"kind": "=1+1"}])


def test_on_the_command_line_with_a_bad_row_and_again(tmp_path, monkeypatch, capsys, tiny_pair):
    from specdec import cli, models

    monkeypatch.setattr(models, "load_pair", lambda *a, **k: tiny_pair())
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"kind": "code", "prompt": "abc abc"}\n{"kind": "code"}\n{"prompt": "hello"}\n', encoding="utf-8")
    command = ["measure", "--out", str(tmp_path / "out"), "--prompts", str(tasks), "--draft-lengths", "2", "--new-tokens", "6"]
    command += ["--drafter", "lookup"]
    assert cli.main(command) == 0
    said = capsys.readouterr()
    assert 'Line 2 of tasks.jsonl was left out: it has no text under "prompt".' in said.err
    assert "too few prompts to decide" in said.out and "lookup γ = 2" in said.out
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"runs.jsonl", "report.html", "report.csv", "report.json"}
    assert cli.main(command) == 0
    assert "4 of 4 records are there already" in capsys.readouterr().err
    assert cli.main([*command, "--repeats", "2"]) == 2
    assert "holds another measurement (repeats 1, not 2)" in capsys.readouterr().err


def test_what_the_verdicts_hold_for_is_said(design):
    measurement = Measurement(design=design, origin=ORIGIN)
    for prompt in range(3):
        measurement = measurement.plus(run_record(PLAIN, prompt, 1.0))
    assert "not measured: measure them before you decide for a server" in measure_report.conditions(measurement, analyse(measurement))
    arm = Arm("head", 4)
    loaded = dataclasses.replace(measurement, design=dataclasses.replace(design, at_once=(1, 2, 8)))  # stopped before there were two
    for record in (batch(PLAIN, 1, 8.0), batch(arm, 1, 4.0), batch(PLAIN, 8, 2.0), batch(arm, 8, 2.5)):
        loaded = loaded.plus(record)
    said = measure_report.conditions(loaded, analyse(loaded))
    assert "1 at once 2.00× (head γ = 4); 8 at once 0.80× (head γ = 4): the best throughput" in said and "from 1 turn, " in said
