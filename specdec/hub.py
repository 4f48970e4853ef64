"""From a hub id or a folder to a folder that can be loaded without a network.

Only what is data is ever taken: safetensors weights, configurations, tokenizers. Pickled weights and code of a repository are
not opened. A model that is already in the hub's cache is used as it is, without asking the hub.
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec import store
from specdec.errors import ModelError
from specdec.store import Progress, silent

_WANTED = [
    "*.safetensors",
    "*.safetensors.index.json",
    "*.json",
    "*.jinja",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "*.tiktoken",
]
_UNWANTED = ["*/*", "consolidated*"]  # other formats and copies lie in folders of their own
_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")

RoomCheck = Callable[[int], object]


def find_model(name: str, *, progress: Progress = silent, check_room: RoomCheck | None = None) -> Path:
    """Folder of the model called `name`: a folder of that name, else a hub id, taken from the hub's cache or fetched into it.

    check_room(parameters) is called before anything large is fetched, as soon as the number of weights is known; it raises to
    refuse. Raises ModelError with one sentence for an unknown, gated, unreachable or unusable model.
    """
    name = name.strip()
    folder = Path(name).expanduser()
    if folder.is_dir():
        _require_whole(folder, name)
        return folder
    if not _ID.fullmatch(name) or name.startswith((".", "~", os.sep)):
        raise ModelError(
            f"There is no folder {name!r}, and it is no hub id either: give a folder with a model, or an id like Qwen/Qwen3-0.6B."
        )
    return _cached(name) or _fetch(name, progress, check_room)


@dataclass(frozen=True)
class Weights:
    """parameters: number of weights in the files of a model. stored: the format of most of them ("float32", "bfloat16", ...)."""

    parameters: int
    stored: str


def weigh(folder: Path) -> Weights:
    """What the safetensors files of `folder` hold, read from their headers alone."""
    counts: Counter[str] = Counter()
    for path in weight_files(folder):
        with path.open("rb") as file:
            try:
                (length,) = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(min(length, 100_000_000)))
                for name, entry in header.items():
                    if name != "__metadata__":
                        counts[entry["dtype"]] += math.prod(entry["shape"])
            except (struct.error, ValueError, KeyError, TypeError, AttributeError):
                raise ModelError(f"{path} is no safetensors file or a damaged one: copy or fetch the model again.") from None
    most = max(counts, key=counts.__getitem__, default="F32")
    return Weights(counts.total(), {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}.get(most, most))


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that make up the model in `folder`, empty if any of them is missing."""
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file():
        return [folder / "model.safetensors"]
    try:
        files = sorted({folder / name for name in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()})
    except (OSError, ValueError, KeyError, AttributeError):
        return []
    return files if all(path.is_file() for path in files) else []


def _require_whole(folder: Path, name: str) -> None:
    if not (folder / "config.json").is_file():
        raise ModelError(
            f"The folder {name} holds no config.json, so it is no model in transformers' format: give the folder that has it."
        )
    if not weight_files(folder):
        pickled = any(folder.glob("*.bin")) or any(folder.glob("*.pt*"))
        why = "only pickled weights, which can run code and are not opened" if pickled else "no complete safetensors weights"
        raise ModelError(
            f"The folder {name} holds {why}: save the model with save_pretrained as safetensors and give that folder."
        )


def _cached(name: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    try:
        found = try_to_load_from_cache(name, "config.json")
    except ValueError:  # no possible id
        return None
    if not isinstance(found, str):
        return None
    folder = Path(found).parent
    tokenizer = any((folder / file).is_file() for file in ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"))
    return folder if weight_files(folder) and tokenizer else None


def _fetch(name: str, progress: Progress, check_room: RoomCheck | None) -> Path:
    from huggingface_hub import HfApi, constants, snapshot_download

    try:
        progress(f"asking the hub for {name}", 0, None)
        info = HfApi().model_info(name, files_metadata=True, timeout=30)
        sizes = {
            s.rfilename: s.size or 0
            for s in info.siblings or ()
            if "/" not in s.rfilename and not s.rfilename.startswith("consolidated")
        }
        weights = sum(size for file, size in sizes.items() if file.endswith(".safetensors"))
        if not weights:
            raise ModelError(
                f"{name} has no safetensors weights on the hub, and pickled ones can run code and are not opened: choose another."
            )
        if check_room:
            # Where the hub has not counted the weights, most models are published in two bytes a weight.
            check_room(info.safetensors.total if info.safetensors and info.safetensors.total else weights // 2)
        cache = Path(constants.HF_HUB_CACHE)
        with store.disk_errors(cache):
            store.require_space(cache, weights + 50_000_000, purpose=f"Fetching {name}")
            bar = _bar(progress, f"downloading {name}", weights)
            return Path(snapshot_download(name, allow_patterns=_WANTED, ignore_patterns=_UNWANTED, tqdm_class=bar))
    except ModelError:
        raise
    except Exception as error:  # the hub's client lets errors of several other packages through
        raise ModelError(_sentence(error, name)) from error


def _bar(progress: Progress, stage: str, total: int) -> type:
    """A progress bar class for the hub's client that draws nothing and reports bytes."""
    from tqdm import tqdm

    class Bar(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("name", None)
            super().__init__(*args, **kwargs | {"file": _Nowhere(), "disable": False})

        def update(self, n: float | None = 1) -> bool | None:
            done = super().update(n)
            if self.unit == "B":
                progress(stage, int(min(self.n, total)), total)
            return done

    return Bar


class _Nowhere:
    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


def _sentence(error: Exception, name: str) -> str:
    """One sentence for whatever the hub's client raised."""
    from huggingface_hub import errors

    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.GatedRepoError):
        return (
            f"{name} is gated and the hub does not let this computer in: accept its licence on its page there, make a token, run "
            "`hf auth login` (or set HF_TOKEN), and start again; or take a pair that is open."
        )
    if isinstance(error, (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.HFValidationError)):
        return (
            f"The hub knows no model {name} (or it is private and needs `hf auth login`), and no folder here is called so: check "
            "the spelling."
        )
    if isinstance(error, errors.OfflineModeIsEnabled):
        return (
            f"{name} is not on this computer and HF_HUB_OFFLINE forbids to fetch it: unset that, or give a folder with the model."
        )
    if status in (401, 403):
        return (
            f"The hub refuses {name} with the token that is set here ({status}): run `hf auth login` with one that may read it."
        )
    if status == 429:
        return f"The hub asks to slow down ({status}) before it hands out {name}: wait some minutes and start again."
    return (
        f"{name} is not on this computer and could not be fetched ({type(error).__name__}): connect to a network that reaches "
        "the model hub and start again, give a folder that holds the model, or take the embedded pair, which needs no hub."
    )
