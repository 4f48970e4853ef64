"""Loading a pair: the catalogue's names, hub ids or folders in; two checked models, one tokenizer and the facts about them out.

    pair = load_pair()                                                        # the embedded target
    pair = load_pair("qwen3-4b", device="cuda")
    pair = load_pair(target="Qwen/Qwen3-4B", draft="/models/my-draft")

A pair is refused, with the reason, when it does not fit into memory, when its tokenizers differ, or when a cache cannot roll back.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from specdec.catalogue import CATALOGUE, DEFAULT_PAIR, EMBEDDED, PairSpec
from specdec.devices import choose_device, choose_dtype, device_name, require_memory
from specdec.errors import ModelError, PairError, SettingsError
from specdec.fetch import fetch_embedded
from specdec.fit import common_vocabulary
from specdec.hub import count_parameters, find_model
from specdec.runner import Runner
from specdec.store import Progress, silent
from specdec.tokens import TokenTexts, encode_prompt
from specdec.trace import PairInfo

__all__ = ["CATALOGUE", "DEFAULT_PAIR", "Pair", "PairSpec", "load_pair", "make_pair"]

_MEASURE_SECONDS = 1.0  # longest time spent on timing the plain step
_MEASURE_STEPS = 20


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A target that is ready to run and, where the pair has one, its draft.

    vocabulary: ids that both models know. context: tokens that both can hold. eos_ids: any of them ends a text.
    plain_step_seconds: median time of one plain target step on this device, None if not measured.
    attached: drafters that were trained for this very target, name -> maker(settings).
    """

    name: str
    title: str
    target_name: str
    draft_name: str | None
    target: Runner
    draft: Runner | None
    tokenizer: Any
    texts: TokenTexts
    device: torch.device
    device_name: str
    dtype: str
    vocabulary: int
    context: int
    eos_ids: frozenset[int]
    has_chat_template: bool
    plain_step_seconds: float | None = None
    attached: dict[str, Callable[[Any], Any]] = field(default_factory=dict)

    def encode(self, prompt: str, *, raw: bool) -> list[int]:
        """The prompt as token ids, see `specdec.tokens.encode_prompt`."""
        ids = encode_prompt(self.tokenizer, prompt, raw=raw)
        if ids and max(ids) >= self.vocabulary:
            raise SettingsError(
                f"The prompt holds {self.texts.text(max(ids))!r}, a token that only one of the two models knows: leave it out."
            )
        return ids

    @property
    def drafters(self) -> tuple[str, ...]:
        """Names of the drafters that this pair offers, its default first."""
        early = ("early-exit",) if self.target.layers > 1 else ()
        return (*self.attached, *(("draft",) if self.draft else ()), *early, "lookup")

    def info(self, drafter: str) -> PairInfo:
        """What a trace says about the pair when `drafter` proposed."""
        draft = self.draft if drafter == "draft" else None
        return PairInfo(
            name=self.name,
            target=self.target_name,
            draft=self.draft_name if draft else None,
            target_parameters=self.target.parameters,
            draft_parameters=draft.parameters if draft else None,
            dtype=self.dtype,
            vocabulary=self.vocabulary,
            context=self.context,
        )


