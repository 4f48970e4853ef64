"""Ballast costs what weights cost and changes nothing: every logit stays what it was, to the last bit."""

from __future__ import annotations

import pytest
import torch
from families import build
from tiny import make_model, make_tokenizer

from specdec import Settings, bench, bench_cli
from specdec.ballast import add_ballast, carry, load_ballast_pair
from specdec.decoding import generate, plain
from specdec.errors import ModelError, SettingsError
from specdec.llama import LlamaRunner, fastest_runner
from specdec.models import make_pair
from specdec.runner import Runner
from specdec.static_runner import StaticRunner

TEXT = [5, 17, 3, 44, 60, 9, 9, 31, 2, 70]
RUNNERS = {"eager": Runner, "static": StaticRunner, "lean": fastest_runner}


@pytest.mark.parametrize("kind", RUNNERS)
@pytest.mark.parametrize("family", ["llama", "qwen3", "llama 3 rotary"])
def test_logits_are_the_same_to_the_last_bit(family, kind, tmp_path):
    light, heavy = build(family), build(family)
    before = sum(p.numel() for p in heavy.parameters())
    places = add_ballast(heavy, 200_000, layers=3)
    added = sum(p.numel() for p in heavy.parameters()) - before
    assert 180_000 <= added <= 200_000 and heavy.model.layers[2].mlp.down_proj.weight.shape[1] % 64 == 0
    assert places == (0, 1, 3, 5, 7) and heavy.config.num_hidden_layers == 7
    kept = {"kernel_cache": tmp_path / "kernels.json"} if kind == "lean" else {}  # other kernels round otherwise
    runners = RUNNERS[kind](light, **kept), RUNNERS[kind](heavy, **kept)
    if kind == "lean" and family != "llama 3 rotary":
        assert isinstance(runners[1], LlamaRunner)
    assert (runners[0].layers, runners[1].layers) == (4, 7)
    found = []
    for runner, taps in zip(runners, ((0, 2, 4), (0, 3, 7)), strict=True):
        sequence = runner.open(hidden_layers=taps)
        logits = [sequence.forward(TEXT[:6]), sequence.forward(TEXT[6:])]
        sequence.crop(8)
        logits.append(sequence.forward(TEXT[8:]))
        found.append((torch.cat(logits), sequence.hidden))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


def test_it_really_takes_part():
    """With output projections that are not zero, it does change something."""
    model = build("llama")
    wanted = Runner(model).open().forward(TEXT)
    add_ballast(model, 200_000, layers=3)
    model.model.layers[2].mlp.down_proj.weight.data.normal_()
    assert (Runner(model).open().forward(TEXT) - wanted).abs().max() > 0.1


def heavy_pair():
    tokenizer = make_tokenizer()
    models = [make_model("llama", vocabulary=len(tokenizer), layers=3, seed=0) for _ in range(2)]
    draft = make_model("llama", vocabulary=len(tokenizer), layers=1, width=16, seed=1)
    light = make_pair(models[0], tokenizer, draft=draft, name="tiny", title="tiny", target_name="tiny", measure=False)
    places = add_ballast(models[1], 100_000, layers=2)
    return light, carry(light, models[1], places, label="0.0001 billion parameters of ballast")


def test_a_run_is_the_same_and_its_trace_names_the_ballast():
    light, heavy = heavy_pair()
    for settings in (
        Settings(raw=True, max_new_tokens=20),
        Settings(raw=True, max_new_tokens=20, temperature=1.0, drafter="draft"),
    ):
        a, b = generate(light, "The cat", settings), generate(heavy, "The cat", settings)
        assert a.output_ids == b.output_ids
        assert [d.p for r in a.rounds for d in r.drafts] == [d.p for r in b.rounds for d in r.drafts]
    for text in (b.pair.name, b.pair.target, heavy.title):
        assert "0.0001 billion parameters of ballast" in text
    assert b.pair.target_parameters > a.pair.target_parameters + 90_000
    assert (
        plain(heavy, "The cat", Settings(raw=True, max_new_tokens=20)).output_ids
        == plain(light, "The cat", Settings(raw=True, max_new_tokens=20)).output_ids
    )


def test_what_cannot_carry_ballast_says_so():
    with pytest.raises(ModelError, match="GPT2LMHeadModel cannot carry ballast"):
        add_ballast(build("gpt2"), 100_000)
    with pytest.raises(ModelError, match="too few for 10 extra layers"):
        add_ballast(build("llama"), 1000)
    for billions in (0, -1, 1e9):
        with pytest.raises(SettingsError, match="billion parameters: take more than 0"):
            load_ballast_pair(billions)


def test_the_benchmark_takes_it_and_names_it(monkeypatch, capsys, tmp_path):
    _, heavy = heavy_pair()
    asked = []
    monkeypatch.setattr("specdec.ballast.load_ballast_pair", lambda billions, **rest: (asked.append((billions, rest)), heavy)[1])
    monkeypatch.setattr(bench, "pass_times", lambda *args, **rest: {"1": 1.0})
    options = ["--ballast", "0.5", "--no-hf", "--prompts", "1", "--new-tokens", "4", "--repeats", "1", "--device", "cpu"]
    assert bench_cli.main([*options, "--json", str(tmp_path / "b.json")]) == 0
    assert asked[0][0] == 0.5 and asked[0][1]["device"] == "cpu"
    assert "tiny with 0.0001 billion parameters of ballast" in capsys.readouterr().out
    assert "ballast" in (tmp_path / "b.json").read_text()
