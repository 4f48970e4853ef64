"""The benchmark: turns, paired ratios and medians with right values by hand, and the arms of transformers on our own draft."""

from __future__ import annotations

import json

import pytest
import torch

from specdec import bench
from specdec.bench import HALF_TRACED, Arm, Sample, Spread, Timed, half_traced, measure, paired, report, speed
from specdec.bench_cli import PROMPTS, read_prompts, table
from specdec.draft_runner import SmallDraftRunner
from specdec.errors import SettingsError
from specdec.reduced import TargetTables
from specdec.small_draft import DraftShape, SmallDraft


def test_arms_take_turns_and_the_first_turn_is_not_counted():
    calls = []

    def arm(name):
        return Arm(name, lambda prompt: (calls.append((name, prompt)), Timed(1.0, 0.5, [1, 2]))[1])

    samples = measure([arm("a"), arm("b"), arm("c")], ["x", "y"], repeats=2)
    assert calls[:3] == [("a", "x"), ("b", "x"), ("c", "x")]  # warming up
    assert [name for name, _ in calls[3:]] == list("abc" "bca" "bca" "cab")
    assert len(samples) == 12 and {(s.prompt, s.repeat) for s in samples} == {(0, 0), (1, 0), (0, 1), (1, 1)}


def test_a_stop_keeps_what_was_measured():
    kept = []
    arm = Arm("a", lambda prompt: Timed(1.0, 0.5, [1]))
    measure([arm], ["x"] * 5, stop=lambda: len(kept) >= 2, into=kept)
    assert len(kept) == 2


def test_ratios_are_formed_turn_by_turn_before_the_median_is_taken():
    def sample(arm, prompt, seconds):
        return Sample(arm=arm, prompt=prompt, repeat=0, seconds=seconds, seconds_to_first_token=0.1, output_ids=(1,) * 10)

    # The second turn was slow for both: 10 tokens in 20 s against 10 s, the same ratio as in the first.
    samples = [sample("a", 0, 1.0), sample("b", 0, 2.0), sample("a", 1, 10.0), sample("b", 1, 20.0), sample("a", 2, 5.0)]
    assert paired(samples, "a", "b", speed) == [2.0, 2.0]
    assert Spread.of([4.0, 1.0, 3.0, 2.0]) == Spread(2.5, 1.75, 3.25, 4)
    assert Spread.of([7.0]) == Spread(7.0, 7.0, 7.0, 1)
    assert Spread.of([]) is None


@pytest.fixture(scope="module")
def small_report():
    from tests.tiny import make_tiny_pair

    pair = make_tiny_pair(draft=True)
    prompts = ["abc abc abc", "hello"]
    arms = bench.our_arms(pair, new_tokens=12, draft_length=3)
    samples = measure(arms, prompts, repeats=1)
    return pair, samples, report(pair, samples, prompts, new_tokens=12, draft_length=3)


def test_every_arm_makes_the_same_number_of_tokens_and_the_same_greedy_text(small_report):
    pair, samples, result = small_report
    assert {len(s.output_ids) for s in samples} == {12}  # no end-of-text token stops an arm
    assert result.differing == {}
    assert set(result.tokens_per_second) == {"plain", *pair.drafters, pair.drafters[0] + HALF_TRACED, "plain, whole prompt"}
    for name in pair.drafters:
        expected = sorted(paired(samples, name, "plain", speed))
        assert result.ratios[f"{name} / plain"].median == pytest.approx(sum(expected) / 2)


def test_the_report_travels_as_json_and_reads_as_a_table(small_report):
    result = small_report[2]
    data = json.loads(json.dumps(result.to_dict()))
    assert data["new_tokens"] == 12 and len(data["samples"]) == len(result.samples)
    text = table(result)
    assert "a round with its trace / without" in text and "plain" in text and "passes of the target" in text


def test_what_the_trace_costs_is_told_by_rounds_in_turns(monkeypatch):
    """On a clock that goes on by 10 in a round and by 3 more where it is recorded."""
    from specdec import decoding, recorder
    from specdec.trace import Settings
    from tests.tiny import make_tiny_pair

    clock = [0.0]
    monkeypatch.setattr(bench.time, "perf_counter", lambda: clock[0])
    describe, steps = recorder.Recorder.describe, decoding.Run.steps

    def slow(self, *given, **named):
        clock[0] += 3.0 if self.full else 0.0
        return describe(self, *given, **named)

    def stepped(self):
        clock[0] += 10.0 if self.rounds else 500.0  # the first one has the prompt in it
        return (yield from steps(self))

    monkeypatch.setattr(recorder.Recorder, "describe", slow)
    monkeypatch.setattr(decoding.Run, "steps", stepped)
    settings = Settings(drafter="draft", draft_length=2, max_new_tokens=24)
    found = half_traced(make_tiny_pair(draft=True), "abc abc", settings)
    assert found.trace_cost == pytest.approx(1.3) and len(found.output_ids) == 24
    short = half_traced(make_tiny_pair(draft=True), "abc abc", settings.replace(max_new_tokens=1))
    assert short.trace_cost is None  # no full round to compare


