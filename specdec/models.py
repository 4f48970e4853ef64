"""Loading a pair: the catalogue's names, hub ids or folders in; two checked models, one tokenizer and the facts about them out.

    pair = load_pair()                                                        # the embedded target
    pair = load_pair("qwen3-4b", device="cuda")
    pair = load_pair(target="Qwen/Qwen3-4B", draft="/models/my-draft")

A pair is refused, with the reason, when it does not fit into memory, when its tokenizers differ, or when a cache cannot roll
back.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from specdec import placement
from specdec.adaptive import Experience
from specdec.catalogue import CATALOGUE, DEFAULT_PAIR, EMBEDDED, PairSpec
from specdec.devices import choose_device, choose_dtype, device_name, require_memory
from specdec.errors import ModelError, PairError, SettingsError
from specdec.fetch import fetch_embedded
from specdec.fit import common_vocabulary
from specdec.hub import RoomCheck, Weights, find_model, weigh
from specdec.llama import fastest_runner
from specdec.loading import (
    AGAIN_SECONDS,
    can_exit_early,
    check_roll_back,
    check_window,
    eos_ids,
    load_model,
    load_tokenizer,
    measure_plain_step,
    measure_read_bandwidth,
)
from specdec.runner import Runner
from specdec.store import Progress, home, silent
from specdec.tokens import TokenTexts, encode_prompt
from specdec.trace import PairInfo

__all__ = ["CATALOGUE", "DEFAULT_PAIR", "Pair", "PairSpec", "load_pair", "make_pair"]

_EMBEDDED_NAMES = (EMBEDDED, CATALOGUE[EMBEDDED].target)


@dataclass(kw_only=True, eq=False)
class Pair:
    """A target that is ready to run and, where the pair has one, its draft.

    early_exit: whether the target's first layers run by themselves. vocabulary: ids that both models know. context: tokens that
    both can hold. eos_ids: any of them ends a text. plain_step_seconds: median time of one plain target step on this device, as
    it was measured last; None if it is not measured. read_bandwidth: bytes per second that this device reads from its memory, measured likewise. attached:
    drafters that were trained for this very target, name -> maker(settings). experience: what runs have shown of each drafter, which
    `specdec.adaptive` chooses draft lengths by. keep_beginning: whether runs take over what every chat begins with, see
    `specdec.beginning`.
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
    early_exit: bool = True
    plain_step_seconds: float | None = None
    read_bandwidth: float | None = None
    attached: dict[str, Callable[[Any], Any]] = field(default_factory=dict)
    experience: dict[tuple[Any, ...], Experience] = field(default_factory=dict)
    keep_beginning: bool = True

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
        early = ("early-exit",) if self.early_exit else ()
        return (*self.attached, *(("draft",) if self.draft else ()), *early, "lookup")

    def time_plain_step(self) -> float | None:
        """Time it again, if it is measured at all: a machine is not always as fast as it was when the pair was loaded."""
        if self.plain_step_seconds is not None:
            self.plain_step_seconds = measure_plain_step(self.target, longest=AGAIN_SECONDS)
        return self.plain_step_seconds

    def component(self, drafter: str) -> str:
        """What was trained for `drafter`: itself, unless it shares another one's weights."""
        return getattr(self.attached.get(drafter), "component", drafter)

    def info(self, drafter: str) -> PairInfo:
        """What a trace says about the pair when `drafter` proposed."""
        draft = self.draft if drafter == "draft" else self.attached.get(drafter)
        return PairInfo(
            name=self.name,
            target=self.target_name,
            draft=None if draft is None else self.draft_name if drafter == "draft" else f"trained {self.component(drafter)}",
            target_parameters=self.target.parameters,
            draft_parameters=getattr(draft, "parameters", None),
            dtype=self.dtype,
            vocabulary=self.vocabulary,
            context=self.context,
            held=getattr(self.target, "held", None),
        )


