"""The lean forward pass computes what the eager one computes, for each family it claims, and picks its kernels by measuring."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from specdec import kernels
from specdec.errors import ModelError
from specdec.llama import LlamaRunner, fastest_runner, supports
from specdec.runner import Runner

SIZES = dict(
    vocab_size=97,
    hidden_size=48,
    intermediate_size=80,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=12,
    max_position_embeddings=1024,
)
FAMILIES = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
    "llama, tied": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=True)),
    "llama, output bias": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, attention_bias=True)),
    "qwen2, with bias": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES)),
    "qwen3, with norms": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**SIZES, sliding_window=None)),
}
TEXT = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38]


def build(family):
    torch.manual_seed(0)
    model = FAMILIES[family]().eval()
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:  # biases and norms start as zeros and ones, which would hide a mistake
            parameter.data += 0.3 * torch.randn_like(parameter)
    return model


needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this build of torch has no oneDNN")
EVERY_KERNEL = [pytest.param(n, marks=needs_onednn if n == "packed" else ()) for n in kernels.KERNELS]
MIXED = "batched/product-transposed/stock/product-transposed/stored-transposed"


def has_half() -> bool:
    try:
        return kernels.HALF["half"](torch.ones(8, 8))(torch.ones(1, 8)).item is not None
    except (RuntimeError, AttributeError, NotImplementedError):
        return False


needs_half = pytest.mark.skipif(not has_half(), reason="this build of torch multiplies no float16 weights with float32 inputs")


def in_16_bits(model):
    """The same model with matrices that float16 holds without rounding; its vectors stay what they are."""
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.data = parameter.data.half().float()
    return model


@pytest.mark.parametrize("kernel", [*EVERY_KERNEL, MIXED, pytest.param("half", marks=needs_half)])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_hidden_states_and_exits_are_those_of_the_eager_runner(family, kernel, monkeypatch):
    """With each kernel: which one a machine takes is measured, so all must be right."""
    monkeypatch.setattr(kernels, "choose", lambda weights, **options: kernel)
    model = build(family)
    if kernel == "half":
        model = in_16_bits(model)
        monkeypatch.setattr(kernels, "choose", lambda weights, **options: kernel if all(map(kernels.fits_half, weights)) else "")
    assert supports(model)
    lean = LlamaRunner(model).open(hidden_layers=(0, 1, 3))
    eager = Runner(model).open(hidden_layers=(0, 1, 3))
    for ids in (TEXT, [5], [7, 11, 13, 17, 19]):
        torch.testing.assert_close(lean.forward(ids), eager.forward(ids), atol=2e-5, rtol=2e-4)
        torch.testing.assert_close(lean.hidden, eager.hidden, atol=2e-5, rtol=2e-4)
    for sequence in (lean, eager):
        sequence.crop(8)
    torch.testing.assert_close(lean.forward([1, 2, 3], keep=2), eager.forward([1, 2, 3], keep=2), atol=2e-5, rtol=2e-4)
    for offset, token in enumerate([21, 22, 23]):
        expected = eager.forward_exit([token], layers=2, offset=offset)
        torch.testing.assert_close(lean.forward_exit([token], layers=2, offset=offset), expected, atol=2e-5, rtol=2e-4)
    for sequence in (lean, eager):
        sequence.crop_exit(layers=2)
    torch.testing.assert_close(lean.forward([42]), eager.forward([42]), atol=2e-5, rtol=2e-4)
    assert lean.length == eager.length == 12


@pytest.mark.parametrize("rows", [1, 2, 31, 32, 300])
def test_a_pass_of_any_size_and_a_cache_that_grows_keep_every_token(rows):
    model = build("llama")
    lean, eager = LlamaRunner(model).open(), Runner(model).open()
    ids = [(7 * i) % 97 for i in range(250)]
    lean.forward(ids, keep=1)
    eager.forward(ids, keep=1)
    torch.testing.assert_close(lean.forward(ids[:1] * rows), eager.forward(ids[:1] * rows), atol=5e-5, rtol=5e-4)


def test_an_early_exit_survives_the_growth_of_the_cache():
    model = build("llama")
    lean, eager = LlamaRunner(model).open(), Runner(model).open()
    ids = [(5 * i) % 97 for i in range(254)]  # the first buffer holds 256
    for sequence in (lean, eager):
        sequence.forward(ids, keep=1)
    lean.capacity, lean.cache = 255, [layer[:, :255] for layer in lean.cache]
    for offset, token in enumerate([8, 9, 10]):
        expected = eager.forward_exit([token], layers=2, offset=offset)
        torch.testing.assert_close(lean.forward_exit([token], layers=2, offset=offset), expected, atol=2e-5, rtol=2e-4)


def test_what_it_does_not_compute_stays_with_the_eager_runner():
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=16, n_layer=2, n_head=2)).eval()
    scaled = LlamaForCausalLM(
        LlamaConfig(**SIZES, rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0})
    ).eval()
    half = build("llama").to(torch.bfloat16)
    windowed = MistralForCausalLM(MistralConfig(**SIZES, sliding_window=16)).eval()
    biased = LlamaForCausalLM(LlamaConfig(**SIZES, mlp_bias=True)).eval()
    for model in (gpt2, scaled, half, windowed, biased):
        assert not supports(model)
        assert type(fastest_runner(model)) is Runner
    assert type(fastest_runner(build("llama"))) is LlamaRunner


def test_a_variant_that_nobody_has_heard_of_is_found_out_by_its_numbers(monkeypatch):
    torch.manual_seed(0)
    biased = LlamaForCausalLM(LlamaConfig(**SIZES, mlp_bias=True)).eval()
    for layer in biased.model.layers:
        layer.mlp.down_proj.bias.data.normal_()
    monkeypatch.setattr("specdec.llama.supports", lambda model: True)
    assert type(fastest_runner(biased)) is Runner
    assert type(fastest_runner(build("qwen3, with norms"))) is LlamaRunner


@pytest.mark.parametrize("name", EVERY_KERNEL)
def test_every_kernel_computes_each_row_by_itself(name):
    torch.manual_seed(1)
    weight, x = torch.randn(64, 48), torch.randn(9, 48)
    product = kernels.KERNELS[name](weight)
    expected = x @ weight.t()
    assert product(x).is_contiguous() and product(x[:1]).is_contiguous()
    torch.testing.assert_close(product(x), expected, atol=2e-5, rtol=1e-4)
    for i in range(9):
        torch.testing.assert_close(product(x[i : i + 1]), expected[i : i + 1], atol=2e-5, rtol=1e-4)


def test_a_plan_gives_each_number_of_rows_its_kernel(monkeypatch):
    asked = []
    for name in MIXED.split("/"):
        monkeypatch.setitem(kernels.KERNELS, name, lambda weight, name=name: lambda x: asked.append(name) or x @ weight.t())
    product = kernels.product(MIXED, torch.randn(64, 48))
    for rows in (1, 2, 4, 5, 8, 9, 31, 32, 100):
        assert product(torch.randn(rows, 48)).shape == (rows, 64)
    assert asked == [MIXED.split("/")[band] for band in (0, 1, 1, 2, 2, 3, 3, 4, 4)]


def test_a_second_copy_of_the_weights_must_pay():
    times = {"stock": [1.0, 3, 3, 9, 9], "batched": [0.8, 4, 4, 9, 9], "packed": [1.0, 2, 2, 5, 5]}
    assert kernels._best_plan(times, two_copies=False) == "packed"
    assert kernels._best_plan(times, two_copies=True) == "batched/packed/packed/packed/packed"
    assert kernels._best_plan({**times, "batched": [0.99, 4, 4, 9, 9]}, two_copies=True) == "packed"
    del times["packed"]
    assert kernels._best_plan(times, two_copies=True) == "batched/stock/stock/stock/stock"


@needs_half
def test_half_is_only_for_weights_that_16_bits_hold_exactly(tmp_path, monkeypatch):
    monkeypatch.setattr(kernels, "_time", lambda products, x: 1.0 if products[0] in halves else 2.0)
    halves = []
    make = kernels.HALF["half"]
    monkeypatch.setitem(kernels.HALF, "half", lambda weight: halves.append(make(weight)) or halves[-1])
    torch.manual_seed(4)
    model, exact = build("llama"), in_16_bits(build("llama"))
    rounded, held = (LlamaRunner(m, kernel_cache=tmp_path / "kernels.json") for m in (model, exact))
    assert "half" not in rounded.kernels.values() and rounded.held is None
    assert set(held.kernels.values()) == {"half"} and held.held == "float16"
    tiny = torch.full((8, 8), 1e-9)  # would become 0
    assert not kernels.fits_half(tiny) and not kernels.fits_half(torch.full((8, 8), 1e6)) and kernels.fits_half(torch.eye(8))
    plain, together = held.open(), held.open()
    steps = torch.cat([plain.forward([token]) for token in TEXT])
    torch.testing.assert_close(together.forward(TEXT), steps, atol=2e-5, rtol=2e-4)


@needs_onednn
def test_the_choice_of_a_kernel_is_kept_for_the_machine_and_survives_a_broken_file(tmp_path, monkeypatch):
    cache = tmp_path / "kernels.json"
    weights = [torch.randn(64, 48)]
    load, looks = 1.0, []
    names = {}  # product -> its kernel

    def named(name, make):
        def kernel(weight):
            product = make(weight)
            names[product] = name
            return product

        return kernel

    for name, make in dict(kernels.KERNELS).items():
        monkeypatch.setitem(kernels.KERNELS, name, named(name, make))

    def time(products, x):
        name = names[products[0]]
        looks.append((name, len(x)))
        # One busy moment, during the first look at the best one, does not decide.
        return {"stored-transposed": 1.0, "stock": 1.4}.get(name, 2.0) + 9 * (name == "stored-transposed" and len(looks) == 4)

    monkeypatch.setattr(kernels, "_time", time)
    monkeypatch.setattr(kernels, "_load", lambda: load)
    assert kernels.choose(weights, cache=cache) == "stored-transposed"
    once, repeats = len(looks), dict(zip(kernels.ROWS_MEASURED, kernels.REPEATS, strict=True))
    for name in kernels.KERNELS:  # those that are far behind are not looked at again
        for rows, often in repeats.items():
            assert looks.count((name, rows)) == (often if name in ("stored-transposed", "stock") else 2)
    load = 1.0 - kernels.QUIETER
    assert kernels.choose(weights, cache=cache) == "stored-transposed"
    assert len(looks) == once  # not measured again
    load -= 0.01  # the machine is quieter than it was: what was chosen then may have been chosen by chance
    assert kernels.choose(weights, cache=cache) == "stored-transposed"
    assert len(looks) == 2 * once
    load = 9.0
    assert kernels.choose(weights, cache=cache) == "stored-transposed" and len(looks) == 2 * once
    assert list(json.loads(cache.read_text()).values()) == [{"plan": "stored-transposed", "load": 0.49}]
    for broken in ("{broken", json.dumps({key: "stock" for key in json.loads(cache.read_text())})):
        cache.write_text(broken)
        monkeypatch.setattr(kernels, "_time", lambda products, x: 2.0)
        assert kernels.choose(weights, cache=cache) == "batched"  # equal times: the first of the list, without a copy


@pytest.mark.parametrize("weights", list(kernels.REDUCED))
def test_a_row_of_reduced_weights_does_not_depend_on_its_neighbours(weights):
    torch.manual_seed(3)
    weight, x = torch.randn(64, 64), torch.randn(6, 64)
    product = kernels.REDUCED[weights](weight)
    loud = x.clone()
    loud[1:] *= 1000  # what would move the scale of a row that is quantised together with others
    alone = torch.cat([product(row[None]) for row in x])
    torch.testing.assert_close(product(x), alone, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(product(loud)[:1], alone[:1], atol=1e-4, rtol=1e-5)
    exact = x @ weight.t()
    assert (alone - exact).abs().max() < {"float16": 0.01, "int8": 0.3}[weights] and not torch.equal(alone, exact)


@pytest.mark.parametrize("weights", list(kernels.REDUCED))
def test_verification_agrees_with_plain_steps_over_reduced_weights(weights):
    """In int8 a value next to a step of bfloat16 may fall to either side; it stays within what such a step does."""
    torch.manual_seed(5)
    sizes = SIZES | dict(hidden_size=64, intermediate_size=128, head_dim=16)
    model = LlamaForCausalLM(LlamaConfig(**sizes)).eval()
    runner = fastest_runner(model, weights=weights)
    assert isinstance(runner, LlamaRunner) and set(runner.kernels.values()) == {weights}
    plain, together = runner.open(), runner.open()
    steps = torch.cat([plain.forward([token]) for token in TEXT])
    together.forward(TEXT[:5])
    passes = torch.cat([steps[:5], together.forward(TEXT[5:])])
    assert (steps - passes).abs().max() <= {"float16": 1e-4, "int8": 0.05}[weights] * steps.std()


def test_reduced_weights_of_a_model_that_is_not_known_are_refused():
    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=97)).eval()
    with pytest.raises(ModelError, match="GPT2LMHeadModel has no int8 weights here: take it in float32"):
        fastest_runner(model, weights="int8")
