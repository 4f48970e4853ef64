"""The self-check passes on what is right, fails on what is wrong, and says which; on the CPU with small pairs."""

from __future__ import annotations

import dataclasses
import json
import warnings
from types import SimpleNamespace

import pytest
import torch
from families import related_pair
from tiny import make_model

from specdec import cli, decoding, drafters, selfcheck, selfcheck_cli, selfcheck_cuda
from specdec.llama import LlamaSequence
from specdec.selfcheck import Check, Subject


@pytest.fixture(scope="module")
def pair():
    return dataclasses.replace(related_pair(), plain_step_seconds=0.002, eos_ids=frozenset())


def subject(pair, *, time=4.0):
    return Subject(pair, lambda: make_model("llama", vocabulary=pair.vocabulary, layers=3, seed=0), time=time)


def failures(checks):
    return [check.name for check in checks if check.passed is False]


def test_a_pair_that_is_right_passes_every_check(pair):
    titles = []
    checks = list(selfcheck.run(subject(pair), name=titles.append))
    assert failures(checks) == []
    by_name = {check.name: check for check in checks}
    passed = {name for name, check in by_name.items() if check.passed}
    for drafter in pair.drafters:
        assert {f"greedy text, {drafter}", f"sampled tokens, {drafter}"} <= passed
        assert by_name[f"speed, {drafter}"].figures["tokens_per_second"] > 0
    assert {"passes against eager ones", "passes of fixed shapes against eager ones"} <= passed
    assert by_name["launches a round"].found == "not applicable: no GPU"
    assert by_name["sampled tokens, draft"].figures["runs"] >= 60
    assert len(titles) >= 8 and all(check.seconds >= 0 for check in checks)


def test_another_model_in_the_targets_place_is_noticed(pair):
    wrong = dataclasses.replace(subject(pair), reference=lambda: make_model("llama", vocabulary=pair.vocabulary, layers=3, seed=9))
    checks = list(selfcheck.passes_agree(wrong))
    assert failures(checks) == ["passes against eager ones"]


def test_a_cache_that_does_not_roll_back_is_noticed(pair, monkeypatch):
    monkeypatch.setattr(LlamaSequence, "crop", lambda self, length: None)
    found = subject(pair)
    assert failures(selfcheck.passes_agree(found)) == ["passes against eager ones"]
    found.rounding = 0.0
    assert failures(selfcheck.greedy_identity(found, "early-exit")) == ["greedy text, early-exit"]


def test_a_greedy_text_may_part_only_at_a_tie(pair, monkeypatch):
    """A judge that takes the second best token: the gap is what its tokens lead by, not rounding."""
    real = decoding.judge

    def second_best(proposal, *, logits, **rest):
        logits = logits.clone()
        logits[-1, logits[-1].argmax()] = float("-inf")
        return real(proposal, logits=logits, **rest)

    found = subject(pair)
    right = decoding.plain(pair, selfcheck.PROMPTS[0], decoding.Settings(max_new_tokens=24))
    monkeypatch.setattr(decoding, "judge", lambda proposal, **rest: (second_best if proposal.ids else real)(proposal, **rest))
    (check,) = selfcheck.greedy_identity(found, "draft")
    assert check.passed is False and "differ where the best leads by" in check.found
    found.rounding = check.figures["gap"]  # passes that round as badly as that would explain it
    (check,) = selfcheck.greedy_identity(found, "draft")
    assert check.passed and check.figures["ties"] >= 1
    assert right.output_ids  # the plain text is what it was


def test_a_drafter_that_lies_about_q_is_noticed(pair, monkeypatch):
    real = drafters.pick

    def flat(logits, request):
        token, u, q = real(logits, request)
        return token, u, torch.full_like(q, 1 / q.numel())

    monkeypatch.setattr(drafters, "pick", flat)
    (check,) = selfcheck.sampled_law(subject(pair, time=30.0), "draft")
    assert check.passed is False and check.figures["p"] < 1e-4


def test_a_check_that_breaks_has_failed_and_the_others_are_made(pair, monkeypatch):
    def broken(subject):
        raise RuntimeError("no memory\nmore")
        yield

    monkeypatch.setattr(selfcheck, "passes_agree", broken)
    monkeypatch.setattr(selfcheck, "sampled_law", lambda subject, drafter: iter([Check("sampled", True, "")]))
    monkeypatch.setattr(selfcheck, "greedy_identity", lambda subject, drafter: iter([Check("greedy", True, "")]))
    monkeypatch.setattr(selfcheck, "speed", lambda subject: iter([]))
    checks = list(selfcheck.run(subject(pair)))
    assert failures(checks) == ["passes of all sizes"]
    assert "broke: RuntimeError: no memory" in next(c.found for c in checks if c.passed is False)
    assert checks[-1].name == "launches a round"


