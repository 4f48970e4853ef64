"""A target over several devices decodes what the whole one decodes, and what cannot be had is said before anything is loaded.

There is one device here: layouts over several are made of the CPU, the disk and two processes, and none of it says anything about
speed on GPUs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from specdec import cli, placement
from specdec.decoding import generate
from specdec.errors import ModelError, SettingsError
from specdec.models import load_pair
from specdec.runner import Runner
from specdec.trace import Settings

CPU, CUDA = torch.device("cpu"), torch.device("cuda:0")
SAMPLED = Settings(temperature=1.0, seed=3, max_new_tokens=16, drafter="draft")
ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("split", "device", "gpus", "words"),
    [
        ("rows", CPU, 0, "take layers or tensors"),
        ("layers", CPU, 0, "torch shows 0 here: leave --split out"),
        ("layers", CUDA, 1, "torch shows 1 here"),
        ("tensors", CPU, 0, "torchrun --nproc-per-node 2"),
    ],
)
def test_a_split_that_is_impossible_here_is_refused(split, device, gpus, words, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(SettingsError, match=words):
        placement.check(split, device)


def test_a_split_that_is_possible_is_let_through(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    placement.check("layers", CUDA)
    monkeypatch.setenv("WORLD_SIZE", "2")
    placement.check("tensors", CUDA)
    placement.check("", CPU)


def test_a_pair_is_refused_before_it_is_loaded(saved, monkeypatch):
    monkeypatch.setattr("specdec.models.load_model", lambda *a, **k: pytest.fail("loaded"))
    with pytest.raises(SettingsError, match="at least two GPUs"):
        load_pair(target=str(saved / "target"), device="cpu", split="layers")


PLACES = {"model.embed_tokens": "cpu", "model.rotary_emb": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk"}
PLACES |= {"model.norm": "cpu", "lm_head": "cpu"}


@pytest.fixture
def laid_out(monkeypatch, tmp_path):
    """Targets are laid out over two places of this machine, memory and disk, as accelerate does it over GPUs."""
    monkeypatch.setattr(placement, "check", lambda split, device: None)
    places = {"device_map": PLACES, "offload_folder": str(tmp_path)}
    monkeypatch.setattr(placement, "arguments", lambda split, device: places if split else {})


def test_a_target_that_accelerate_lays_out_decodes_what_the_whole_one_does(saved, laid_out, monkeypatch):
    folders = {"target": str(saved / "target"), "draft": str(saved / "draft"), "device": "cpu"}
    whole = generate(load_pair(**folders), "Hello there", SAMPLED)
    monkeypatch.setattr(placement, "check_placed", lambda model, split, name: None)
    pair = load_pair(**folders, split="layers")
    assert type(pair.target) is Runner and set(pair.target.model.hf_device_map.values()) == {"cpu", "disk"}
    assert "its layers on 2 devices, without CUDA graphs" in pair.device_name
    trace = generate(pair, "Hello there", SAMPLED)
    assert trace.output_ids == whole.output_ids and trace.totals.accepted == whole.totals.accepted


def test_a_target_with_a_part_outside_the_gpus_is_refused(saved, laid_out):
    with pytest.raises(ModelError, match="does not fit into the GPUs of this machine, a part of it would stay on disk"):
        load_pair(target=str(saved / "target"), device="cpu", split="layers")


def test_a_family_without_a_plan_is_refused_for_tensors():
    with pytest.raises(ModelError, match="no plan to share out the matrices of this: take --split layers"):
        placement.check_placed(SimpleNamespace(tp_size=None), "tensors", name="this")


def test_a_split_target_is_run_eagerly_and_its_traces_say_so(saved):
    from specdec.llama import fastest_runner
    from specdec.loading import load_model

    model = load_model(saved / "target", name="target", device=CPU, dtype="float32")
    assert placement.note(model) == "" and type(fastest_runner(model)) is not Runner  # whole: the lean runner
    model._tp_size = 4  # what transformers sets when it has cut the matrices
    runner = fastest_runner(model)
    assert type(runner) is Runner and runner.note == "its matrices shared out over 4 devices, without CUDA graphs"


def test_layers_on_several_devices_are_counted():
    parameters = [torch.nn.Parameter(torch.zeros(1, device=place)) for place in ("cpu", "meta", "cpu")]
    model = SimpleNamespace(parameters=lambda: parameters)
    assert placement.note(model) == "its layers on 2 devices, without CUDA graphs"


def test_the_memory_of_all_gpus_counts_for_layers(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(placement, "free_memory", lambda device: 10 + (device.index or 0))
    assert placement.room("layers", CUDA) == 10 + 11 + 12
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert placement.room("tensors", CUDA) == 40


def test_a_draft_length_by_measured_times_does_not_go_with_several_processes(capsys):
    assert cli.main(["run", "x", "--split", "tensors", "--draft-length", "auto"]) == 2
    assert "give a number" in capsys.readouterr().err


@pytest.mark.slow  # two processes that import torch
def test_two_processes_share_the_matrices_and_decode_what_one_does(saved):
    options = ["run", "Hello there", "--target", str(saved / "target"), "--draft", str(saved / "draft"), "--device", "cpu"]
    options += ["--json", "--temperature", "1", "--seed", "3", "--max-new-tokens", "16"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

    def made(*before: str, after: tuple[str, ...] = ()) -> dict:
        command = [sys.executable, *before, "-m", "specdec", *options, *after]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout[done.stdout.index("{") :])

    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
    whole, shared = made(), made(*torchrun, after=("--split", "tensors"))
    assert shared["output_text"] == whole["output_text"] and shared["accepted"] == whole["accepted"]
    assert "its matrices shared out over 2 devices, without CUDA graphs" in shared["device"]
