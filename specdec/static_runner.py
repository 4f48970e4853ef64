"""A runner whose passes have fixed shapes and fixed addresses, so that CUDA graphs can replay them.

A pass of a small model on a GPU is bound by the launching of its kernels, not by arithmetic. A CUDA graph launches them all at
once, but repeats them to the letter: same shapes, same addresses. Hence here
- a pass has one of the `SIZES` as its number of tokens; one of another size is padded. The padding is written behind the tokens
  that count, where no later token looks before it is written over;
- keys and values live in buffers that are there from the beginning. Which of their places a pass writes, and what each of its
  tokens may see, follows from one number on the device, `start`; rolling back is setting it anew;
- a pass looks at the first `BUCKETS` places only, not at the whole buffer.

Without CUDA the same passes run without being captured. What cannot run like this is left to the eager runner, which then says
why in its `note`.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache

from specdec.errors import ModelError
from specdec.runner import CachedSequence, Runner
from specdec.static_slots import Slot, first_line

SIZES = (1, 2, 3, 5, 9, 17, 33)  # tokens of a pass
AT_LOAD = (1, 2, 3, 5, 9)  # those that are captured before the first run; the others when they are met first
BUCKETS = (512, 2048, 8192, 32768, 131072, 524288)  # places that a pass looks at
FIRST_CAPACITY = 2048
CHUNK = 512  # tokens of a pass over a prompt
_KINDS = {"full_attention", "sliding_attention"}


def static_runner(model: Any, *, vocabulary: int | None = None, capture: bool | None = None) -> Runner:
    """The static runner where it computes this model, else the eager one with the reason in its `note`.

    capture: whether passes are captured as CUDA graphs (None: on CUDA). Raises ModelError as `Runner` does.
    """
    eager = Runner(model, vocabulary=vocabulary)
    try:
        static = StaticRunner(model, vocabulary=vocabulary, capture=capture)
        reason = "" if static.agrees_with(eager) else "with a static cache it answers otherwise"
        if not reason:
            static.capture_at_load()
            return static
    except Exception as error:  # noqa: BLE001  architectures fail in ways of their own; the eager runner is there for all of them
        reason = first_line(error)
    eager.note = f"eager, no CUDA graphs: {reason}"
    return eager


class StaticRunner(Runner):
    """model: a causal language model of transformers whose layers have full attention or a window.

    Raises ModelError for other kinds of layers.
    """

    def __init__(self, model: Any, *, vocabulary: int | None = None, capture: bool | None = None) -> None:
        super().__init__(model, vocabulary=vocabulary)
        self.captures = self.device.type == "cuda" if capture is None else capture
        self.note = "CUDA graphs" if self.captures else "static cache"
        self.limit = -(-(self.context + SIZES[-1]) // 8) * 8  # padding may reach behind the context; masks like multiples of 8
        self._windows = _windows(self.config)
        self._attention = str(getattr(self.config, "_attn_implementation", None) or "sdpa")
        if self._attention not in ("sdpa", "eager"):
            raise ModelError(f"its attention is {self._attention!r}")
        self.longest, self.first_capacity = SIZES[-1], FIRST_CAPACITY
        self._free: list[Slot] = []
        self._pool: Any = None
        self._streams: tuple[Any, Any] | None = None
        self._retired: list[Any] = []
        self._loaded = False

    def check_roll_back(self) -> None:
        """Nothing to check: what lies behind `length` is not looked at, whatever it is."""

    def open(self, *, hidden_layers: tuple[int, ...] = ()) -> StaticSequence:
        # The one with most graphs first: capturing takes a moment.
        slot = max(self._free, key=lambda s: len(s.graphs), default=None)
        if slot is None:
            slot = Slot(self)
        else:
            self._free.remove(slot)
            slot.clear()
        sequence = StaticSequence(self, hidden_layers, slot)
        weakref.finalize(sequence, self._free.append, slot).atexit = False
        return sequence

    def capture_at_load(self) -> None:
        """Capture the usual passes, so that no run has to wait for it. Raises what the capture of a pass raises."""
        if not self.captures:
            return
        sequence = self.open()
        for visible in dict.fromkeys(self.bucket(min(b, self.limit)) for b in BUCKETS if b <= FIRST_CAPACITY):
            for size in AT_LOAD:
                if size < visible:
                    sequence.slot.step([0] * size, start=visible - size)
        self.synchronize()
        self._loaded = True

    def not_captured(self, error: Exception) -> None:
        """One more pass could not be captured. Before the first run that is a reason to do without, later it is only a pity."""
        if not self._loaded:
            raise error
        self.note = f"CUDA graphs, but not for all passes ({first_line(error)})"

    def padded(self, tokens: int) -> int:
        """How many tokens a pass has that feeds so many."""
        return next(size for size in SIZES if size >= tokens)

    def bucket(self, tokens: int) -> int:
        """How many places a pass looks at that writes the first `tokens` of them."""
        if tokens > self.limit:
            raise ValueError(f"cannot hold {tokens} tokens: the model reads at most {self.context}.")
        return min(next((b for b in BUCKETS if b >= tokens), tokens), self.limit)

    def masks(self, slots: Tensor, visible: int) -> Any:
        """slots [n]: places of the tokens of a pass -> what each sees of the first `visible` places, [1, 1, n, visible]; a dict of
        them for a model that has layers of both kinds."""
        places, rows = torch.arange(visible, device=slots.device), slots[:, None]
        causal = places <= rows
        made = {
            kind: self._as_wanted(causal if window is None else causal & (places > rows - window))
            for kind, window in self._windows.items()
        }
        return made if len(made) > 1 else next(iter(made.values()))

    def _as_wanted(self, mask: Tensor) -> Tensor:
        mask = mask[None, None]
        if self._attention == "sdpa":
            return mask
        # Filled, not chosen between numbers: those would be copied to the device, which no graph can hold.
        return torch.zeros(mask.shape, dtype=self.dtype, device=mask.device).masked_fill(~mask, torch.finfo(self.dtype).min)

    def graph_pool(self) -> Any:
        """Graphs are replayed one after the other, so they share their memory."""
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        return self._pool

    def capture_streams(self) -> tuple[Any, Any]:
        """For warming up, and for capturing. This runner's own, for with its stream a graph shares the workspace of the matrix
        products: another runner's graphs could be gone, and their workspace with them."""
        if self._streams is None:
            self._streams = torch.cuda.Stream(self.device), torch.cuda.Stream(self.device)
        return self._streams

    def retire(self, graphs: dict[Any, tuple[Any, Any] | None]) -> None:
        """Keep graphs that nobody replays any more: the pool that all share, and that workspace, live as long as its graphs."""
        self._retired += [made[0] for made in graphs.values() if made is not None]

    @torch.inference_mode()
    def agrees_with(self, eager: Runner) -> bool:
        """Whether it says what the eager runner says, in passes of several sizes and with tokens taken back."""
        ids = [(7 * i + 1) % self.vocabulary for i in range(48)]
        wanted = eager.open().forward(ids)
        sequence = self.open()
        found = [sequence.forward(ids[:38])]
        sequence.forward(ids[:4])
        sequence.crop(38)
        found += [sequence.forward(ids[start:end]) for start, end in ((38, 39), (39, 41), (41, 45), (45, 48))]
        difference = (torch.cat(found) - wanted).abs()
        if self.dtype == torch.float32:
            return bool(difference.max() <= 1e-3 * wanted.std() + 1e-6)
        return bool(difference.mean() <= 0.05 * wanted.std())  # kernels round differently with the shape of a pass