@pytest.fixture
def told(pair, monkeypatch):
    """The command line over canned checks; what they are can be set."""
    made = []
    monkeypatch.setattr("specdec.models.load_pair", lambda *args, **rest: pair)
    monkeypatch.setattr(selfcheck, "run", lambda subject, name: iter(made))
    return made


def test_the_command_prints_a_table_and_writes_json(told, capsys, tmp_path):
    told += [Check("one", True, "fine", "good"), Check("two", None, "7 tokens/s", figures={"tokens_per_second": 7.0})]
    place = tmp_path / "s.json"
    assert cli.main(["selfcheck", "--device", "cpu", "--json", str(place)]) == 0
    out = capsys.readouterr().out
    assert "1 passed, 0 failed" in out and "fine (good)" in out
    report = json.loads(place.read_text())
    assert report["failed"] == [] and report["complete"] and report["checks"][1]["figures"] == {"tokens_per_second": 7.0}
    assert report["device"] == "cpu" and report["versions"]["torch"]


def test_a_failed_check_is_exit_code_1(told, capsys):
    told += [Check("one", True, ""), Check("two", False, "bad", "good")]
    assert cli.main(["selfcheck"]) == 1
    assert "1 passed, 1 failed" in (out := capsys.readouterr().out) and out.rstrip().endswith(": two")


def test_an_interrupt_keeps_what_was_found(told, monkeypatch, tmp_path):
    def interrupted(subject, name):
        yield Check("one", True, "")
        raise KeyboardInterrupt

    monkeypatch.setattr(selfcheck, "run", interrupted)
    assert selfcheck_cli.main(["--json", str(tmp_path / "s.json")]) == 130
    report = json.loads((tmp_path / "s.json").read_text())
    assert not report["complete"] and len(report["checks"]) == 1


@pytest.mark.parametrize(("options", "words"), [(["--ballast", "0"], "above 0"), (["--json", "/no/such/folder/x"], "--json")])
def test_what_cannot_be_used_is_one_sentence(options, words, told, capsys):
    assert cli.main(["selfcheck", *options]) == 2
    assert words in capsys.readouterr().err


def test_waits_are_counted_as_torch_reports_them(monkeypatch):
    """The counting itself; that torch reports waits is for CUDA to show."""
    modes = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)

    def rounds():
        for _ in range(2):
            warnings.warn("called a synchronizing CUDA operation", stacklevel=1)
        warnings.warn("something else", stacklevel=1)
        yield

    assert selfcheck_cuda._waits(rounds()) == 2
    assert modes == ["warn", "default"]


def test_what_rounding_could_spoil_is_checked_in_float32(pair, monkeypatch):
    """Two logits within a step of bfloat16 change places with the shape of a pass, and with them which tokens top-k keeps."""
    coarse = dataclasses.replace(pair, dtype="bfloat16")
    names = [check.name for check in selfcheck.run(subject(coarse))]
    assert any(name.startswith("greedy text") for name in names) and not any("sampled" in name for name in names)
    titles = []
    fine = {check.name: check.passed for check in selfcheck.in_float32(subject(pair), name=titles.append)}
    assert fine["sampled tokens, draft, float32"] and fine["greedy text, draft, float32"]
    assert all(name.endswith(", float32") for name in (*fine, *titles))


@pytest.mark.parametrize(("step", "floor", "passed"), [(0.024, 0.02, True), (0.026, 0.02, False), (0.026, 1e-4, None)])
def test_a_plain_step_has_a_limit_where_reading_the_weights_takes_long(pair, monkeypatch, step, floor, passed):
    model = make_model("llama", vocabulary=16, layers=1)
    size = 4 * sum({p.data_ptr(): p.numel() for p in model.parameters()}.values())
    monkeypatch.setattr(selfcheck_cuda, "copy_bandwidth", lambda device: size / floor)
    monkeypatch.setattr(selfcheck_cuda, "plain_step", lambda pair: step)
    holder = SimpleNamespace(device="cuda", target=SimpleNamespace(model=model))
    check = selfcheck_cuda.memory_floor(holder, limit=1.25)
    assert check.passed is passed and check.figures["ratio"] == pytest.approx(step / floor)
