"""A causal language model with a cache that can roll back.

A `Runner` is the model, shared by all runs. `Runner.open()` gives one run its own `CachedSequence`: the tokens it has fed so far, their
keys and values, and the three things that the loop needs: feed tokens, roll back, look at hidden states. This is the eager path, for any
decoder of transformers on any device.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from specdec.errors import ModelError
from specdec.passes import Pass, one_by_one


def sent(numbers: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on `device`. On CUDA the host does not wait: the driver takes a copy of what lies in ordinary memory."""
    return numbers.to(device, non_blocking=device.type == "cuda")


def token_ids(ids: Sequence[Any], device: torch.device) -> Tensor:
    """[n] on `device`. ids: n numbers, or what is on the device already and no host has seen: a tensor [n], tensors [] among the
    numbers."""
    if isinstance(ids, Tensor):
        return ids
    if all(isinstance(i, int) for i in ids):
        return sent(torch.tensor(ids, dtype=torch.long), device)
    # To fill a place does not make the host wait, as copying a number does.
    return torch.stack([i if isinstance(i, Tensor) else torch.full((), i, dtype=torch.long, device=device) for i in ids])


class Runner:
    """model: a causal language model of transformers in evaluation mode.

    vocabulary: how many of its logits count; the rest is padding of the embedding (None: all).
    note: how passes are run, where that is worth telling. Raises ModelError when the cache of the model cannot roll back.
    piece: so many tokens of a prompt at most are read in one pass, None: all. A runner that reads in pieces has sequences that can
    also take over (`adopt`) the first tokens of another one.
    """

    note = ""
    piece: int | None = None

    def __init__(self, model: Any, *, vocabulary: int | None = None) -> None:
        self.model = model.eval()
        self.config = model.config.get_text_config()
        self.vocabulary = vocabulary or self.config.vocab_size
        self.context = _context(self.config)
        self.layers = int(self.config.num_hidden_layers)
        self.width = int(self.config.hidden_size)
        self.parameters = sum(p.numel() for p in model.parameters())
        self._cache_argument = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
        self._exits: dict[int, Any] = {}
        self.check_roll_back()

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.model.parameters()).dtype

    def open(self, *, hidden_layers: tuple[int, ...] = ()) -> "CachedSequence":
        """A new, empty sequence. hidden_layers: which hidden states to keep of each pass: k is what layer k reads (0 the
        embedding), `layers` is what the head reads, behind the final norm."""
        return CachedSequence(self, hidden_layers)

    def together(self, passes: list[Pass]) -> list[Tensor]:
        """Several passes over sequences of this runner at once, where it can; logits of each."""
        return one_by_one(passes)

    def synchronize(self) -> None:
        """Wait until the device has done what it was given; timings mean nothing without it."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        elif self.device.type == "mps":
            torch.mps.synchronize()

    def check_roll_back(self) -> None:
        """Feed a few tokens, roll back, and see that the cache really is shorter."""
        sequence = self.open()
        name = type(self.model).__name__
        try:
            sequence.forward([0, 0, 0], keep=1)
            sequence.crop(1)
            lengths = {_layer_length(layer) for layer in sequence.cache.layers} - {None}
        except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
            raise ModelError(f"{name} cannot be used: its cache cannot take back tokens ({error}); choose a model with plain attention.") from error
        stateful = [type(layer).__name__ for layer in sequence.cache.layers if getattr(layer, "is_croppable", True) is False
                    and not hasattr(layer, "sliding_window")]
        if lengths != {1} or stateful or any(hasattr(layer, "recurrent_states") for layer in sequence.cache.layers):
            raise ModelError(
                f"{name} cannot be used: it keeps a running state that cannot take back rejected tokens; choose a model with plain attention."
            )

    def exit_model(self, layers: int) -> Any:
        """The same model cut after its first `layers` layers, with its own final norm and head: no weight is copied."""
        if not 0 < layers < self.layers:
            raise ModelError(f"early exit after {layers} layers is impossible: this target has {self.layers}, take 1 to {self.layers - 1}.")
        if layers not in self._exits:
            self._exits[layers] = _cut(self.model, layers)
        return self._exits[layers]


class CachedSequence:
    """One run's tokens in one model: `length` of them are in the cache."""

    def __init__(self, runner: Runner, hidden_layers: tuple[int, ...] = ()) -> None:
        self.runner = runner
        self.hidden_layers = hidden_layers
        self.hidden: Tensor | None = None  # [tokens of the last pass, len(hidden_layers), width]
        self.length = 0
        self.cache = DynamicCache(config=runner.config)
        if hasattr(self.cache, "activate_past_recording"):
            self.cache.activate_past_recording()  # layers with a window keep what a roll-back may need

    @torch.inference_mode()
    def forward(self, ids: list[int], *, keep: int | None = None) -> Tensor:
        """Feed `ids`; returns the logits of the last `keep` of them (None: all), float32 [keep, V]."""
        out = self._call(self.runner.model, ids, keep=keep, output_hidden_states=bool(self.hidden_layers))
        if self.hidden_layers:
            self.hidden = torch.stack([out.hidden_states[k][0] for k in self.hidden_layers], dim=1)
        self.length += len(ids)
        return self._logits(out)

    @torch.inference_mode()
    def forward_exit(self, ids: list[int], *, layers: int, offset: int = 0) -> Tensor:
        """Feed `ids` to the first `layers` layers only, `offset` tokens behind `length`; logits of the last token, float32 [1, V].

        Only the caches of those layers grow: take the tokens back with `crop_exit` before anything else is fed.
        """
        return self._logits(self._call(self.runner.exit_model(layers), ids, keep=1, offset=offset))

    def crop_exit(self, *, layers: int) -> None:
        """Roll the first `layers` layers back to `length`."""
        for layer in self.cache.layers[:layers]:
            _crop(layer, _layer_length(layer) - self.length)

    def warm(self, tokens: int, *, exit_layers: int = 0) -> None:
        """Prepare for passes over `tokens` tokens, where there is something to prepare."""

    def crop(self, length: int) -> None:
        """Forget everything behind the first `length` tokens."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back to {length} tokens: the cache holds {self.length}.")
        for layer in self.cache.layers:
            _crop(layer, self.length - length)
        self.length = length

    def _call(self, model: Any, ids: list[int], *, keep: int | None, offset: int = 0, output_hidden_states: bool = False) -> Any:
        device = self.runner.device
        start = self.length + offset
        arguments = {
            "input_ids": token_ids(ids, device)[None],
            "position_ids": torch.arange(start, start + len(ids), device=device)[None],
            self.runner._cache_argument: self.cache,
            "use_cache": True,
            "logits_to_keep": keep or 0,
        }
        return model(**arguments, output_hidden_states=output_hidden_states)

    def _logits(self, out: Any) -> Tensor:
        return out.logits[0, :, : self.runner.vocabulary].float()


def _context(config: Any) -> int:
    """How many tokens the model reads. Behind its original length "longrope" turns all tokens of a pass by other angles, so that what
    is in the cache would depend on how the text was cut into passes: such a model reads no more than that."""
    limit = int(getattr(config, "max_position_embeddings", 0) or 1 << 20)
    rotary = getattr(config, "rope_parameters", None) or {}
    for one in (rotary, *(kind for kind in rotary.values() if isinstance(kind, dict))):
        if one.get("rope_type") == "longrope":
            limit = min(limit, int(one.get("original_max_position_embeddings") or limit))
    return limit


def _layer_length(layer: Any) -> int | None:
    length = layer.get_seq_length() if hasattr(layer, "get_seq_length") else None
    return None if length is None else int(length)


def _crop(layer: Any, count: int) -> None:
    """Take the last `count` tokens out of one cache layer, in the dialect of the transformers that is installed."""
    if _crop_takes_a_count(type(layer)):
        layer.crop(-count)
    elif count:
        layer.crop(_layer_length(layer) - count)


@lru_cache(maxsize=None)
def _crop_takes_a_count(kind: type) -> bool:
    """Newer versions take a negative number of tokens to remove, older ones the length that remains."""
    return "tokens_to_remove" in inspect.signature(kind.crop).parameters


def _cut(model: Any, layers: int) -> Any:
    """A shell of the same class with the first `layers` layers; every module in it is the model's own."""
    config = copy.deepcopy(model.config)
    text = config.get_text_config()
    full = text.num_hidden_layers
    text.num_hidden_layers = layers
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:layers]
    with torch.device("meta"):
        shell = type(model)(config)
    _adopt(shell, model, full=full, layers=layers)
    return shell.eval()


def _adopt(shell: nn.Module, model: nn.Module, *, full: int, layers: int) -> None:
    for name, child in model.named_children():
        if isinstance(child, nn.ModuleList) and len(child) == full:
            setattr(shell, name, nn.ModuleList(list(child)[:layers]))
        elif any(isinstance(m, nn.ModuleList) and len(m) == full for m in child.modules()):
            _adopt(getattr(shell, name), child, full=full, layers=layers)
        else:
            setattr(shell, name, child)
    for name, buffer in model.named_buffers(recurse=False):
        shell.register_buffer(name, buffer, persistent=False)
