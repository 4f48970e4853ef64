"""A cache that rolls back leaves no trace: whatever was fed and taken back, logits are those of the model without any cache.

Checked for families of models that differ in how they remember: full attention, learned positions, windows smaller than the text,
mixtures of experts. What cannot take tokens back must be refused.
"""

from __future__ import annotations

import random

import pytest
import torch
from families import FAMILIES, REFUSED, build

from specdec.errors import ModelError
from specdec.llama import fastest_runner
from specdec.runner import Runner
from specdec.static_runner import StaticRunner

TEXT = torch.randint(3, 97, (40,), generator=torch.Generator().manual_seed(1)).tolist()


@torch.inference_mode()
def without_cache(model, ids: list[int]) -> torch.Tensor:
    """Logits [n, V] of one pass over everything."""
    return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-3)


LEAN = ("llama", "qwen2", "qwen3")  # what the lean runner takes over from the eager one
STATIC = (  # one of each kind of layers
    "llama",
    "qwen2, upper layers with a window",
    "qwen3",
    "gpt2",
    "mistral, all layers with a window",
    "gemma2",
    "gemma3",
    "gpt-oss",
)
RUNNERS = (
    {name: (name, Runner) for name in FAMILIES}
    | {f"{name}, lean": (name, fastest_runner) for name in LEAN}
    | {f"{name}, static": (name, StaticRunner) for name in STATIC}
)


@pytest.fixture(scope="module", params=RUNNERS)
def made(request):
    """(model, runner) of every family by the eager runner, and by the lean one where it computes the model."""
    name, make = RUNNERS[request.param]
    model = build(name)
    return model, make(model)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_fastest_runner_computes_the_model(name):
    """The lean runner takes what it computes exactly and leaves the rest to the eager one."""
    model = build(name)
    runner = fastest_runner(model)
    assert (type(runner) is not Runner) == (name in LEAN)
    close(runner.open().forward(TEXT[:12]), without_cache(model, TEXT[:12]))


def test_logits_with_the_cache_are_those_without_it(made):
    """Rounds of all shapes as the loop makes them: feed the newest token and wrong or right drafts, take the wrong ones back."""
    model, runner = made
    wanted = without_cache(model, TEXT)
    numbers = random.Random(5)
    sequence = runner.open()
    close(sequence.forward(TEXT[:11], keep=1), wanted[10:11])
    length = 11
    while length < len(TEXT):
        right = min(numbers.randint(1, 5), len(TEXT) - length)
        drafts = [numbers.randrange(3, 97) for _ in range(numbers.randint(0, 5))]
        logits = sequence.forward(TEXT[length : length + right] + drafts, keep=right + len(drafts))
        close(logits[:right], wanted[length : length + right])
        length += right
        sequence.crop(length)
        assert sequence.length == length


def test_early_exit_is_the_first_layers_with_the_final_head_and_leaves_no_trace(made):
    model, runner = made
    wanted = without_cache(model, TEXT)
    with torch.inference_mode():
        # What layer 2 reads is what layer 1 wrote; norm and head are the model's own.
        states = model(input_ids=torch.tensor([TEXT]), output_hidden_states=True).hidden_states[2]
        body = getattr(model, "model", None) or getattr(model, "transformer", None) or model.gpt_neox
        norm = next(getattr(body, name) for name in ("norm", "ln_f", "final_layer_norm") if hasattr(body, name))
        exits = model.get_output_embeddings()(norm(states))[0]
        if (limit := getattr(model.config, "final_logit_softcapping", None)) is not None:
            exits = limit * (exits / limit).tanh()
    sequence = runner.open()
    sequence.forward(TEXT[:20], keep=1)
    for start in (20, 22, 25):
        for offset in range(3):
            close(sequence.forward_exit([TEXT[start + offset]], layers=2, offset=offset), exits[start + offset][None])
        sequence.crop_exit(layers=2)
        assert sequence.length == start
        right = {20: 2, 22: 3, 25: 3}[start]
        close(sequence.forward(TEXT[start : start + right]), wanted[start : start + right])
    sequence.forward_exit([5], layers=3)
    sequence.crop_exit(layers=3)
    close(sequence.forward([TEXT[28]]), wanted[28:29])


def test_hidden_states_are_those_of_the_model(made):
    model, runner = made
    with torch.inference_mode():
        states = model(input_ids=torch.tensor([TEXT]), output_hidden_states=True).hidden_states
    layers = (0, 2, runner.layers)
    sequence = runner.open(hidden_layers=layers)
    for start, end in ((0, 12), (12, 13), (13, 19)):
        sequence.forward(TEXT[start:end], keep=1)
        wanted = torch.stack([states[k][0, start:end] for k in layers], dim=1)
        torch.testing.assert_close(sequence.hidden, wanted, atol=1e-4, rtol=1e-3)


def test_rolling_back_by_nothing_or_everything(made):
    model, runner = made
    wanted = without_cache(model, TEXT[:14])
    sequence = runner.open()
    sequence.forward(TEXT[:10])
    sequence.crop(10)
    sequence.crop(10)
    close(sequence.forward(TEXT[10:14]), wanted[10:])
    sequence.crop(0)
    assert sequence.length == 0
    close(sequence.forward(TEXT[:1]), wanted[:1])


def test_rolling_back_to_where_it_has_not_been_is_refused(made):
    _, runner = made
    sequence = runner.open()
    sequence.forward(TEXT[:5])
    for length in (6, -1):
        with pytest.raises(ValueError, match=f"cannot roll back to {length} tokens: the cache holds 5"):
            sequence.crop(length)


def test_only_the_wanted_logits_come_back(made):
    _, runner = made
    everything = runner.open().forward(TEXT[:9])
    assert everything.shape == (9, 97) and everything.dtype == torch.float32
    close(runner.open().forward(TEXT[:9], keep=3), everything[-3:])
    close(runner.open().forward(TEXT[:9], keep=1), everything[-1:])


def test_two_sequences_of_one_model_do_not_see_each_other(made):
    model, runner = made
    wanted = without_cache(model, TEXT), without_cache(model, TEXT[::-1])
    left, right = runner.open(), runner.open()
    for start in range(0, 40, 4):
        close(left.forward(TEXT[start : start + 4]), wanted[0][start : start + 4])
        close(right.forward(TEXT[::-1][start : start + 4]), wanted[1][start : start + 4])


def test_padding_of_the_vocabulary_is_cut_off(made):
    model, runner = made
    logits = type(runner)(model, vocabulary=90).open().forward(TEXT[:3], keep=2)
    close(logits, without_cache(model, TEXT[:3])[1:, :90])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_logits_are_float32_whatever_the_model_computes_in(dtype):
    logits = fastest_runner(build("llama").to(dtype)).open().forward(TEXT[:4], keep=2)
    assert logits.dtype == torch.float32 and logits.isfinite().all()


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_with_a_running_state_is_refused(name):
    torch.manual_seed(0)
    model = REFUSED[name]().eval()
    with pytest.raises(ModelError, match="take back") as raised:
        fastest_runner(model)
    message = str(raised.value)
    assert type(model).__name__ in message and "choose a model with plain attention" in message and "\n" not in message


def test_an_impossible_exit_is_refused():
    runner = Runner(build("llama"))
    for layers in (0, 4, 9):
        with pytest.raises(ModelError, match=f"early exit after {layers} layers is impossible"):
            runner.open().forward_exit([1], layers=layers)
