"""Small random models of many families, which differ in how they remember: what runner and loop must cope with, or refuse."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import transformers
from tiny import make_model, make_tokenizer

SIZES = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WINDOW = 8  # shorter than every text in the tests
SLIDING, FULL = "sliding_attention", "full_attention"


def a(family: str, *without: str, **more: Any) -> Any:
    """A random model of transformers: {family}Config, {family}ForCausalLM."""
    sizes = {name: value for name, value in SIZES.items() if name not in without} | more
    config = getattr(transformers, f"{family}TextConfig", None) or getattr(transformers, f"{family}Config")
    return getattr(transformers, f"{family}ForCausalLM")(config(**sizes))


def gpt2(*, vocab_size: int = 97) -> Any:
    return make_model("gpt2", vocabulary=vocab_size, layers=4)


FAMILIES = {
    "llama": partial(a, "Llama"),
    "llama with biases": partial(a, "Llama", mlp_bias=True, attention_bias=True),
    "llama 3 rotary": partial(
        a,
        "Llama",
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 1e4,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    ),
    "qwen2": partial(a, "Qwen2"),
    "qwen2, upper layers with a window": partial(
        a, "Qwen2", use_sliding_window=True, sliding_window=WINDOW, max_window_layers=2
    ),
    "qwen3": partial(a, "Qwen3"),
    "gpt2": gpt2,
    "gpt-neox": partial(a, "GPTNeoX", "num_key_value_heads", "head_dim"),
    "mistral, all layers with a window": partial(a, "Mistral", sliding_window=WINDOW),
    "gemma2": partial(a, "Gemma2", sliding_window=WINDOW),
    "gemma3": partial(a, "Gemma3", sliding_window=WINDOW, layer_types=[SLIDING, SLIDING, FULL, SLIDING]),
    "gemma3, full attention first": partial(a, "Gemma3", sliding_window=WINDOW, layer_types=[FULL, FULL, SLIDING, FULL]),
    "phi3": partial(a, "Phi3", "head_dim"),
    "mixtral": partial(a, "Mixtral", num_local_experts=4, num_experts_per_tok=2),
    "gpt-oss": partial(a, "GptOss", sliding_window=WINDOW, num_local_experts=4, num_experts_per_tok=2),
}
REFUSED = {
    "mamba": lambda: transformers.MambaForCausalLM(
        transformers.MambaConfig(vocab_size=97, hidden_size=48, num_hidden_layers=2, state_size=8)
    ),
    "mamba2": lambda: transformers.Mamba2ForCausalLM(
        transformers.Mamba2Config(
            vocab_size=97, hidden_size=48, num_hidden_layers=2, state_size=8, num_heads=8, head_dim=12, n_groups=1
        )
    ),
    "rwkv": lambda: transformers.RwkvForCausalLM(
        transformers.RwkvConfig(vocab_size=97, hidden_size=48, num_hidden_layers=2, context_length=64)
    ),
    "recurrent gemma": lambda: a(
        "RecurrentGemma",
        "max_position_embeddings",
        "initializer_range",
        lru_width=48,
        attention_window_size=WINDOW,
        block_types=["recurrent", "attention"],
    ),
    "jamba, half of it recurrent": lambda: a(
        "Jamba", "head_dim", use_mamba_kernels=False, attn_layer_period=2, attn_layer_offset=1, num_experts=2, mamba_d_state=8
    ),
    "lfm2, convolutions": lambda: a("Lfm2", "head_dim", layer_types=["conv", "full_attention"] * 2),
}


def build(family: str, *, seed: int = 0, **sizes: int) -> Any:
    """A random model of `FAMILIES`; sizes: of its configuration, for instance vocab_size."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = FAMILIES[family](**sizes).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 1:  # norms and biases begin as ones and zeros, which hides mistakes
                    parameter += 0.1 * torch.randn_like(parameter)
    return model


def related_pair(*, noise: float = 0.015, layers: int = 3, seed: int = 0) -> Any:
    """A pair whose draft is the target with noise on its weights, so that it is right about as often as wrong.

    Two random models agree on nothing: every draft is rejected, and half of the rules go untested.
    """
    from specdec.models import make_pair

    tokenizer = make_tokenizer()
    target, draft = (make_model("llama", vocabulary=len(tokenizer), layers=layers, seed=seed) for _ in range(2))
    numbers = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in draft.parameters():
            weight += noise * torch.randn(weight.shape, generator=numbers)
    return make_pair(target, tokenizer, draft=draft, name="related", title="a target and its noisy copy", measure=False)
