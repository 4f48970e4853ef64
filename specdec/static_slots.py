"""The fixed buffers of a sequence, and the CUDA graphs over them; see `specdec.static_runner`."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, StaticLayer

from specdec.runner import token_ids


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:120]


class _Layer(StaticLayer):
    """Keys and values of one layer, [1, heads, capacity, head width], written where `slot.slots` says."""

    def __init__(self, slot: Slot) -> None:
        super().__init__(max_cache_len=slot.capacity)
        self.slot = weakref.proxy(slot)

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if self.keys is None:
            capacity = self.slot.capacity
            self.keys = key_states.new_zeros(*key_states.shape[:2], capacity, key_states.shape[-1])
            self.values = value_states.new_zeros(*value_states.shape[:2], capacity, value_states.shape[-1])
            self.is_initialized = True
        self.keys.index_copy_(2, self.slot.slots, key_states)
        self.values.index_copy_(2, self.slot.slots, value_states)
        return self.keys[:, :, : self.slot.visible], self.values[:, :, : self.slot.visible]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.slot.visible, 0

    def get_seq_length(self) -> Any:
        return self.slot.start[0]


class Slot:
    """The buffers of one sequence at a time, and the graphs that were captured over them. runner: a StaticRunner.

    ids [1, the longest pass], start [1]: what a captured pass reads. slots [n], visible: of the pass that is being run or captured.
    """

    @torch.inference_mode()
    def __init__(self, runner: Any) -> None:
        self.runner = weakref.proxy(runner)
        self.ids = torch.zeros(1, runner.longest, dtype=torch.long, device=runner.device)
        self.start = torch.zeros(1, dtype=torch.long, device=runner.device)
        self.slots = self.start
        self.visible = 0
        self.graphs: dict[tuple[int, int, int], tuple[Any, Any] | None] = {}
        self.capacity = runner.bucket(min(runner.first_capacity, runner.limit))
        self.cache = Cache(layers=[_Layer(self) for _ in range(runner.layers)])

    @torch.inference_mode()
    def clear(self) -> None:
        """For a new sequence. Places that nobody sees still take part in the products: they must hold finite numbers."""
        for layer in self.cache.layers:
            if layer.keys is not None:
                layer.keys.zero_()
                layer.values.zero_()

    def reserve(self, tokens: int) -> None:
        """Room for `tokens`; moving to larger buffers makes the graphs worthless."""
        if tokens <= self.capacity:
            return
        self.capacity = self.runner.bucket(tokens)
        self.runner.synchronize()  # one of them may be running
        self.runner.retire(self.graphs)
        self.graphs = {}
        for layer in self.cache.layers:
            if layer.keys is not None:
                layer.keys, layer.values = (_widened(buffer, self.capacity) for buffer in (layer.keys, layer.values))

    @torch.inference_mode()
    def step(self, ids: Sequence[Any], *, start: int, exit_layers: int = 0) -> tuple[Tensor, Any]:
        """A pass over `ids`, no more than the longest captured pass has, at `start`; logits [n, V of the model], hidden states
        (none of an early exit).

        What comes back is written over by the next pass.
        """
        size = self.runner.padded(len(ids))
        self.reserve(start + size)
        self.ids[0, : len(ids)] = token_ids(ids, self.ids.device)  # the padding is whatever was there
        self.start.fill_(start)
        key = (exit_layers, size, self.runner.bucket(start + size))
        if not self.runner.captures:
            return self._run(*key)
        if key not in self.graphs:
            try:
                self.graphs[key] = self._capture(key)
            except Exception as error:  # noqa: BLE001  no memory, a synchronisation: the pass is right without a graph, too
                self.runner.not_captured(error)
                self.graphs[key] = None
        if self.graphs[key] is None:
            return self._run(*key)
        graph, result = self.graphs[key]
        graph.replay()
        return result

    @torch.inference_mode()
    def chunk(self, ids: Sequence[Any], *, start: int, keep: int, hidden: bool) -> tuple[Tensor, Any]:
        """A pass over many tokens, as they are: logits of the last `keep`."""
        self.reserve(start + len(ids))
        self.start.fill_(start)
        visible = self.runner.bucket(start + len(ids))
        return self._pass(self.runner.model, token_ids(ids, self.ids.device)[None], visible, keep=keep, hidden=hidden)

    def _run(self, exit_layers: int, size: int, visible: int) -> tuple[Tensor, Any]:
        model = self.runner.exit_model(exit_layers) if exit_layers else self.runner.model
        return self._pass(model, self.ids[:, :size], visible, keep=0, hidden=not exit_layers)

    def _pass(self, model: Any, ids: Tensor, visible: int, *, keep: int, hidden: bool) -> tuple[Tensor, Any]:
        runner = self.runner
        self.slots = self.start + torch.arange(ids.shape[1], device=ids.device)
        self.visible = visible
        arguments = {
            "input_ids": ids,
            "position_ids": self.slots.clamp(max=runner.context - 1)[None],  # only padding reaches further
            "attention_mask": runner.masks(self.slots, visible),
            runner._cache_argument: self.cache,
            "use_cache": True,
            "logits_to_keep": keep,
        }
        # Hidden states are there anyway: handing them out costs a captured pass nothing.
        out = model(**arguments, output_hidden_states=hidden)
        return out.logits[0], out.hidden_states if hidden else None

    def _capture(self, key: tuple[int, int, int]) -> tuple[Any, Any]:
        """The pass as a graph, warmed up: libraries choose kernels and allocate on their first calls."""
        device = self.ids.device
        with torch.cuda.device(device):
            before = torch.cuda.current_stream(device)
            side, captured = self.runner.capture_streams()
            try:
                side.wait_stream(before)
                with torch.cuda.stream(side):
                    for _ in range(2):
                        self._run(*key)
                before.wait_stream(side)
                graph = torch.cuda.CUDAGraph()
                pool = self.runner.graph_pool()
                with torch.cuda.graph(graph, pool=pool, stream=captured, capture_error_mode="thread_local"):
                    result = self._run(*key)
            finally:  # a capture that fails does not always lead back by itself
                torch.cuda.set_stream(before)
        return graph, result


def _widened(buffer: Tensor, capacity: int) -> Tensor:
    wider = buffer.new_zeros(*buffer.shape[:2], capacity, buffer.shape[-1])
    wider[:, :, : buffer.shape[2]] = buffer
    return wider
