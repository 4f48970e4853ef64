"""A pair is found, fits the machine, fits together, can roll back, or is refused in one sentence."""

import dataclasses
import shutil
from types import SimpleNamespace

import pytest
import torch
import transformers
from tiny import MERGES, make_model, make_tiny_pair, make_tokenizer

from specdec import fetch, loading, models, runner
from specdec.catalogue import CATALOGUE, DEFAULT_PAIR, memory_needed
from specdec.decoding import generate, stream, stream_plain
from specdec.errors import ModelError, PairError, SettingsError, SpecdecError
from specdec.fit import common_vocabulary
from specdec.models import Pair, load_pair, make_pair
from specdec.trace import Settings

CPU = torch.device("cpu")


def sentence(error: pytest.ExceptionInfo) -> str:
    text = str(error.value)
    assert "\n" not in text and text.endswith("."), text
    return text


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
    assert spec.memory("float32") == pytest.approx(400e6 + spec.parameters * 4 * (2 + 1 / 7))  # wider than its files: there twice
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
        torch.testing.assert_close(pair.target.open().forward(ids), reference(torch.tensor([ids])).logits[0], atol=1e-5, rtol=1e-5)


def test_a_target_alone_has_the_drafters_that_need_no_model(saved):
    pair = load_pair(target=str(saved / "target"), device="cpu")
    assert pair.draft is None and pair.drafters == ("early-exit", "lookup") and pair.title == "target"


def test_one_side_of_a_named_pair_can_be_exchanged(saved, monkeypatch):
    monkeypatch.setattr(models, "fetch_embedded", lambda progress: saved / "target")
    monkeypatch.setattr("specdec.attached.with_trained_drafters", lambda pair: pair)
    pair = load_pair("embedded", draft=str(saved / "draft"), device="cpu")
    assert pair.title == "SmolLM2-135M-Instruct with draft" and pair.drafters[0] == "draft"
    assert load_pair(draft=str(saved / "draft"), device="cpu").title == pair.title
    assert load_pair(target="embedded", device="cpu").drafters == ("early-exit", "lookup")


def test_loading_draws_no_bars_of_its_own(saved, capfd):
    load_pair(target=str(saved / "target"), device="cpu")
    shown = "".join(capfd.readouterr())
    assert "it/s" not in shown and "Loading weights" not in shown


def test_the_number_format_is_as_asked(saved):
    pair = load_pair(target=str(saved / "target"), device="cpu", dtype="bf16")
    assert pair.dtype == "bfloat16" and pair.target.dtype == torch.bfloat16
    assert pair.target.open().forward([1, 2]).dtype == torch.float32  # probabilities are made of float32


def test_a_plain_step_is_timed(saved):
    pair = load_pair(target=str(saved / "target"), device="cpu")
    assert 0 < pair.plain_step_seconds < 1


def test_a_plain_step_is_timed_again_behind_a_run(saved):
    """One that was measured while the machine had other things to do would make every later run look faster than it is."""
    pair = dataclasses.replace(load_pair(target=str(saved / "target"), device="cpu"), plain_step_seconds=1000.0)
    settings = Settings(max_new_tokens=8, raw=True, drafter="lookup")
    for unlike in (stream(pair, "ab", settings), stream_plain(pair, "ab", settings)):
        assert len(list(unlike)) and unlike.trace().plain_step_seconds == 1000.0
    stopped = stream(pair, "ab", settings, time_plain=True)
    next(stopped)
    stopped.stop()
    assert list(stopped) == [] and stopped.trace().plain_step_seconds == 1000.0
    trace = generate(pair, "ab", settings, time_plain=True)
    assert 0 < trace.plain_step_seconds < 1 and pair.plain_step_seconds == trace.plain_step_seconds
    assert trace.totals.seconds < 1000 and stopped.trace().plain_step_seconds == 1000.0  # a trace that is made stays as it is
    unmeasured = dataclasses.replace(pair, plain_step_seconds=None)
    assert generate(unmeasured, "ab", settings, time_plain=True).plain_step_seconds is None


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
    other = make_tokenizer(merges=(*MERGES[:-1], ("o", "u")))
    with pytest.raises(PairError) as error:
        fit(make_tokenizer(), other)
    text = sentence(error)
    assert "T and D do not fit together, because token id 267 is 'Ġð' for the target and 'ou' for the draft" in text


