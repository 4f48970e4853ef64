"""A measurement before adopting it: its order, stop and resume, its files, its report, and what is measured on a real pair."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from made_up_measurements import DESIGN, ORIGIN, PROMPTS, batch, made_up, run_record

from specdec import measure_report, measure_tables
from specdec.errors import SettingsError
from specdec.measure import Design, Measurement, carry_out, single_steps
from specdec.measure_analysis import analyse
from specdec.measure_device import begin, cache_bytes, memory_of, perform_on
from specdec.measure_records import AUTO, PLAIN, Arm
from specdec.measure_report import to_json
from specdec.measure_store import Store, dump, load
from specdec.prompt_sets import Prompt


@pytest.fixture(scope="module")
def design():
    return DESIGN


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
    "changes",
    [
        {"judged": 0, "accepted": 0},  # a round with drafts judges the first of them
        {"judged": 41},
        {"seconds_verify": 5e-324},
        {"seconds_verify_drafts": 1e-300},
        {"round_seconds": (0.0,) * 10},
        {"rounds_with_drafts": 11},
    ],
)
def test_a_record_that_cannot_have_been_is_found(design, changes):
    whole = Measurement(design=design, origin=ORIGIN)
    sound = run_record(Arm("draft", 1), 0, 1.0)
    assert load(dump(whole.plus(sound))).runs == (sound,)
    with pytest.raises(SettingsError, match="damaged"):
        load(dump(whole.plus(dataclasses.replace(sound, **changes))))


@pytest.mark.parametrize(
    "changes",
    [
        {"accepted": 11},
        {"seconds": 0.0},
        {"seconds": -1.0},
        {"at_once": 0},
        {"new_tokens": 0},
        {"requests": 7},
        {"answer_seconds": (1.0,) * 7},
        {"first_token_seconds": ("1",) * 8},
        {"judged": True},
        {"repeat": 1e15},
    ],
)
def test_a_damaged_record_of_several_requests_is_found(design, changes):
    whole = Measurement(design=dataclasses.replace(design, at_once=(8,)), origin=ORIGIN)
    sound = batch(Arm("draft", 1), 8, 2.0)
    assert load(dump(whole.plus(sound))).batches == (sound,)
    with pytest.raises(SettingsError, match="damaged"):
        load(dump(whole.plus(dataclasses.replace(sound, **changes))))


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
    made = made_up([1.5, 1.4, 1.6, 1.7, 1.3, 1.8])
    made = dataclasses.replace(made, design=dataclasses.replace(made.design, prompts=(wicked, *made.design.prompts[1:])))
    page = measure_report.to_html(made, price=2.0)
    assert "For one request at a time, greedy" in page
    assert "<script" not in page and "&lt;script&gt;" in page and "<b>kind" not in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert "use it, head with γ = 4" in page and "torch 2" in page and "cpu" in page
    data = json.loads(measure_report.to_json(made))
    assert data["design"]["draft_lengths"] == [4] and len(data["records"]) == 12 and data["origin"]["versions"] == {"torch": "2"}
    rows = measure_report.to_csv(measure_tables.records(made)).splitlines()
    assert len(rows) == 13 and rows[0].startswith("record,arm,drafter,draft_length,kind,prompt")
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
