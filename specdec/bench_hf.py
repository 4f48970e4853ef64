"""The arms of the benchmark that are not ours: `generate` of transformers, alone, with an assistant, with prompt look-up.

They run a model of their own, loaded from the same weights in the same number format.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from transformers.generation.streamers import BaseStreamer

from specdec.bench import Arm, Timed
from specdec.kernels import rounded


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
        def run(prompt: str) -> Timed:
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
            return Timed(seconds, (clock.first or begun) - begun, out[0, ids.shape[1] :].tolist())

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


def as_assistant(runner: Any) -> Any:
    """Our trained draft model (a `SmallDraftRunner`) as a model of transformers, for its assisted generation.

    The same weights and the same reduced output, in the classes of transformers.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = runner.shape
    config = LlamaConfig(
        vocab_size=runner.vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.groups,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": shape.theta},
        max_position_embeddings=runner.context,
        tie_word_embeddings=False,
    )
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    with torch.no_grad():
        layers, rows = runner.matrices()
        layers, rows = [tuple(map(rounded, layer)) for layer in layers], rounded(rows)  # as `kernels.drafting` does
    model.lm_head = _ReducedHead(runner, rows)
    ones = torch.ones(shape.width, device=rows.device)
    state = {"model.embed_tokens.weight": runner.embedding.float(), "model.norm.weight": ones}
    for index, (project, mix, gate_up, down) in enumerate(layers):
        base = f"model.layers.{index}."
        width, side = shape.heads * runner.size, shape.groups * runner.size
        q, k, v = project.split([width, side, side])
        gate, up = gate_up.chunk(2)
        state |= {f"{base}self_attn.{name}_proj.weight": weight for name, weight in (("q", q), ("k", k), ("v", v), ("o", mix))}
        state |= {f"{base}mlp.{name}_proj.weight": weight for name, weight in (("gate", gate), ("up", up), ("down", down))}
        state |= {f"{base}{name}.weight": ones for name in ("input_layernorm", "post_attention_layernorm")}
    state = {name: weight.contiguous() for name, weight in state.items()}
    model.load_state_dict(state, strict=False, assign=True)
    # Built without memory, so what is computed and not loaded has to be made again.
    model.model.rotary_emb = type(model.model.rotary_emb)(config).to(rows.device)
    return model.eval()


class _ReducedHead(torch.nn.Module):
    """The output rows of the draft vocabulary; every other token gets a logit that no softmax notices."""

    def __init__(self, runner: Any, rows: torch.Tensor) -> None:
        super().__init__()
        self._runner = runner
        # transformers asks the head for its device.
        self.weight = torch.nn.Parameter(rows.T.contiguous(), requires_grad=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden [1, n, d] -> logits [1, n, V]."""
        rows = (hidden.flatten(0, 1) @ self.weight).view(-1, self.weight.shape[1])
        return self._runner.reduced.spread(rows, empty=-1e9).view(*hidden.shape[:-1], -1)