def test_the_same_string_under_another_id_is_named():
    swapped = make_tokenizer(control=("<|start|>", "<|end|>"))
    with pytest.raises(PairError, match=r"token id 0 is '<\|end\|>' for the target and '<\|start\|>' for the draft"):
        fit(make_tokenizer(), swapped)
    shifted = make_tokenizer(control=("<|end|>", "<|start|>", "<|more|>"))
    with pytest.raises(PairError, match="token id 2 is"):
        fit(make_tokenizer(), shifted)


def with_digits_apart(tokenizer):
    from tokenizers import pre_tokenizers

    digits, rest = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, rest])
    return tokenizer


@pytest.mark.parametrize("merge, text", [(("2", "2"), "List:"), (("&", "1"), "List:")])
def test_one_vocabulary_cut_by_other_rules_is_named(merge, text):
    """Same strings, same ids, another cut before merging: only encoding shows it."""
    target, draft = make_tokenizer(merges=(*MERGES, merge)), with_digits_apart(make_tokenizer(merges=(*MERGES, merge)))
    assert target.get_vocab() == draft.get_vocab()
    with pytest.raises(PairError, match=f"because '{text}.* is cut differently: token .* for the target and .* for the draft"):
        fit(target, draft)


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
    make_tokenizer(merges=(*MERGES[:-1], ("o", "u"))).save_pretrained(tmp_path / "other")
    with pytest.raises(PairError, match="target and other do not fit together, because token id 267"):
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
        loading.check_roll_back(tiny_pair("gpt2").target, name="tiny")


