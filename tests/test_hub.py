"""Models from a folder or the hub: only what is data is taken, once, and every refusal is one sentence."""

import json
import shutil
from types import SimpleNamespace

import pytest
import torch
from tiny import make_model

from specdec import devices, hub
from specdec.errors import ModelError
from specdec.models import load_pair


def sentence(error: pytest.ExceptionInfo) -> str:
    text = str(error.value)
    assert "\n" not in text and text.endswith("."), text
    return text


# folders


def test_weights_are_counted_without_loading_them(saved):
    count = sum(p.numel() for p in make_model(vocabulary=268).parameters())
    assert hub.weigh(saved / "target") == hub.Weights(count, "float32")


def test_the_format_of_the_files_is_read(saved, tmp_path):
    make_model(vocabulary=268).to(torch.bfloat16).save_pretrained(tmp_path / "half")
    assert hub.weigh(tmp_path / "half").stored == "bfloat16"


@pytest.mark.parametrize(
    "damage, expected", [("config.json", "no config.json"), ("model.safetensors", "no complete safetensors")]
)
def test_an_incomplete_folder_is_one_sentence(saved, tmp_path, damage, expected):
    shutil.copytree(saved / "target", tmp_path / "m")
    (tmp_path / "m" / damage).unlink()
    with pytest.raises(ModelError) as error:
        load_pair(target=str(tmp_path / "m"), device="cpu")
    assert expected in sentence(error) and str(tmp_path / "m") in str(error.value)


