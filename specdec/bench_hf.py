"""The arms of the benchmark that are not ours: `generate` of transformers, alone, with an assistant, with prompt look-up.

They run a model of their own, loaded from the same weights in the same number format.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers.generation.streamers import BaseStreamer

from specdec.bench import Arm
from specdec.trace import Trace


class _Clock(BaseStreamer):
    """Notes when the first new token came. The first call brings the prompt."""

    def __init__(self) -> None:
        self.calls = 0
        self.first: float | None = None

    def put(self, value: Any) -> None:
        self.calls += 1
        if self.calls == 2:
            self.first = time.perf_counter()

    def end(self) -> None:
        """Nothing to do."""


def hf_arms(
    model: Any, encode: Callable[[str], list[int]], *, new_tokens: int, draft_length: int, assistant: Any | None = None
) -> list[Arm]:
    """model, assistant: of transformers, on one device. encode: prompt -> ids."""
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0

    def arm(name: str, **options: Any) -> Arm:
        @torch.inference_mode()
        def run(prompt: str) -> tuple[float, float, Sequence[int], Trace | None]:
            ids = torch.tensor([encode(prompt)], device=model.device)
            clock = _Clock()
            begun = time.perf_counter()
            out = model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=new_tokens,
                do_sample=False,
                streamer=clock,
                **options,
            )
            seconds = time.perf_counter() - begun
            return seconds, (clock.first or begun) - begun, out[0, ids.shape[1] :].tolist(), None

        return Arm(name, run)

    arms = [arm("hf generate"), arm("hf look-up", prompt_lookup_num_tokens=draft_length)]
    if assistant is not None:
        settings = assistant.generation_config
        settings.eos_token_id = None
        settings.num_assistant_tokens = draft_length
        settings.num_assistant_tokens_schedule = "constant"
        settings.assistant_confidence_threshold = 0.0
        arms.append(arm("hf assisted", assistant_model=assistant))
    return arms