def windowed_model(kind):
    """Layers that see the last 8 tokens only: all of them, or every second one."""
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig, MistralConfig, MistralForCausalLM

    shared = {"vocab_size": 268, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    shared |= {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 8, "max_position_embeddings": 128}
    torch.manual_seed(0)
    if kind == "mistral":
        return MistralForCausalLM(MistralConfig(**shared)).eval()
    layer_types = ["sliding_attention", "full_attention"]
    return Gemma3ForCausalLM(Gemma3TextConfig(**shared, layer_types=layer_types, query_pre_attn_scalar=8)).eval()


@pytest.mark.parametrize("kind", ["mistral", "gemma"])
def test_a_window_rolls_back_beyond_its_edge_or_is_refused(kind):
    """After 20 tokens and a roll-back to 14 the 7 before must be there again; older versions of transformers cannot do it."""
    model = windowed_model(kind)
    try:
        pair = make_pair(model, make_tokenizer(), measure=False)
    except ModelError as refusal:
        assert "see a window of 8 tokens only" in str(refusal) and "install a newer transformers" in str(refusal)
        assert not hasattr(transformers.DynamicCache, "activate_past_recording")
        return
    ids = list(range(2, 22))
    sequence = pair.target.open()
    for id in ids:
        sequence.forward([id])
    sequence.crop(14)
    with torch.inference_mode():
        expected = model(torch.tensor([[*ids[:14], 50, 60]])).logits[0, -1]
    torch.testing.assert_close(sequence.forward([50, 60])[-1], expected, atol=1e-5, rtol=1e-4)


def test_a_window_that_forgets_is_refused(monkeypatch):
    """As if the cache could not keep what leaves the window: then the roll-back loses it, and the model is not taken."""
    monkeypatch.setattr(transformers.DynamicCache, "activate_past_recording", lambda self: None, raising=False)
    with pytest.raises(ModelError, match="target cannot be used: some of its layers see a window of 8 tokens only"):
        make_pair(windowed_model("mistral"), make_tokenizer(), measure=False)


def test_a_window_as_wide_as_the_context_is_none(monkeypatch):
    monkeypatch.setattr(transformers.DynamicCache, "activate_past_recording", lambda self: None, raising=False)
    model = windowed_model("mistral")
    model.config.max_position_embeddings = 8
    assert make_pair(model, make_tokenizer(), measure=False).context == 8


def test_the_trained_drafters_join_the_embedded_target_and_no_other(saved, monkeypatch):
    import specdec.attached

    def with_trained_drafters(pair):
        return dataclasses.replace(pair, attached={"head": SimpleNamespace(parameters=77)})

    monkeypatch.setattr(specdec.attached, "with_trained_drafters", with_trained_drafters)
    monkeypatch.setattr(models, "fetch_embedded", lambda progress: saved / "target")
    pair = load_pair(device="cpu")
    assert pair.drafters == ("head", "early-exit", "lookup")
    assert (pair.info("head").draft, pair.info("head").draft_parameters) == ("trained head", 77)
    assert load_pair(target=str(saved / "target"), device="cpu").drafters == ("early-exit", "lookup")


# the embedded pair


def test_the_embedded_pair(embedded_pair):
    assert (embedded_pair.name, embedded_pair.title) == ("embedded", "SmolLM2-135M (embedded)")
    assert (embedded_pair.vocabulary, embedded_pair.context, embedded_pair.eos_ids) == (49152, 8192, {2})
    assert embedded_pair.has_chat_template and embedded_pair.dtype == "float32"
    assert embedded_pair.info("lookup").target_parameters == CATALOGUE["embedded"].target_parameters == 134_515_008
    assert embedded_pair.plain_step_seconds > 0
    assert 1e8 < embedded_pair.read_bandwidth < 1e13


def test_the_embedded_pair_knows_its_capitals(embedded_pair):
    """It is the real model: the most probable continuation is right, and so is the order of its doubts."""
    logits = embedded_pair.target.open().forward(embedded_pair.encode("The capital of France is", raw=True), keep=1)[-1]
    assert embedded_pair.texts.text(int(logits.argmax())) == " Paris"


def test_the_embedded_pair_loads_without_a_network(embedded_folder, no_network):
    assert load_pair(device="cpu").name == "embedded"


def test_every_refusal_is_a_specdec_error():
    assert issubclass(PairError, ModelError) and issubclass(ModelError, SpecdecError) and fetch.ModelError is ModelError


def test_the_pages_offer_what_the_server_names():
    from specdec.catalogue import offered, sides, title
    from specdec.errors import SettingsError

    assert offered({}) == ("embedded", "embedded-int8")
    assert offered({"SPECDEC_PAIRS": " qwen3-4b, embedded ,qwen3-4b,"}) == ("qwen3-4b", "embedded")
    with pytest.raises(SettingsError, match="SPECDEC_PAIRS names 'gpt-5', which"):
        offered({"SPECDEC_PAIRS": "gpt-5"})
    assert offered({"SPECDEC_PAIRS": "a/b+/c/d", "SPECDEC_ALLOW_MODELS": "1"}) == ("a/b+/c/d",)
    assert sides("a/b + /c/d") == ("a/b", "/c/d") and sides("a/b") == ("a/b", None)
    assert title("a/b+/c/d/") == "b with d" and title("embedded") == "SmolLM2-135M (embedded)"


def test_the_engine_loads_only_what_the_server_names(saved, monkeypatch):
    from specdec.engine import load
    from specdec.errors import SettingsError

    name = f"{saved / 'target'}+{saved / 'draft'}"
    with pytest.raises(SettingsError, match="does not offer"):
        load(name, lambda *_: None)
    monkeypatch.setenv("SPECDEC_PAIRS", name)
    monkeypatch.setenv("SPECDEC_ALLOW_MODELS", "1")
    pair = load(name, lambda *_: None)
    assert {"draft", "lookup", "early-exit"} <= set(pair.drafters)