def test_the_measured_speed_up_is_held_against_the_formula_with_its_own_numbers(small_report):
    _, samples, _ = small_report
    ratios = bench.prediction_ratios(samples, "draft")
    assert ratios and all(0.2 < r < 3 for r in ratios)


def test_a_text_that_differs_is_reported():
    def sample(arm, ids):
        return Sample(arm=arm, prompt=0, repeat=0, seconds=1.0, seconds_to_first_token=0.1, output_ids=ids)

    assert bench._differing([sample("plain", (1, 2)), sample("x", (1, 3)), sample("y", (1, 2))], ["plain", "x", "y"]) == {
        "x": "1 of 1 prompts"
    }


def test_our_draft_model_says_the_same_in_the_classes_of_transformers():
    from specdec.bench_hf import as_assistant

    torch.manual_seed(0)
    network = SmallDraft(DraftShape(layers=2, width=32, heads=4, groups=2, inner=48, theta=10_000.0)).eval()
    for weight in network.parameters():
        weight.data = torch.rand_like(weight) + 0.5 if weight.ndim == 1 else torch.randn_like(weight) * weight.shape[1] ** -0.5
    tables = TargetTables(torch.randn(80, 32), torch.ones(32), 3, 256)
    runner = SmallDraftRunner(network, tables, torch.tensor([2, 3, 5, 7, 11, 13, 17, 79]))
    ids = [3, 1, 4, 15, 9, 26, 5]
    ours = runner.open().forward(ids)
    with torch.inference_mode():
        theirs = as_assistant(runner)(input_ids=torch.tensor([ids])).logits[0]
    kept = runner.reduced.ids
    torch.testing.assert_close(theirs[:, kept], ours[:, kept], atol=1e-4, rtol=1e-4)
    assert (theirs.softmax(-1)[:, torch.isinf(ours[0])] == 0).all()


def test_in_those_classes_it_is_all_on_the_device_of_its_weights():
    """On "meta", the other device that every machine has."""
    from specdec.bench_hf import as_assistant

    network = SmallDraft(DraftShape(layers=2, width=32, heads=4, groups=2, inner=48, theta=10_000.0)).eval()
    runner = SmallDraftRunner(network, TargetTables(torch.randn(80, 32), torch.ones(32), 3, 256), torch.tensor([2, 3, 5, 7]))
    layers, rows = runner.matrices()
    runner.matrices = lambda: ([[part.to("meta") for part in layer] for layer in layers], rows.to("meta"))
    runner.embedding = runner.embedding.to("meta")
    model = as_assistant(runner)
    on = {name: str(part.device) for name, part in (*model.named_parameters(), *model.named_buffers())}
    assert set(on.values()) == {"meta"}, on


@pytest.mark.slow
def test_the_arms_of_transformers_decode_what_we_decode(embedded_folder, embedded_pair):
    from specdec.bench_hf import hf_arms
    from specdec.loading import load_model

    model = load_model(embedded_folder, device=torch.device("cpu"), dtype="float32", name="target")
    arms = hf_arms(model, lambda p: embedded_pair.encode(p, raw=False), new_tokens=16, draft_length=3)
    ours = bench.our_arms(embedded_pair, new_tokens=16, draft_length=3, drafters=["lookup"])
    texts = {arm.name: tuple(arm.run("Why is the sky blue?")[2]) for arm in [*arms, *ours]}
    assert len(set(texts.values())) == 1


def test_the_shipped_prompts_are_eight_kinds_of_six_and_come_in_turns():
    rows = [json.loads(line) for line in PROMPTS.read_text(encoding="utf-8").splitlines()]
    kinds = [row["kind"] for row in rows]
    assert {kind: kinds.count(kind) for kind in kinds} == dict.fromkeys(
        ["chat", "explain", "summarise", "rewrite", "code", "arithmetic", "translate", "story"], 6
    )
    first = read_prompts(PROMPTS, 8)
    assert len({kind for kind, row in zip(kinds, rows, strict=True) if row["prompt"] in first}) == 8


def test_a_broken_prompt_file_is_one_sentence(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"kind": "a", "prompt": "x"}\n{broken\n')
    with pytest.raises(SettingsError, match="cannot be read"):
        read_prompts(path, 3)
