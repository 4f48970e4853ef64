"""A pair is found, fits the machine, fits together, can roll back, or is refused in one sentence."""

import json
import shutil
import socket
from types import SimpleNamespace

import pytest
import torch
from tiny import MERGES, make_model, make_tiny_pair, make_tokenizer

from specdec import devices, fetch, hub, loading, models, runner
from specdec.catalogue import CATALOGUE, DEFAULT_PAIR, memory_needed
from specdec.errors import ModelError, PairError, SettingsError, SpecdecError
from specdec.fit import common_vocabulary
from specdec.models import Pair, load_pair, make_pair

CPU = torch.device("cpu")


def sentence(error: pytest.ExceptionInfo) -> str:
    text = str(error.value)
    assert "\n" not in text and text.endswith("."), text
    return text


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Two folders as save_pretrained makes them, that fit together: target, draft."""
    folder = tmp_path_factory.mktemp("saved")
    tokenizer = make_tokenizer()
    for name, layers, seed in (("target", 2, 0), ("draft", 1, 1)):
        make_model(vocabulary=len(tokenizer), layers=layers, seed=seed).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder


@pytest.fixture
def no_network(monkeypatch):
    """Whoever opens a connection fails the test."""

    def refuse(*args, **kwargs):
        raise AssertionError(f"a connection was opened: {args}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)


# the catalogue


def test_the_catalogue_has_the_pairs_of_the_design():
    hub_pairs = {(spec.target, spec.draft) for spec in CATALOGUE.values() if spec.draft}
    assert hub_pairs == {
        ("HuggingFaceTB/SmolLM2-1.7B-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct"),
        ("HuggingFaceTB/SmolLM2-360M-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct"),
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B"),
        ("Qwen/Qwen3-4B", "Qwen/Qwen3-0.6B"),
        ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.2-1B-Instruct"),
        ("google/gemma-3-12b-it", "google/gemma-3-270m-it"),
        ("openai-community/gpt2-xl", "openai-community/gpt2"),
    }
    assert CATALOGUE[DEFAULT_PAIR].title == "SmolLM2-135M (embedded)"
    assert {name for name, spec in CATALOGUE.items() if spec.gated} == {"llama-3.1-8b", "gemma-3-12b"}
    assert all(name == spec.name and spec.remarks for name, spec in CATALOGUE.items())


def test_memory_follows_from_weights_and_format():
    """8.19 and 0.60 billion weights: 17.6 GB of weights in bfloat16, and what running them takes beside."""
    spec = CATALOGUE["qwen3-8b"]
    assert spec.parameters == 8_190_735_360 + 596_049_920
    assert 17.6e9 < spec.memory("bfloat16") == memory_needed(spec.parameters, "bfloat16") < 22e9
    assert spec.memory("float32") - 400_000_000 == pytest.approx(2 * (spec.memory("bfloat16") - 400_000_000))
    assert CATALOGUE[DEFAULT_PAIR].memory("float32") < 1.1e9  # an old laptop


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ModelError) as error:
        load_pair("gpt-5")
    assert "'gpt-5'" in sentence(error) and "embedded" in str(error.value) and "qwen3-4b" in str(error.value)


# loading


def test_two_folders_become_a_pair_without_a_network(saved, no_network):
    stages = []
    pair = load_pair(target=str(saved / "target"), draft=str(saved / "draft"), device="cpu", progress=lambda *c: stages.append(c))
    assert isinstance(pair, Pair)
    assert (pair.target.layers, pair.draft.layers) == (2, 1)
    assert (pair.title, pair.dtype, pair.device, pair.device_name) == ("target with draft", "float32", CPU, "cpu")
    assert (pair.vocabulary, pair.context, pair.eos_ids, pair.has_chat_template) == (268, 512, {0}, True)
    assert pair.drafters == ("draft", "early-exit", "lookup")
    info = pair.info("draft")
    assert (info.target, info.draft, info.draft_parameters) == ("target", "draft", pair.draft.parameters)
    assert pair.info("lookup").draft is None and pair.info("lookup").draft_parameters is None
    assert any(stage == "loading target" and done == total for stage, done, total in stages)
    reference = make_model(vocabulary=268, layers=2, seed=0)
    ids = pair.encode("the end", raw=False)
    with torch.inference_mode():
        assert torch.equal(pair.target.open().forward(ids), reference(torch.tensor([ids])).logits[0])


def test_a_target_alone_has_the_drafters_that_need_no_model(saved):
    pair = load_pair(target=str(saved / "target"), device="cpu")
    assert pair.draft is None and pair.drafters == ("early-exit", "lookup") and pair.title == "target"


def test_one_side_of_a_named_pair_can_be_exchanged(saved, monkeypatch):
    monkeypatch.setattr(models, "fetch_embedded", lambda progress: saved / "target")
    pair = load_pair("embedded", draft=str(saved / "draft"), device="cpu")
    assert pair.title == "SmolLM2-135M-Instruct with draft" and pair.drafters[0] == "draft"
    assert load_pair(draft=str(saved / "draft"), device="cpu").title == pair.title
    assert load_pair(target="embedded", device="cpu").drafters == ("early-exit", "lookup")


def test_loading_draws_no_bars_of_its_own(saved, capfd):
    load_pair(target=str(saved / "target"), device="cpu")
    assert "it/s" not in "".join(capfd.readouterr()) and "Loading weights" not in "".join(capfd.readouterr())


def test_the_number_format_is_as_asked(saved):
    pair = load_pair(target=str(saved / "target"), device="cpu", dtype="bf16")
    assert pair.dtype == "bfloat16" and pair.target.dtype == torch.bfloat16
    assert pair.target.open().forward([1, 2]).dtype == torch.float32  # probabilities are made of float32


def test_a_plain_step_is_timed(saved):
    pair = load_pair(target=str(saved / "target"), device="cpu")
    assert 0 < pair.plain_step_seconds < 1


def test_every_eos_counts():
    tokenizer = make_tokenizer()
    model = make_model(vocabulary=268)
    model.config.eos_token_id = 5
    model.generation_config.eos_token_id = [7, 9, 300]  # 300 is beyond the vocabulary
    assert loading.eos_ids(model, tokenizer, vocabulary=268) == {0, 5, 7, 9}
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    assert loading.eos_ids(model, tokenizer, vocabulary=268) == {0}


def test_early_exit_is_not_offered_by_one_layer():
    assert make_tiny_pair(layers=1).drafters == ("draft", "lookup")


# the machine


def test_a_pair_that_does_not_fit_is_refused_with_the_figures_before_anything_is_fetched(monkeypatch):
    monkeypatch.setattr(devices, "free_memory", lambda device: 3_000_000_000)
    monkeypatch.setattr(models, "find_model", lambda *a, **k: pytest.fail("it was fetched"))
    with pytest.raises(ModelError) as error:
        load_pair("qwen3-8b", device="cpu")
    text = sentence(error)
    for part in ("Qwen3-8B", "8.79 billion", "40.6 GB in float32", "3.0 GB free", "bfloat16, which needs 20.5 GB"):
        assert part in text


def test_a_folder_that_does_not_fit_is_refused_before_it_is_loaded(saved, monkeypatch):
    monkeypatch.setattr(devices, "free_memory", lambda device: 300_000_000)
    monkeypatch.setattr(models, "load_model", lambda *a, **k: pytest.fail("it was loaded"))
    with pytest.raises(ModelError, match="300 MB free"):
        load_pair(target=str(saved / "target"), device="cpu")


def test_where_the_system_does_not_tell_its_memory_nothing_is_refused(monkeypatch):
    monkeypatch.setattr(devices, "free_memory", lambda device: None)
    devices.require_memory(10**13, dtype="float32", device=CPU, title="x")


def test_free_memory_is_plausible():
    free = devices.free_memory(CPU)
    assert free is None or 10_000_000 < free < 10**14


@pytest.mark.parametrize(
    "limit, expected", [("max", 8_000_000 * 1024), ("2000000000", 2_000_000_000 - 900_000_000 + 400_000_000)]
)
def test_a_containers_limit_counts(tmp_path, limit, expected):
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:       16000000 kB\nMemAvailable:    8000000 kB\n")
    (group / "memory.max").write_text(limit + "\n")
    (group / "memory.current").write_text("900000000\n")
    (group / "memory.stat").write_text("anon 5\ninactive_file 400000000\n")
    assert devices._free_linux(tmp_path) == expected


@pytest.mark.parametrize(
    "cuda, mps, wanted, expected",
    [
        (1, False, "auto", "cuda:0"),
        (0, True, "auto", "mps"),
        (0, False, "auto", "cpu"),
        (2, True, "cuda:1", "cuda:1"),
        (1, True, "cpu", "cpu"),
        (1, False, "cuda", "cuda:0"),
    ],
)
def test_the_device_is_cuda_then_mps_then_cpu(monkeypatch, cuda, mps, wanted, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert str(devices.choose_device(wanted)) == expected


@pytest.mark.parametrize("wanted", ["gpu", "cuda:1", "cuda:-1", "mps", "", "cpu:3"])
def test_a_device_that_is_not_there_is_one_sentence(monkeypatch, wanted):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(SettingsError) as error:
        devices.choose_device(wanted)
    assert wanted in sentence(error)


@pytest.mark.parametrize("capability, expected", [((9, 0), "bfloat16"), ((8, 0), "bfloat16"), ((7, 5), "float16")])
def test_cuda_runs_in_bfloat16_where_it_can(monkeypatch, capability, expected):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert devices.choose_dtype("auto", device=torch.device("cuda:0"), parameters=1) == expected


def test_number_formats():
    assert devices.choose_dtype("auto", device=CPU, parameters=10**12) == "float32"
    assert devices.choose_dtype("auto", device=torch.device("mps"), parameters=10**8) == "float32"
    assert devices.choose_dtype("fp16", device=CPU, parameters=1) == "float16"
    with pytest.raises(SettingsError, match="dtype is 'int4': take auto, float32"):
        load_pair(dtype="int4", device="cpu")


# do the two fit together?


def fit(target, draft, **sizes):
    sizes = {"target_size": len(target), "draft_size": len(draft)} | sizes
    return common_vocabulary(target, draft, names=("T", "D"), **sizes)


def test_equal_tokenizers_fit_and_padding_is_sliced_off():
    tokenizer = make_tokenizer()
    assert fit(tokenizer, make_tokenizer()) == 268
    assert fit(tokenizer, tokenizer, target_size=320, draft_size=288) == 288
    assert fit(tokenizer, tokenizer, target_size=268, draft_size=288) == 268


@pytest.mark.parametrize("padding", [0, 7])
def test_both_models_speak_of_the_same_ids(tiny_pair, padding):
    pair = tiny_pair(padding=padding)
    assert pair.vocabulary == pair.target.vocabulary == pair.draft.vocabulary == 268
    logits = pair.target.open().forward([3, 4])
    assert logits.shape == (2, 268) and pair.draft.open().forward([3]).shape == (1, 268)


def test_the_first_token_that_differs_is_named():
    other = make_tokenizer(merges=(("t", "h"), ("t", "e"), *MERGES[2:]))
    with pytest.raises(PairError) as error:
        fit(make_tokenizer(), other)
    text = sentence(error)
    assert "T and D do not fit together, because token id 259 is 'the' for the target and 'te' for the draft" in text


def test_the_same_string_under_another_id_is_named():
    swapped = make_tokenizer(control=("<|start|>", "<|end|>"))
    with pytest.raises(PairError, match=r"token id 0 is '<\|end\|>' for the target and '<\|start\|>' for the draft"):
        fit(make_tokenizer(), swapped)
    shifted = make_tokenizer(control=("<|end|>", "<|start|>", "<|more|>"))
    with pytest.raises(PairError, match="token id 2 is"):
        fit(make_tokenizer(), shifted)


def test_one_vocabulary_cut_by_other_rules_is_named():
    """Same strings, same ids, other merges: only encoding shows it."""
    from tokenizers import pre_tokenizers

    other = make_tokenizer()
    other.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    assert make_tokenizer().get_vocab() == other.get_vocab()
    with pytest.raises(PairError, match="is cut differently: token .* for the target and .* for the draft"):
        fit(make_tokenizer(merges=(*MERGES, ("Ġ", "1"))), _with_digits((*MERGES, ("Ġ", "1"))))


def _with_digits(merges):
    from tokenizers import pre_tokenizers

    tokenizer = make_tokenizer(merges=merges)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return tokenizer


def test_text_beyond_the_smaller_embedding_is_refused_and_control_tokens_there_are_not():
    """A target that can emit a token which the draft has no row for cannot be sliced without changing its law."""
    longer = make_tokenizer(merges=(*MERGES, ("o", "u")))
    with pytest.raises(PairError, match="'ou' has token id 268, and one of the two models ends at id 267"):
        fit(longer, make_tokenizer(), target_size=269, draft_size=268)
    with_image = make_tokenizer()
    with_image.add_special_tokens({"additional_special_tokens": ["<image>"]})
    assert len(with_image) == 269 and fit(with_image, make_tokenizer(), target_size=320, draft_size=268) == 268


def test_a_pair_whose_tokenizers_differ_is_refused_when_loaded(saved, tmp_path):
    shutil.copytree(saved / "draft", tmp_path / "other")
    make_tokenizer(merges=(("t", "h"), ("t", "e"), *MERGES[2:])).save_pretrained(tmp_path / "other")
    with pytest.raises(PairError, match="target and other do not fit together, because token id 259"):
        load_pair(target=str(saved / "target"), draft=str(tmp_path / "other"), device="cpu")


def test_a_prompt_with_a_token_beyond_the_common_vocabulary_is_refused():
    tokenizer = make_tokenizer()
    tokenizer.add_tokens(["<image>"])
    pair = make_pair(
        make_model(vocabulary=269),
        tokenizer,
        draft=make_model(vocabulary=268, layers=1),
        draft_tokenizer=make_tokenizer(),
        measure=False,
    )
    assert pair.vocabulary == 268
    with pytest.raises(SettingsError, match="'<image>', a token that only one of the two models knows"):
        pair.encode("an <image>", raw=True)


# can the cache roll back?


@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen"])
def test_a_rolled_back_cache_is_as_if_it_had_never_seen_the_tokens(tiny_pair, kind):
    loading.check_roll_back(tiny_pair(kind).target, name=kind)


def test_a_running_state_is_refused():
    from transformers import MambaConfig, MambaForCausalLM

    mamba = MambaForCausalLM(MambaConfig(vocab_size=268, hidden_size=32, num_hidden_layers=2, state_size=4))
    with pytest.raises(ModelError) as error:
        make_pair(mamba, make_tokenizer(), target_name="mamba", measure=False)
    sentence(error)


def test_a_cache_that_only_says_that_it_rolled_back_is_found_out(tiny_pair, monkeypatch):
    def pretend(self, length):
        self.length = length

    monkeypatch.setattr(runner.CachedSequence, "crop", pretend)
    with pytest.raises(ModelError, match="tiny cannot be used: after taking back tokens it answers differently"):
        loading.check_roll_back(tiny_pair().target, name="tiny")


def test_a_window_rolls_back_beyond_its_edge_or_is_refused():
    """Layers that see the last 8 tokens only: after 20 tokens and a roll-back to 14, the 7 before must be there again."""
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=268,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=8,
    )
    model = MistralForCausalLM(config).eval()
    try:
        pair = make_pair(model, make_tokenizer(), measure=False)
    except ModelError as refusal:
        assert "cannot be used" in str(refusal)
        return
    ids = list(range(2, 22))
    sequence = pair.target.open()
    for id in ids:
        sequence.forward([id])
    sequence.crop(14)
    with torch.inference_mode():
        expected = model(torch.tensor([[*ids[:14], 50, 60]])).logits[0, -1]
    torch.testing.assert_close(sequence.forward([50, 60])[-1], expected, atol=1e-5, rtol=1e-4)


# folders and the hub


def test_weights_are_counted_without_loading_them(saved):
    assert hub.count_parameters(saved / "target") == sum(p.numel() for p in make_model(vocabulary=268).parameters())


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
        (lambda: hub_error("GatedRepoError", 403), "is gated .* accept its licence .* hf auth login"),
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
        ModelError, match=r"some/model|model has 70.00 billion weights and needs about 320.4 GB in float32.* 16.0 GB free"
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


# the embedded pair


def test_the_embedded_pair(embedded_pair):
    assert (embedded_pair.name, embedded_pair.title) == ("embedded", "SmolLM2-135M (embedded)")
    assert (embedded_pair.vocabulary, embedded_pair.context, embedded_pair.eos_ids) == (49152, 8192, {2})
    assert embedded_pair.has_chat_template and embedded_pair.dtype == "float32"
    assert embedded_pair.info("lookup").target_parameters == CATALOGUE["embedded"].target_parameters == 134_515_008
    assert embedded_pair.plain_step_seconds > 0


def test_the_embedded_pair_knows_its_capitals(embedded_pair):
    """It is the real model: the most probable continuation is right, and so is the order of its doubts."""
    logits = embedded_pair.target.open().forward(embedded_pair.encode("The capital of France is", raw=True), keep=1)[-1]
    assert embedded_pair.texts.text(int(logits.argmax())) == " Paris"


def test_the_embedded_pair_loads_without_a_network(embedded_folder, no_network):
    assert load_pair(device="cpu").name == "embedded"


def test_every_refusal_is_a_specdec_error():
    assert issubclass(PairError, ModelError) and issubclass(ModelError, SpecdecError) and fetch.ModelError is ModelError
