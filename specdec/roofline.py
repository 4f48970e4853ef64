"""How long a pass takes at best: a roofline, from datasheets. A formula, never a measurement.

A pass of a model over B sequences × k tokens each has to do its arithmetic and has to read its weights and the caches. It takes
at least the longer of the two (Williams, Waterman, Patterson 2009, "Roofline: an insightful visual performance model"):

    work     = B·k·(2·N + 4·layers·query_width·context)    operations; two for each of N parameters; attention scores and sums
    traffic  = N·bytes_per_weight + B·context·cache_bytes  bytes; every weight is read once a pass, whatever B and k are
    seconds  = max(work / operations_per_second, traffic / bandwidth)

Assumptions, each of which makes a real pass slower: peak rates are reached; arithmetic and reading overlap perfectly;
activations, launches and sampling take no time; one device holds everything, whether it fits or not (`memory` says that).
Weights of 8 or 4 bits are unpacked and multiplied at the 16-bit rate; caches are 16-bit. Small models are far from this: a pass
is then bound by launches, and a draft step costs more than its share of the weights.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec import theory

CACHE_BYTES = 2  # of one number in the cache
PRECISIONS = {"16-bit": 2.0, "8-bit": 1.0, "4-bit": 0.5}  # bytes per weight


@dataclass(frozen=True, kw_only=True)
class Device:
    """operations: dense 16-bit matrix operations per second. bandwidth: bytes per second. memory: bytes. source: of these."""

    name: str
    operations: float
    bandwidth: float
    memory: float
    source: str


@dataclass(frozen=True, kw_only=True)
class Model:
    """parameters: all of them. query_width: heads × head width. cache_width: key-value heads × head width. From config.json."""

    name: str
    parameters: float
    layers: int
    query_width: int
    cache_width: int

    @property
    def cache_bytes(self) -> int:
        """Key and value of one token in all layers."""
        return 2 * self.layers * self.cache_width * CACHE_BYTES


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """A target and its draft model."""

    target: Model
    draft: Model

    @property
    def name(self) -> str:
        return f"{self.target.name} + {self.draft.name}"


_NVIDIA = "dense rate, half of the rate with sparsity that the datasheet prints"
DEVICES = {
    d.name: d
    for d in (
        Device(name="H100 SXM", operations=989e12, bandwidth=3.35e12, memory=80e9, source=f"NVIDIA H100 datasheet ({_NVIDIA})"),
        Device(name="H200 SXM", operations=989e12, bandwidth=4.8e12, memory=141e9, source=f"NVIDIA H200 datasheet ({_NVIDIA})"),
        Device(name="A100 80GB SXM", operations=312e12, bandwidth=2.039e12, memory=80e9, source="NVIDIA A100 datasheet"),
        Device(name="L4", operations=121e12, bandwidth=300e9, memory=24e9, source=f"NVIDIA L4 datasheet ({_NVIDIA})"),
        Device(
            name="RTX 4090",
            operations=165.2e12,
            bandwidth=1008e9,
            memory=24e9,
            source="NVIDIA Ada GPU architecture whitepaper (16-bit with 32-bit accumulation, dense)",
        ),
        Device(
            name="Apple M3",
            operations=3.5e12,
            bandwidth=100e9,
            memory=24e9,
            source="Apple M3 press release (bandwidth, memory); the rate is an estimate, Apple names none: "
            "10 cores × 128 × 2 × 1.38 GHz",
        ),
    )
}

_SMOL_135 = Model(name="SmolLM2-135M", parameters=134.5e6, layers=30, query_width=576, cache_width=192)
_LLAMA_8 = Model(name="Llama-3.1-8B", parameters=8.03e9, layers=32, query_width=4096, cache_width=1024)
PAIRINGS = {
    p.name: p
    for p in (
        Pairing(
            target=_LLAMA_8, draft=Model(name="Llama-3.2-1B", parameters=1.236e9, layers=16, query_width=2048, cache_width=512)
        ),
        Pairing(
            target=Model(name="Llama-3.1-70B", parameters=70.6e9, layers=80, query_width=8192, cache_width=1024), draft=_LLAMA_8
        ),
        Pairing(
            target=Model(name="Qwen3-8B", parameters=8.19e9, layers=36, query_width=4096, cache_width=1024),
            draft=Model(name="Qwen3-0.6B", parameters=0.596e9, layers=28, query_width=2048, cache_width=1024),
        ),
        Pairing(
            target=Model(name="SmolLM2-1.7B", parameters=1.71e9, layers=24, query_width=2048, cache_width=2048), draft=_SMOL_135
        ),
    )
}


def pass_seconds(
    model: Model, device: Device, *, sequences: int, tokens: int, context: int, bytes_per_weight: float = 2.0
) -> float:
    """The least time of one pass over sequences × tokens new tokens, each sequence with `context` tokens in its cache."""
    return max(
        _work(model, sequences=sequences, tokens=tokens, context=context) / device.operations,
        _traffic(model, sequences=sequences, context=context, bytes_per_weight=bytes_per_weight) / device.bandwidth,
    )


def _work(model: Model, *, sequences: int, tokens: int, context: int) -> float:
    return sequences * tokens * (2 * model.parameters + 4 * model.layers * model.query_width * context)


def _traffic(model: Model, *, sequences: int, context: int, bytes_per_weight: float) -> float:
    return model.parameters * bytes_per_weight + sequences * context * model.cache_bytes


@dataclass(frozen=True, kw_only=True)
class Load:
    """A device that serves `sequences` requests at once, each with `context` tokens, with one pair in one precision."""

    pairing: Pairing
    device: Device
    sequences: int
    context: int
    bytes_per_weight: float = 2.0

    def seconds(self, model: Model, tokens: int) -> float:
        return pass_seconds(
            model,
            self.device,
            sequences=self.sequences,
            tokens=tokens,
            context=self.context,
            bytes_per_weight=self.bytes_per_weight,
        )

    def verify_ratio(self, draft_length: int) -> float:
        """v(γ, B): a pass over γ+1 tokens of each sequence / a plain step of all of them."""
        return self.seconds(self.pairing.target, int(draft_length) + 1) / self.seconds(self.pairing.target, 1)

    @property
    def cost_coefficient(self) -> float:
        """c: a draft step / a plain step, both for all sequences."""
        return self.seconds(self.pairing.draft, 1) / self.seconds(self.pairing.target, 1)

    def speedup(self, alpha: float, draft_length: int) -> float:
        return theory.speedup(alpha, draft_length, self.cost_coefficient, self.verify_ratio(draft_length))

    def best(self, alpha: float, *, longest: int = 16) -> theory.BestDraftLength:
        return theory.best_draft_length(alpha, self.cost_coefficient, self.verify_ratio, longest=longest)

    @property
    def free_tokens(self) -> float:
        """k up to which a pass over k tokens of each sequence takes as long as over one: there arithmetic catches up.

        Below 1: even a plain step is bound by arithmetic.
        """
        one = _work(self.pairing.target, sequences=self.sequences, tokens=1, context=self.context) / self.device.operations
        read = _traffic(
            self.pairing.target, sequences=self.sequences, context=self.context, bytes_per_weight=self.bytes_per_weight
        )
        return read / self.device.bandwidth / one


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes."""

    target_weights: float
    draft_weights: float
    target_cache: float
    draft_cache: float

    @property
    def plain(self) -> float:
        return self.target_weights + self.target_cache

    @property
    def total(self) -> float:
        return self.plain + self.draft_weights + self.draft_cache


def memory(pairing: Pairing, *, requests: int, context: int, bytes_per_weight: float = 2.0) -> Memory:
    """Weights of both models once, caches for every request. Activations and the runtime come on top."""
    return Memory(
        target_weights=pairing.target.parameters * bytes_per_weight,
        draft_weights=pairing.draft.parameters * bytes_per_weight,
        target_cache=requests * context * pairing.target.cache_bytes,
        draft_cache=requests * context * pairing.draft.cache_bytes,
    )


def most_requests(pairing: Pairing, device: Device, *, context: int, bytes_per_weight: float, drafting: bool) -> int:
    """How many requests fit into the device's memory, with or without the draft model; 0 where the weights alone do not."""
    one = memory(pairing, requests=1, context=context, bytes_per_weight=bytes_per_weight)
    weights = one.target_weights + (one.draft_weights if drafting else 0)
    cache = one.target_cache + (one.draft_cache if drafting else 0)
    return max(0, int((device.memory - weights) // cache))