def test_a_missing_shard_is_noticed(saved, tmp_path):
    shutil.copytree(saved / "target", tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").rename(tmp_path / "m" / "model-00001-of-00002.safetensors")
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (tmp_path / "m" / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="no complete safetensors"):
        hub.find_model(str(tmp_path / "m"))
    shutil.copy(tmp_path / "m" / "model-00001-of-00002.safetensors", tmp_path / "m" / "model-00002-of-00002.safetensors")
    assert len(hub.weight_files(tmp_path / "m")) == 2


def test_pickled_weights_are_not_opened(saved, tmp_path):
    shutil.copytree(saved / "target", tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").rename(tmp_path / "m" / "pytorch_model.bin")
    with pytest.raises(ModelError, match="pickled weights, which can run code and are not opened"):
        load_pair(target=str(tmp_path / "m"), device="cpu")


def test_code_in_a_folder_is_not_run(saved, tmp_path):
    shutil.copytree(saved / "target", tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    config |= {"model_type": "strange", "auto_map": {"AutoConfig": "code.C", "AutoModelForCausalLM": "code.M"}}
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    (tmp_path / "m" / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass C: pass\nclass M: pass\n")
    with pytest.raises(ModelError) as error:
        load_pair(target=str(tmp_path / "m"), device="cpu")
    sentence(error)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "config.json"])
def test_a_damaged_file_is_one_sentence(saved, tmp_path, file):
    shutil.copytree(saved / "target", tmp_path / "m")
    (tmp_path / "m" / file).write_bytes(b"\x10\0\0\0\0\0\0\0{broken, broken}")
    with pytest.raises(ModelError) as error:
        load_pair(target=str(tmp_path / "m"), device="cpu")
    sentence(error)


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/folder", "a/b/c", "~/x/y", "what is this?"])
def test_a_name_that_is_no_folder_and_no_id(name, no_network):
    with pytest.raises(ModelError, match="There is no folder"):
        hub.find_model(name)


@pytest.fixture
def empty_hub_cache(tmp_path, monkeypatch):
    for module in (
        "huggingface_hub.constants",
        "huggingface_hub.file_download.constants",
        "huggingface_hub._snapshot_download.constants",
    ):
        monkeypatch.setattr(f"{module}.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_offline_by_choice_is_one_sentence(empty_hub_cache, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="Qwen/Qwen3-0.6B is not on this computer and HF_HUB_OFFLINE forbids"):
        hub.find_model("Qwen/Qwen3-0.6B")


def hub_error(name, status=404):
    from huggingface_hub import errors

    kind = getattr(errors, name)
    request = SimpleNamespace(url="u", method="GET", headers={})
    return kind("raw text of\nseveral lines", response=SimpleNamespace(headers={}, status_code=status, request=request))


@pytest.mark.parametrize(
    "error, expected",
    [
        (lambda: hub_error("GatedRepoError", 403), "is gated .* accept its licence .*`hf auth login`"),
        (lambda: hub_error("RepositoryNotFoundError", 401), "The hub knows no model a/b"),
        (lambda: hub_error("HfHubHTTPError", 403), "refuses a/b with the token"),
        (lambda: hub_error("HfHubHTTPError", 429), "slow down"),
        (lambda: hub_error("HfHubHTTPError", 503), "could not be fetched"),
        (lambda: ConnectionError("refused"), r"could not be fetched \(ConnectionError\): connect to a network"),
        (lambda: TimeoutError("slow"), "could not be fetched"),
    ],
)
def test_what_the_hub_says_becomes_one_sentence(empty_hub_cache, monkeypatch, error, expected):
    from huggingface_hub import HfApi

    def fail(*args, **kwargs):
        raise error()

    monkeypatch.setattr(HfApi, "model_info", fail)
    with pytest.raises(ModelError, match=expected) as raised:
        hub.find_model("a/b")
    sentence(raised)


class FakeHub:
    """A hub with one model in it, the saved target."""

    def __init__(self, folder, monkeypatch, cache):
        import huggingface_hub

        self.folder, self.cache, self.fetched = folder, cache, []
        files = [SimpleNamespace(rfilename=path.name, size=path.stat().st_size) for path in folder.iterdir()]
        extra = [SimpleNamespace(rfilename=name, size=10**15) for name in ("onnx/model.onnx", "consolidated.safetensors")]
        self.info = SimpleNamespace(siblings=files + extra, safetensors=SimpleNamespace(total=36192))
        monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda api, name, **kwargs: self.info)
        monkeypatch.setattr(huggingface_hub, "snapshot_download", self.download)

    def download(self, name, *, allow_patterns, ignore_patterns, tqdm_class):
        from huggingface_hub.utils import filter_repo_objects

        names = [sibling.rfilename for sibling in self.info.siblings]
        self.fetched = sorted(filter_repo_objects(names, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns))
        bar = tqdm_class(total=0, unit="B", unit_scale=True, desc="Downloading bytes")
        to = self.cache / f"models--{name.replace('/', '--')}" / "snapshots" / ("a" * 40)
        to.mkdir(parents=True)
        for file in self.fetched:
            shutil.copy(self.folder / file, to / file)
            bar.update((self.folder / file).stat().st_size)
        (to.parent.parent / "refs").mkdir()
        (to.parent.parent / "refs" / "main").write_text("a" * 40)
        return str(to)


def test_a_model_of_the_hub_is_fetched_once_and_then_needs_no_network(saved, empty_hub_cache, monkeypatch, capfd):
    fake = FakeHub(saved / "target", monkeypatch, empty_hub_cache)
    calls = []
    pair = load_pair(target="some/model", device="cpu", progress=lambda *call: calls.append(call))
    assert pair.title == "model" and pair.info("lookup").target == "model"
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"} <= set(fake.fetched)
    assert not any("onnx" in file or "consolidated" in file for file in fake.fetched)
    done = [call for call in calls if call[0] == "downloading some/model"]
    assert done and done[-1][1] == done[-1][2]  # bytes of the weights
    assert "B/s" not in "".join(capfd.readouterr())

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda *a, **k: pytest.fail("the hub was asked"))
    assert load_pair(target="some/model", device="cpu").target.layers == 2


def test_memory_is_checked_before_the_hub_is_asked_for_weights(saved, empty_hub_cache, monkeypatch):
    fake = FakeHub(saved / "target", monkeypatch, empty_hub_cache)
    fake.info.safetensors.total = 70_000_000_000
    monkeypatch.setattr(devices, "free_memory", lambda device: 16_000_000_000)
    with pytest.raises(
        ModelError, match=r"some/model|model has 70.00 billion weights and needs about 600.4 GB in float32.* 16.0 GB free"
    ):
        load_pair(target="some/model", device="cpu")
    assert fake.fetched == []


def test_a_disk_too_small_for_the_weights_is_refused(saved, empty_hub_cache, monkeypatch):
    fake = FakeHub(saved / "target", monkeypatch, empty_hub_cache)
    monkeypatch.setattr("specdec.store.shutil.disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(ModelError, match="Fetching some/model needs .* of disk"):
        hub.find_model("some/model")
    assert fake.fetched == []


def test_a_hub_model_with_pickled_weights_only_is_refused(saved, empty_hub_cache, monkeypatch):
    fake = FakeHub(saved / "target", monkeypatch, empty_hub_cache)
    fake.info.siblings = [SimpleNamespace(rfilename="pytorch_model.bin", size=10**9)]
    with pytest.raises(ModelError, match="no safetensors weights on the hub"):
        hub.find_model("some/model")
