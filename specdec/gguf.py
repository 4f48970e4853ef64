"""Reading the embedded target's GGUF file: its key-value header, its tensors as exact float32, its tokenizer.

transformers reads GGUF too, in about 45 s here, of which 40 s go into walking 98,000 strings four times through a memory map
(and it needs two more packages for it). This file does the same for the two block formats that the embedded target uses, in
about 3 s; a test compares every weight with what transformers makes of the file.

Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md ; blocks: ggml-quants.c, `dequantize_row_q4_1`, `_q8_0`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from specdec.errors import ModelError

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
F32, Q4_1, Q8_0 = 0, 3, 8
_BLOCK_BYTES = {F32: (1, 4), Q4_1: (32, 20), Q8_0: (32, 34)}  # type -> (weights in a block, bytes of a block)
_CONTROL = 3  # tokenizer.ggml.token_type of a control token

# GGUF's name of a tensor -> transformers' name, for the "llama" architecture; "{}" is the layer.
_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
    "blk.{}.attn_norm.weight": "model.layers.{}.input_layernorm.weight",
    "blk.{}.attn_q.weight": "model.layers.{}.self_attn.q_proj.weight",
    "blk.{}.attn_k.weight": "model.layers.{}.self_attn.k_proj.weight",
    "blk.{}.attn_v.weight": "model.layers.{}.self_attn.v_proj.weight",
    "blk.{}.attn_output.weight": "model.layers.{}.self_attn.o_proj.weight",
    "blk.{}.ffn_norm.weight": "model.layers.{}.post_attention_layernorm.weight",
    "blk.{}.ffn_gate.weight": "model.layers.{}.mlp.gate_proj.weight",
    "blk.{}.ffn_up.weight": "model.layers.{}.mlp.up_proj.weight",
    "blk.{}.ffn_down.weight": "model.layers.{}.mlp.down_proj.weight",
}


def _halves(raw: np.ndarray) -> np.ndarray:
    """[blocks, 2] bytes as a column of float32 values [blocks, 1]."""
    return np.ascontiguousarray(raw).view("<f2").astype(np.float32)


@dataclass(frozen=True)
class _Entry:
    """One tensor in the file. shape: as torch counts, rows first."""

    name: str
    shape: tuple[int, ...]
    type: int
    offset: int


class GGUF:
    """A GGUF file, read whole into memory. Raises ModelError when it is no GGUF or uses what this reader does not know."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = path.read_bytes()
        self._at = 0
        if self._data[:4] != b"GGUF":
            raise ModelError(f"{path} is no GGUF file (it starts with {self._data[:4]!r}): delete it and fetch the model again.")
        try:
            self._at = 4
            (version,), (tensors,), (entries,) = self._take("I"), self._take("Q"), self._take("Q")
            if version not in (2, 3):
                raise ModelError(f"{path} is GGUF version {version} and this reader knows 2 and 3: fetch the model again.")
            self.header: dict[str, Any] = {self._string(): self._value(self._take("I")[0]) for _ in range(entries)}
            self.entries = [self._entry() for _ in range(tensors)]
        except (struct.error, UnicodeDecodeError, KeyError) as error:
            raise ModelError(f"{path} is a damaged GGUF file ({error}): delete it and fetch the model again.") from None
        alignment = self.header.get("general.alignment", 32)
        self._start = -(-self._at // alignment) * alignment

    def _take(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + layout, self._data, self._at)
        self._at += struct.calcsize("<" + layout)
        return values

    def _string(self) -> str:
        (length,) = self._take("Q")
        raw = self._data[self._at : self._at + length]
        if len(raw) != length:
            raise struct.error("it ends in the middle of a text")
        self._at += length
        return raw.decode("utf-8")

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            inner, count = self._take("IQ")
            if inner in (_STRING, _ARRAY):
                return [self._value(inner) for _ in range(count)]
            return list(self._take(f"{count}{_SCALARS[inner]}"))
        return self._take(_SCALARS[kind])[0]

    def _entry(self) -> _Entry:
        name, (dimensions,) = self._string(), self._take("I")
        shape = tuple(reversed(self._take(f"{dimensions}Q")))
        return _Entry(name, shape, *self._take("IQ"))

    def tensor(self, entry: _Entry) -> torch.Tensor:
        """One tensor in float32: exactly scale · q (+ minimum), the value that the file stands for."""
        if entry.type not in _BLOCK_BYTES:
            raise ModelError(f"{self.path} stores {entry.name} in block type {entry.type}, which this reader does not know.")
        per_block, size = _BLOCK_BYTES[entry.type]
        blocks = math.prod(entry.shape) // per_block
        # numpy, not torch: one thread that never waits for another, which is faster on a machine that is busy with other things.
        raw = np.frombuffer(self._data, np.uint8, count=blocks * size, offset=self._start + entry.offset).reshape(blocks, size)
        weights = np.empty((blocks, per_block), np.float32)
        if entry.type == F32:
            weights[:] = raw.view("<f4")
        elif entry.type == Q8_0:
            np.multiply(raw[:, 2:].view(np.int8), _halves(raw[:, :2]), out=weights)
        else:
            weights[:, :16] = raw[:, 4:] & 15  # 16 bytes: the low halves are weights 0..15, the high halves 16..31
            weights[:, 16:] = raw[:, 4:] >> 4
            weights *= _halves(raw[:, :2])
            weights += _halves(raw[:, 2:4])
        return torch.from_numpy(weights.reshape(entry.shape))

    def llama_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Name and float32 weight of every tensor, in transformers' names and order of rows."""
        heads = {"q": self.header["llama.attention.head_count"], "k": self.header["llama.attention.head_count_kv"]}
        for entry in self.entries:
            parts = entry.name.split(".")
            layer = parts[1] if parts[0] == "blk" else ""
            pattern = ".".join(["blk", "{}", *parts[2:]]) if layer else entry.name
            if pattern not in _NAMES:
                raise ModelError(f"{self.path} holds a tensor {entry.name}, which a Llama model has not: fetch the model again.")
            weight = self.tensor(entry)
            for which, count in heads.items():
                if f".attn_{which}." in pattern:
                    # GGUF interleaves the two halves of each head for its own rotary kernel; put them back one behind the other.
                    rows = weight.shape[0] // count // 2
                    weight = weight.reshape(count, rows, 2, -1).transpose(1, 2).reshape(entry.shape)
            yield _NAMES[pattern].format(layer), weight.contiguous()

    def llama_config(self) -> dict[str, Any]:
        """What transformers' LlamaConfig wants to know."""
        get = self.header.__getitem__
        tied = all(entry.name != "output.weight" for entry in self.entries)
        return {
            "hidden_size": get("llama.embedding_length"),
            "intermediate_size": get("llama.feed_forward_length"),
            "num_hidden_layers": get("llama.block_count"),
            "num_attention_heads": get("llama.attention.head_count"),
            "num_key_value_heads": get("llama.attention.head_count_kv"),
            "head_dim": get("llama.rope.dimension_count"),
            "max_position_embeddings": get("llama.context_length"),
            "rms_norm_eps": get("llama.attention.layer_norm_rms_epsilon"),
            "rope_parameters": {"rope_type": "default", "rope_theta": get("llama.rope.freq_base")},
            "vocab_size": len(get("tokenizer.ggml.tokens")),
            "bos_token_id": get("tokenizer.ggml.bos_token_id"),
            "eos_token_id": get("tokenizer.ggml.eos_token_id"),
            "pad_token_id": get("tokenizer.ggml.padding_token_id"),
            "tie_word_embeddings": tied,
        }

    def tokenizer(self) -> Tokenizer:
        """The byte-level BPE tokenizer. "smollm" splits off every digit before the usual GPT-2 splitting."""
        if (model := self.header["tokenizer.ggml.model"], self.header["tokenizer.ggml.pre"]) != ("gpt2", "smollm"):
            raise ModelError(f"{self.path} has a tokenizer of kind {model}, and this reader knows gpt2/smollm only.")
        tokens: list[str] = self.header["tokenizer.ggml.tokens"]
        merges = [tuple(pair.split(" ")) for pair in self.header["tokenizer.ggml.merges"]]
        tokenizer = Tokenizer(models.BPE(vocab={token: id for id, token in enumerate(tokens)}, merges=merges))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
        )
        tokenizer.decoder = decoders.ByteLevel()
        control = [t for t, kind in zip(tokens, self.header["tokenizer.ggml.token_type"], strict=True) if kind == _CONTROL]
        tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in control])
        return tokenizer
