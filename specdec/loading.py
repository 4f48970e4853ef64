"""From a folder to a model in memory, and the facts that only the loaded model tells: does its cache roll back, how long is a
step.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import torch

from specdec import placement
from specdec.errors import ModelError
from specdec.runner import Runner
from specdec.store import Progress, silent

_MEASURE_SECONDS = 1.0  # longest time spent on timing the plain step when a pair is loaded,
AGAIN_SECONDS = 0.2  # and behind a run
_MEASURE_STEPS = 20


def eos_ids(model: Any, tokenizer: Any, *, vocabulary: int) -> frozenset[int]:
    """Every id that ends a text: of the generation config, of the model's config and of the tokenizer."""
    found: set[int] = set()
    for source in (getattr(model, "generation_config", None), model.config, model.config.get_text_config(), tokenizer):
        ids = getattr(source, "eos_token_id", None)
        found.update(ids if isinstance(ids, (list, tuple)) else [] if ids is None else [ids])
    return frozenset(int(i) for i in found if 0 <= i < vocabulary)


def measure_plain_step(runner: Runner, *, longest: float = _MEASURE_SECONDS, progress: Progress = silent) -> float:
    """Median seconds of one plain step of `runner`, warmed up and with the device waited for; takes about `longest` seconds at most,
    but three steps at least."""
    sequence = runner.open()
    sequence.forward([0] * 16, keep=1)
    sequence.forward([0], keep=1)
    runner.synchronize()
    seconds: list[float] = []
    while len(seconds) < 3 or len(seconds) < _MEASURE_STEPS and sum(seconds) < longest:
        progress("measuring", len(seconds), _MEASURE_STEPS)
        begun = time.perf_counter()
        int(sequence.forward([0], keep=1)[-1].argmax())  # a plain greedy step chooses its token, and choosing waits for the device
        runner.synchronize()
        seconds.append(time.perf_counter() - begun)
    progress("measuring", _MEASURE_STEPS, _MEASURE_STEPS)
    return statistics.median(seconds)


