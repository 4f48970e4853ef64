"""The reader of the GGUF file: every weight is what the file stands for, and a damaged file is one sentence."""

from pathlib import Path

import numpy as np
import pytest
import torch
from fake_package import HEADS, KV_HEADS, write_gguf

from specdec.errors import ModelError
from specdec.gguf import GGUF

pytest.importorskip("gguf", reason="the package gguf writes the files that these tests read")


def sentence(error: pytest.ExceptionInfo) -> str:
    text = str(error.value)
    assert "\n" not in text and text.endswith("."), text
    return text


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