class StaticSequence(CachedSequence):
    """One run's tokens in the buffers of a slot, which it has for itself while it lives."""

    def __init__(self, runner: StaticRunner, hidden_layers: tuple[int, ...], slot: Slot) -> None:
        self.runner: StaticRunner = runner
        self.hidden_layers = hidden_layers
        self.hidden: Tensor | None = None
        self.length = 0
        self.slot = slot

    @property
    def cache(self) -> Cache:
        return self.slot.cache

    @torch.inference_mode()
    def forward(self, ids: Sequence[Any], *, keep: int | None = None) -> Tensor:
        if len(ids) > self.runner.longest:
            return self._prefill(ids, keep or len(ids))
        logits, states = self.slot.step(ids, start=self.length)
        if self.hidden_layers:
            self.hidden = self._chosen(states, len(ids))
        self.length += len(ids)
        return self._copied(logits[len(ids) - (keep or len(ids)) : len(ids)])

    @torch.inference_mode()
    def forward_exit(self, ids: Sequence[Any], *, layers: int, offset: int = 0) -> Tensor:
        logits, _ = self.slot.step(ids, start=self.length + offset, exit_layers=layers)
        return self._copied(logits[len(ids) - 1 : len(ids)])

    @torch.inference_mode()
    def warm(self, tokens: int, *, exit_layers: int = 0) -> None:
        """Capture the pass over `tokens` tokens that comes next, if that is still to be done, so that no round has to wait."""
        if self.runner.captures and self.length + tokens <= self.runner.context:
            self.slot.step([0] * tokens, start=self.length, exit_layers=exit_layers)

    def crop_exit(self, *, layers: int) -> None:
        """Nothing to do: what lies behind `length` is written over."""

    def crop(self, length: int) -> None:
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back to {length} tokens: the cache holds {self.length}.")
        self.length = length

    def _prefill(self, ids: Sequence[Any], keep: int) -> Tensor:
        logits, hidden = [], []
        for begin in range(0, len(ids), CHUNK):
            part = ids[begin : begin + CHUNK]
            wanted = keep - (len(ids) - begin - len(part))  # rows of this chunk whose logits are asked for
            rows, states = self.slot.chunk(
                part, start=self.length, keep=min(max(wanted, 1), len(part)), hidden=bool(self.hidden_layers)
            )
            self.length += len(part)
            if wanted > 0:
                logits.append(self._copied(rows))
            if self.hidden_layers:
                hidden.append(self._chosen(states, len(part)))
        if self.hidden_layers:
            self.hidden = torch.cat(hidden)
        return torch.cat(logits)

    def _chosen(self, states: Sequence[Tensor], count: int) -> Tensor:
        return torch.stack([states[k][0, :count] for k in self.hidden_layers], dim=1)

    def _copied(self, logits: Tensor) -> Tensor:
        """Float32 and out of the way of the next pass."""
        return logits[:, : self.runner.vocabulary].to(torch.float32, copy=True)


def _windows(config: Any) -> dict[str, int | None]:
    """Kind of layer -> its window, None without one. Raises ModelError for kinds that are not known."""
    kinds = set(getattr(config, "layer_types", None) or ())
    if kinds - _KINDS or getattr(config, "attention_chunk_size", None) or getattr(config, "use_bidirectional_attention", None):
        raise ModelError(f"its layers are of kinds that need other masks ({', '.join(sorted(kinds)) or 'chunked'})")
    found: dict[str, int | None] = {}
    for layer in DynamicCache(config=config).layers:
        window = getattr(layer, "sliding_window", None)
        found["full_attention" if window is None else "sliding_attention"] = window
    return found or {"full_attention": None}