@torch.inference_mode()
def measure_read_bandwidth(device: torch.device, *, size: int | None = None) -> float | None:
    """Bytes per second at which `device` reads its memory: the best of a few sums over `size` bytes, far more than caches hold, and on
    a GPU so many that to begin and to wait takes no time beside them.

    A pass reads every weight at least once, so bytes / bandwidth is the least that it can take. None where there is no room.
    """
    size = size or (1 << 31 if device.type == "cuda" else 1 << 28)
    try:
        block = torch.ones(size // 4, device=device)
    except (RuntimeError, MemoryError):
        return None
    best = float("inf")
    for _ in range(6):
        begun = time.perf_counter()
        float(block.sum())  # waits for the device
        best = min(best, time.perf_counter() - begun)
    return size / best


@torch.inference_mode()
def check_roll_back(runner: Runner, *, name: str) -> None:
    """Feed tokens, take them back, feed others: the logits must be those of a cache that never saw the first ones.

    Raises ModelError otherwise, for instance for a state that runs on, or positions that are counted and not told.
    """
    first, wrong, right = ([i % runner.vocabulary for i in ids] for ids in ([1, 2, 3], [4, 5, 6], [6, 4]))
    used, fresh = runner.open(), runner.open()
    used.forward(first + wrong, keep=1)
    used.crop(len(first))
    fresh.forward(first, keep=1)
    a, b = used.forward(right, keep=1)[-1], fresh.forward(right, keep=1)[-1]
    tolerance = (
        1e-3 if runner.dtype == torch.float32 else 0.05
    )  # of the spread of the logits; kernels differ with the shape of a pass
    if not (a - b).abs().mean() <= tolerance * b.std():
        raise ModelError(
            f"{name} cannot be used: after taking back tokens it answers differently than if it had never seen them; choose a "
            "model with plain attention."
        )


@torch.inference_mode()
def check_window(runner: Runner, *, name: str) -> None:
    """See that layers which keep a window of tokens only get back what had left it when tokens are taken back.

    The model is not asked, which would take thousands of tokens: its cache is filled with the numbers of the positions instead.
    Raises ModelError where the installed transformers loses them.
    """
    window = min((w for layer in _cache_layers(runner) if (w := getattr(layer, "sliding_window", None))), default=None)
    if window is None or window >= runner.context:
        return
    sequence, length, back = runner.open(), window + 3, 2

    def feed(count: int) -> list[torch.Tensor]:
        positions = torch.arange(sequence.length, sequence.length + count).float().view(1, 1, -1, 1)
        sequence.length += count
        return [sequence.cache.update(positions, positions, index)[0].flatten() for index in range(len(sequence.cache.layers))]

    try:
        feed(window)
        feed(length - window)
        sequence.crop(length - back)
        seen = feed(1)
        expected = torch.arange(length - back + 1).float()[-window:]
        whole = all(torch.equal(positions[-window:], expected) for positions in seen)
    except (RuntimeError, ValueError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise ModelError(
            f"{name} cannot be used: some of its layers see a window of {window:,} tokens only, and the transformers that is "
            "installed cannot roll back in it; install a newer transformers, or choose a model with plain attention."
        )


def _cache_layers(runner: Runner) -> list[Any]:
    return list(getattr(getattr(runner.open(), "cache", None), "layers", []))


def can_exit_early(runner: Runner) -> bool:
    """Can the first layers of the model be run by themselves? Some architectures are not a plain stack."""
    if runner.layers < 2:
        return False
    try:
        sequence = runner.open()
        sequence.forward([0, 0], keep=1)
        sequence.forward_exit([0], layers=1)
        sequence.crop_exit(layers=1)
    except Exception:  # noqa: BLE001  whatever it is, this drafter is not offered, and the others still are
        return False
    return True


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer in `folder`. Asks no network and runs no code of the folder."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # a broken tokenizer can fail in any library below
        raise ModelError(
            f"The tokenizer in {folder} cannot be read ({_first_line(error)}): copy or fetch the model again."
        ) from error


def load_model(
    folder: Path, *, name: str, device: torch.device, dtype: str, split: str = "", progress: Progress = silent
) -> Any:
    """The causal language model in `folder`, on `device`, in evaluation mode. Asks no network, opens no pickle, runs no code of
    the folder. split: over several devices, see `specdec.placement`. Raises ModelError.
    """
    from transformers import AutoModelForCausalLM

    stage = f"loading {name}"
    try:
        with _bars(stage, progress):
            # With accelerate the weights go straight to the device, or to several.
            model = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=getattr(torch, dtype),
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                **placement.arguments(split, device),
            )
            placement.check_placed(model, split, name=name)
            return (model if split else model.to(device)).eval()
    except torch.OutOfMemoryError as error:
        raise ModelError(
            f"{name} does not fit into the memory of {device}: take a smaller pair, --dtype bfloat16 or --device cpu."
        ) from error
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            f"{name} in {folder} cannot be loaded ({_first_line(error)}): choose a causal language model of transformers."
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


@contextlib.contextmanager
def _bars(stage: str, progress: Progress) -> Iterator[None]:
    """transformers draws bars of its own on the terminal; turn them into calls of `progress` where that is possible."""
    from transformers.utils import logging

    was_on = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    hook = getattr(logging, "set_tqdm_hook", None)
    before = hook(lambda factory, args, kwargs: _Reported(stage, progress, *args, **kwargs)) if hook else None
    try:
        yield
    finally:
        if hook:
            hook(before)
        if was_on:
            logging.enable_progress_bar()


class _Reported:
    """Stands in for a tqdm bar."""

    def __init__(
        self, stage: str, progress: Progress, iterable: Any = None, *args: Any, total: int | None = None, **kwargs: Any
    ) -> None:
        self._stage, self._progress, self._iterable = stage, progress, iterable
        self._done, self._total = 0, total if total is not None else len(iterable) if hasattr(iterable, "__len__") else None

    def __iter__(self) -> Iterator[Any]:
        for item in self._iterable:
            yield item
            self.update()

    def update(self, n: int = 1) -> None:
        self._done += n
        self._progress(self._stage, self._done, self._total)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None