def load_pair(
    name: str | None = None,
    *,
    target: str | None = None,
    draft: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    progress: Progress | None = None,
) -> Pair:
    """Load a pair by its catalogue name, or a target and (if wanted) a draft by hub id or folder; "embedded" stands for the embedded one.

    With neither, the embedded pair. A catalogue name with `target` or `draft` exchanges that side of it. progress(stage, done, total) is
    called often: bytes while something is fetched, else items. Raises ModelError, PairError or SettingsError, one sentence each.
    """
    progress = progress or silent
    spec = _spec(name) if name is not None or target is None else None
    target_name = target or spec.target
    draft_name = draft or (spec.draft if spec else None)
    same = spec is not None and target_name == spec.target and draft_name == spec.draft
    title = spec.title if same else " with ".join(_last(n) for n in (target_name, draft_name) if n)
    chosen = choose_device(device)

    folders: list[Path] = []
    parameters = 0
    number_format = choose_dtype(dtype, device=chosen, parameters=spec.parameters if same else 0)
    if same and spec.name != EMBEDDED:  # known without asking anybody
        require_memory(spec.parameters, dtype=number_format, device=chosen, title=title)
    for model in filter(None, (target_name, draft_name)):
        known = parameters

        def check_room(count: int) -> None:
            format_ = choose_dtype(dtype, device=chosen, parameters=known + count)
            require_memory(known + count, dtype=format_, device=chosen, title=title)

        folders.append(_locate(model, progress, check_room))
        parameters += count_parameters(folders[-1])
    number_format = choose_dtype(dtype, device=chosen, parameters=parameters)
    require_memory(parameters, dtype=number_format, device=chosen, title=title)

    models = [_load_model(folder, chosen, number_format, progress) for folder in folders]
    tokenizers = [_load_tokenizer(folder) for folder in folders]
    return make_pair(
        models[0],
        tokenizers[0],
        draft=models[1] if len(models) > 1 else None,
        draft_tokenizer=tokenizers[1] if len(models) > 1 else None,
        name=spec.name if same else " + ".join(filter(None, (target_name, draft_name))),
        title=title,
        target_name=_last(target_name),
        draft_name=_last(draft_name) if draft_name else None,
        progress=progress,
    )


def make_pair(
    target: Any,
    tokenizer: Any,
    *,
    draft: Any = None,
    draft_tokenizer: Any = None,
    name: str = "custom",
    title: str = "",
    target_name: str = "target",
    draft_name: str | None = None,
    measure: bool = True,
    progress: Progress = silent,
) -> Pair:
    """A pair of models of transformers that are already in memory (on one device).

    draft_tokenizer: None if it is the target's. measure: time the plain step. Raises PairError when the two do not fit together and
    ModelError when a cache cannot roll back.
    """
    draft_name = (draft_name or "draft") if draft is not None else None
    vocabulary = _rows(target)
    if draft is not None:
        progress("comparing the tokenizers", 0, None)
        vocabulary = common_vocabulary(
            tokenizer, draft_tokenizer or tokenizer, target_size=_rows(target), draft_size=_rows(draft), names=(target_name, draft_name)
        )
    runner = _runner(target, vocabulary, target_name)
    draft_runner = None if draft is None else _runner(draft, vocabulary, draft_name)
    if draft_runner and draft_runner.device != runner.device:
        raise PairError(f"{target_name} is on {runner.device} and {draft_name} on {draft_runner.device}: load both on one device.")
    contexts = [runner.context, *([draft_runner.context] if draft_runner else [])]
    return Pair(
        name=name,
        title=title or " with ".join(filter(None, (target_name, draft_name))),
        target_name=target_name,
        draft_name=draft_name,
        target=runner,
        draft=draft_runner,
        tokenizer=tokenizer,
        texts=TokenTexts(tokenizer),
        device=runner.device,
        device_name=device_name(runner.device),
        dtype=str(runner.dtype).removeprefix("torch."),
        vocabulary=vocabulary,
        context=min(contexts),
        eos_ids=eos_ids(target, tokenizer, vocabulary=vocabulary),
        has_chat_template=bool(tokenizer.chat_template),
        plain_step_seconds=measure_plain_step(runner, progress=progress) if measure else None,
    )


def eos_ids(model: Any, tokenizer: Any, *, vocabulary: int) -> frozenset[int]:
    """Every id that ends a text: of the generation config, of the model's config and of the tokenizer."""
    found: set[int] = set()
    for source in (getattr(model, "generation_config", None), model.config, model.config.get_text_config(), tokenizer):
        ids = getattr(source, "eos_token_id", None)
        found.update(ids if isinstance(ids, (list, tuple)) else [] if ids is None else [ids])
    return frozenset(int(i) for i in found if 0 <= i < vocabulary)


def measure_plain_step(runner: Runner, *, progress: Progress = silent) -> float:
    """Median seconds of one plain step of `runner`, warmed up and with the device waited for; takes about a second at most."""
    sequence = runner.open()
    sequence.forward([0] * 16, keep=1)
    sequence.forward([0], keep=1)
    runner.synchronize()
    seconds: list[float] = []
    while len(seconds) < _MEASURE_STEPS and sum(seconds) < _MEASURE_SECONDS:
        progress("measuring", len(seconds), _MEASURE_STEPS)
        begun = time.perf_counter()
        int(sequence.forward([0], keep=1)[-1].argmax())  # a plain greedy step chooses its token, and choosing waits for the device
        runner.synchronize()
        seconds.append(time.perf_counter() - begun)
    progress("measuring", _MEASURE_STEPS, _MEASURE_STEPS)
    return statistics.median(seconds)