def load_pair(
    name: str | None = None,
    *,
    target: str | None = None,
    draft: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    split: str = "",
    progress: Progress | None = None,
) -> Pair:
    """Load a pair by its catalogue name, or a target and (if wanted) a draft by hub id or folder; "embedded" stands for the
    embedded one.

    split: how a target that is larger than one GPU is laid out, see `specdec.placement`.
    With neither, the embedded pair. A catalogue name with `target` or `draft` exchanges that side of it. progress(stage, done,
    total) is called often: bytes while something is fetched, else items. Raises ModelError, PairError or SettingsError, one
    sentence each.
    """
    progress = progress or silent
    spec = _spec(name) if name is not None or target is None else None
    target_name = target or spec.target
    draft_name = draft or (spec.draft if spec else None)
    same = spec is not None and target_name == spec.target and draft_name == spec.draft
    title = spec.title if same else " with ".join(_last(n) for n in (target_name, draft_name) if n)
    reduced = spec.weights if same and spec.weights != "float32" else None
    chosen = choose_device("cpu" if reduced and device == "auto" else device)
    if reduced and (chosen.type != "cpu" or dtype not in ("auto", "float32")):
        raise SettingsError(
            f"The pair {spec.name!r} keeps {reduced} weights on a CPU: leave out device and dtype, or take another pair."
        )

    placement.check(split, chosen)
    if split and reduced:
        raise SettingsError(f"The pair {spec.name!r} keeps {reduced} weights on one CPU: leave --split out, or take another pair.")
    if split == "tensors" and chosen.type == "cuda":
        chosen = choose_device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}")  # of this one of the processes

    def check_room(parameters: int, stored: str = "bfloat16") -> str:
        """Name of the number format that `parameters` weights get; raises when they do not fit."""
        number_format = choose_dtype(dtype, device=chosen, parameters=parameters)
        free = placement.room(split, chosen) if split else None
        require_memory(parameters, dtype=number_format, device=chosen, title=title, stored=stored, free=free)
        return number_format

    choose_dtype(dtype, device=chosen, parameters=0)  # a wrong one is refused before anything is fetched
    if same:
        check_room(spec.parameters, spec.stored)  # known without asking anybody
    folders: list[Path] = []
    weights: list[Weights] = []
    names = [n for n in (target_name, draft_name) if n]
    for model in names:
        known = sum(w.parameters for w in weights)
        folders.append(_locate(model, progress, lambda count, known=known: check_room(known + count)))
        weights.append(weigh(folders[-1]))
    formats = {w.stored for w in weights}
    number_format = check_room(sum(w.parameters for w in weights), formats.pop() if len(formats) == 1 else "bfloat16")
    models = [
        load_model(folder, name=_last(model), device=chosen, dtype=number_format, split=how, progress=progress)
        for model, folder, how in zip(names, folders, (split, ""), strict=False)  # the draft stays whole
    ]
    tokenizers = [load_tokenizer(folder) for folder in folders]
    pair = make_pair(
        models[0],
        tokenizers[0],
        draft=models[1] if len(models) > 1 else None,
        draft_tokenizer=tokenizers[1] if len(models) > 1 else None,
        name=spec.name if same else " + ".join(filter(None, (target_name, draft_name))),
        title=title,
        target_name=f"{_last(target_name)}, {reduced} weights" if reduced else _last(target_name),
        draft_name=_last(draft_name) if draft_name else None,
        weights=reduced or "float32",
        measure=split != "tensors",  # that takes as many steps as there is time for, and all processes have to take the same
        progress=progress,
    )
    if target_name not in _EMBEDDED_NAMES or split:
        return pair
    from specdec.attached import with_trained_drafters  # what was trained for this target and for no other

    return with_trained_drafters(pair)


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
    weights: str = "float32",
    measure: bool = True,
    progress: Progress = silent,
) -> Pair:
    """A pair of models of transformers that are already in memory (on one device).

    draft_tokenizer: None if it is the target's. weights: how the target's are held, see `specdec.llama.LlamaRunner`. measure: time
    the plain step. Raises PairError when the two do not fit together and ModelError when a cache cannot roll back.
    """
    draft_name = (draft_name or "draft") if draft is not None else None
    vocabulary = _rows(target)
    if draft is not None:
        progress("comparing the tokenizers", 0, None)
        vocabulary = common_vocabulary(
            tokenizer,
            draft_tokenizer or tokenizer,
            target_size=_rows(target),
            draft_size=_rows(draft),
            names=(target_name, draft_name),
        )
    runner = _runner(target, vocabulary, target_name, weights)
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
        device_name=", ".join(filter(None, (device_name(runner.device), runner.note))),
        dtype=str(runner.dtype).removeprefix("torch.") if weights == "float32" else weights,
        vocabulary=vocabulary,
        context=min(contexts),
        eos_ids=eos_ids(target, tokenizer, vocabulary=vocabulary),
        has_chat_template=bool(tokenizer.chat_template),
        early_exit=can_exit_early(runner),
        plain_step_seconds=measure_plain_step(runner, progress=progress) if measure else None,
        read_bandwidth=measure_read_bandwidth(runner.device) if measure else None,
    )


def _spec(name: str | None) -> PairSpec:
    if (spec := CATALOGUE.get(name or DEFAULT_PAIR)) is None:
        raise ModelError(f"There is no pair called {name!r}: take one of {', '.join(CATALOGUE)}, or give a target and a draft.")
    return spec


def _last(name: str) -> str:
    """The part of a hub id or path that people call a model by."""
    return Path(name).name or name


def _locate(name: str, progress: Progress, check_room: RoomCheck) -> Path:
    if name in _EMBEDDED_NAMES:
        return fetch_embedded(progress=progress)
    return find_model(name, progress=progress, check_room=check_room)


def _rows(model: Any) -> int:
    return int(model.config.get_text_config().vocab_size)


def _runner(model: Any, vocabulary: int, name: str, weights: str = "float32") -> Runner:
    runner = fastest_runner(model, vocabulary=vocabulary, kernel_cache=home() / "kernels.json", weights=weights)
    check_roll_back(runner, name=name)
    check_window(runner, name=name)
    return runner
