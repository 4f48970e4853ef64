"""Small random models and a byte-level tokenizer, made on the spot: everything that a real pair has, in milliseconds."""

from __future__ import annotations

from typing import Any

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|start|>' + message['role'] + '\n' + message['content'] + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}"
)
MERGES = (
    ("t", "h"),
    ("th", "e"),
    ("Ġ", "the"),
    ("i", "n"),
    ("a", "n"),
    ("Ġ", "a"),
    ("e", "r"),
    ("o", "n"),
    ("Ċ", "Ċ"),
    ("Ġ", "ð"),
)


def make_tokenizer(
    *, merges: tuple[tuple[str, str], ...] = MERGES, control: tuple[str, ...] = ("<|end|>", "<|start|>"), chat: bool = True
) -> Any:
    """Byte-level BPE over all 256 bytes: ids 0..1 control tokens, 2..257 bytes, then the merges."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from specdec.tokens import byte_alphabet

    letters = sorted(byte_alphabet(), key=byte_alphabet().get)
    words = [*control, *letters, *("".join(pair) for pair in merges)]
    tokenizer = Tokenizer(models.BPE(vocab={word: id for id, word in enumerate(words)}, merges=list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in control])
    named = {"eos_token": control[0], "bos_token": control[1]} if len(control) > 1 else {}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=CHAT_TEMPLATE if chat else None, **named)


def make_model(
    kind: str = "llama", *, vocabulary: int, seed: int = 0, layers: int = 2, width: int = 32, context: int = 512
) -> Any:
    """A random causal model in float32: "llama", "gpt2" or "qwen". Its logits are spread enough to have a clear argmax."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    shared = {
        "vocab_size": vocabulary,
        "eos_token_id": 0,
        "bos_token_id": 1,
        "tie_word_embeddings": kind == "gpt2",
        "initializer_range": 0.2,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if kind == "gpt2":
            config = GPT2Config(n_embd=width, n_layer=layers, n_head=4, n_positions=context, **shared)
            return GPT2LMHeadModel(config).eval()
        rest = {"hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": layers, "num_attention_heads": 4}
        rest |= {"num_key_value_heads": 2, "max_position_embeddings": context}
        classes = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen": (Qwen2Config, Qwen2ForCausalLM)}[kind]
        return classes[1](classes[0](**shared, **rest)).eval()


def make_tiny_pair(
    kind: str = "llama",
    *,
    draft: bool = True,
    seed: int = 0,
    padding: int = 0,
    layers: int = 2,
    draft_layers: int = 1,
    context: int = 512,
    chat: bool = True,
    measure: bool = False,
) -> Any:
    """A pair of random models that share `make_tokenizer()`. padding: rows that the target's embedding has beyond the draft's."""
    from specdec.models import make_pair

    tokenizer = make_tokenizer(chat=chat)
    target = make_model(kind, vocabulary=len(tokenizer) + padding, seed=seed, layers=layers, context=context)
    small = (
        make_model(kind, vocabulary=len(tokenizer), seed=seed + 1, layers=draft_layers, width=16, context=context)
        if draft
        else None
    )
    return make_pair(
        target, tokenizer, draft=small, name=f"tiny-{kind}", title=f"tiny {kind}", target_name="tiny", measure=measure
    )