def _spec(name: str | None) -> PairSpec:
    if (spec := CATALOGUE.get(name or DEFAULT_PAIR)) is None:
        raise ModelError(f"There is no pair called {name!r}: take one of {', '.join(CATALOGUE)}, or give a target and a draft.")
    return spec


def _last(name: str) -> str:
    """The part of a hub id or path that people call a model by."""
    return Path(name).name or name


def _locate(name: str, progress: Progress, check_room: Callable[[int], None]) -> Path:
    if name in (EMBEDDED, CATALOGUE[EMBEDDED].target):
        check_room(CATALOGUE[EMBEDDED].parameters)
        return fetch_embedded(progress=progress)
    return find_model(name, progress=progress, check_room=check_room)


def _rows(model: Any) -> int:
    return int(model.config.get_text_config().vocab_size)


def _runner(model: Any, vocabulary: int, name: str) -> Runner:
    runner = Runner(model, vocabulary=vocabulary)
    check_roll_back(runner, name=name)
    return runner


@torch.inference_mode()
def check_roll_back(runner: Runner, *, name: str) -> None:
    """Feed tokens, take them back, feed others: the logits must be those of a cache that never saw the first ones.

    Raises ModelError otherwise, for instance for a state that runs on, or positions that are counted and not told.
    """
    first, wrong, right = [1, 2, 3], [4, 5, 6], [6, 4]
    used, fresh = runner.open(), runner.open()
    used.forward(first + wrong, keep=1)
    used.crop(len(first))
    fresh.forward(first, keep=1)
    a, b = used.forward(right, keep=1)[-1], fresh.forward(right, keep=1)[-1]
    tolerance = 1e-3 if runner.dtype == torch.float32 else 0.05  # of the spread of the logits; kernels differ with the shape of a pass
    if not (a - b).abs().mean() <= tolerance * b.std():
        raise ModelError(
            f"{name} cannot be used: after taking back tokens it answers differently than if it had never seen them; choose a model with "
            "plain attention."
        )


def _load_tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # a broken tokenizer can fail in any library below
        raise ModelError(f"The tokenizer in {folder} cannot be read ({_first_line(error)}): copy or fetch the model again.") from error


def _load_model(folder: Path, device: torch.device, dtype: str, progress: Progress) -> Any:
    from transformers import AutoModelForCausalLM

    stage = f"loading {folder.name}"
    try:
        with _bars(stage, progress):
            model = AutoModelForCausalLM.from_pretrained(
                folder, dtype=getattr(torch, dtype), use_safetensors=True, trust_remote_code=False, local_files_only=True
            )
        progress(f"moving to {device}", 0, None)
        return model.to(device).eval()
    except torch.OutOfMemoryError as error:
        raise ModelError(f"{folder.name} does not fit into the memory of {device}: take a smaller pair, --dtype bfloat16 or --device cpu.") from error
    except Exception as error:
        raise ModelError(f"The model in {folder} cannot be loaded ({_first_line(error)}): choose a causal language model that transformers knows.") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


@contextlib.contextmanager
def _bars(stage: str, progress: Progress) -> Iterator[None]:
    """transformers draws bars of its own on the terminal; turn them into calls of `progress` where it lets us, and off elsewhere."""
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

    def __init__(self, stage: str, progress: Progress, iterable: Any = None, *args: Any, total: int | None = None, **kwargs: Any) -> None:
        self._stage, self._progress, self._iterable = stage, progress, iterable
        self._done, self._total = 0, total if total is not None else len(iterable) if hasattr(iterable, "__len__") else None

    def __iter__(self) -> Iterator[Any]:
        for item in self._iterable:
            yield item
            self.update()

    def update(self, n: int = 1) -> None:
        self._done += n
        self._progress(self._stage, self._done, self._total)

    def __enter__(self) -> "_Reported":
        return self

    def __exit__(self, *reason: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None
