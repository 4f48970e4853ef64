"""The pairs that are known by name. Parameter counts are those of the published weights; memory follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specdec.errors import SettingsError

BYTES_PER_WEIGHT = {"float32": 4, "bfloat16": 2, "float16": 2}


def memory_needed(parameters: int, dtype: str, *, stored: str = "bfloat16") -> int:
    """Bytes that `parameters` weights take to load and run in `dtype` on a CPU when their files hold `stored`.

    The weights, a seventh for what the passes put beside them, and a fixed part for caches of a few thousand tokens. Weights that
    are made wider while they are read are there twice until the runner has arranged them; others are read from the file itself.
    """
    copies = 2 if dtype == "float32" != stored else 1
    return int(parameters * BYTES_PER_WEIGHT[dtype] * (copies + 1 / 7)) + 400_000_000


@dataclass(frozen=True, kw_only=True)
class PairSpec:
    """A pair that can be asked for by name.

    target, draft: ids on the model hub; draft is None where the drafters need no second model. gated: the hub asks for a
    licence to be accepted and a token. stored: number format of the published
    weights. chat: has a chat template. remarks: what a person should know before choosing it. weights: how a CPU is to hold them;
    "int8" (and "float16", where it rounds) make another target of it, and such a pair runs on the CPU only.
    """

    name: str
    title: str
    target: str
    draft: str | None
    target_parameters: int
    draft_parameters: int
    stored: str = "bfloat16"
    chat: bool = True
    gated: bool = False
    remarks: str = ""
    weights: str = "float32"

    @property
    def parameters(self) -> int:
        return self.target_parameters + self.draft_parameters

    @property
    def embedded(self) -> bool:
        """Whether the target comes from a package instead of the model hub."""
        return self.target == "SmolLM2-135M-Instruct"

    def memory(self, dtype: str) -> int:
        """Bytes of memory that both models need together in `dtype` ("float32", "bfloat16", "float16")."""
        return memory_needed(self.parameters, dtype, stored=self.stored)


EMBEDDED = "embedded"
DEFAULT_PAIR = EMBEDDED

_SPECS = (
    PairSpec(
        name=EMBEDDED,
        title="SmolLM2-135M (embedded)",
        target="SmolLM2-135M-Instruct",
        draft=None,
        target_parameters=134_515_008,
        draft_parameters=0,
        stored="float32",
        remarks="comes with the app's packages, runs on any computer, needs no model hub; English",
    ),
    PairSpec(
        name="embedded-int8",
        title="SmolLM2-135M (embedded), int8 weights",
        target="SmolLM2-135M-Instruct",
        draft=None,
        target_parameters=134_515_008,
        draft_parameters=0,
        stored="float32",
        weights="int8",
        remarks="the embedded target with half the bytes to read; CPU only; another target, which writes other texts",
    ),
    PairSpec(
        name="smollm2-1.7b",
        title="SmolLM2-1.7B with SmolLM2-135M",
        target="HuggingFaceTB/SmolLM2-1.7B-Instruct",
        draft="HuggingFaceTB/SmolLM2-135M-Instruct",
        target_parameters=1_711_376_384,
        draft_parameters=134_515_008,
        remarks="open; fits any GPU, the one to begin with on CUDA",
    ),
    PairSpec(
        name="smollm2-360m",
        title="SmolLM2-360M with SmolLM2-135M",
        target="HuggingFaceTB/SmolLM2-360M-Instruct",
        draft="HuggingFaceTB/SmolLM2-135M-Instruct",
        target_parameters=361_821_120,
        draft_parameters=134_515_008,
        remarks="open; the draft has 30 layers and the target 32, so there is little to gain: a lesson in itself",
    ),
    PairSpec(
        name="qwen3-8b",
        title="Qwen3-8B with Qwen3-0.6B",
        target="Qwen/Qwen3-8B",
        draft="Qwen/Qwen3-0.6B",
        target_parameters=8_190_735_360,
        draft_parameters=596_049_920,
        remarks="open; many languages; thinks aloud before it answers",
    ),
    PairSpec(
        name="qwen3-4b",
        title="Qwen3-4B with Qwen3-0.6B",
        target="Qwen/Qwen3-4B",
        draft="Qwen/Qwen3-0.6B",
        target_parameters=4_022_468_096,
        draft_parameters=596_049_920,
        remarks="open; many languages; thinks aloud before it answers",
    ),
    PairSpec(
        name="llama-3.1-8b",
        title="Llama-3.1-8B with Llama-3.2-1B",
        target="meta-llama/Llama-3.1-8B-Instruct",
        draft="meta-llama/Llama-3.2-1B-Instruct",
        target_parameters=8_030_261_248,
        draft_parameters=1_235_814_400,
        gated=True,
        remarks="gated: accept the licence of both models on the hub and log in with a token first",
    ),
    PairSpec(
        name="gemma-3-12b",
        title="Gemma-3-12B with Gemma-3-270M",
        target="google/gemma-3-12b-it",
        draft="google/gemma-3-270m-it",
        target_parameters=12_187_325_040,
        draft_parameters=268_098_176,
        gated=True,
        remarks="gated; most layers see a window only, which takes a transformers whose cache can roll back in it",
    ),
    PairSpec(
        name="gpt2-xl",
        title="GPT-2 XL with GPT-2",
        target="openai-community/gpt2-xl",
        draft="openai-community/gpt2",
        target_parameters=1_557_611_200,
        draft_parameters=124_439_808,
        stored="float32",
        chat=False,
        remarks="open; the classic of 2019, continues a raw text instead of answering; 1,024 tokens at most",
    ),
)

CATALOGUE: dict[str, PairSpec] = {spec.name: spec for spec in _SPECS}


def offered(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Pairs that the pages offer: SPECDEC_PAIRS, names with commas between them; the first one is loaded at the start.

    A name is one of the catalogue or, with SPECDEC_ALLOW_MODELS=1, TARGET or TARGET+DRAFT, each a hub id or a folder. Raises
    SettingsError for any other: pages load nothing that the server does not name, whatever a person writes.
    """
    names = tuple(dict.fromkeys(name.strip() for name in environment.get("SPECDEC_PAIRS", "").split(",") if name.strip()))
    for name in names:
        if name not in CATALOGUE and environment.get("SPECDEC_ALLOW_MODELS", "").strip() not in ("1", "true"):
            raise SettingsError(
                f"SPECDEC_PAIRS names {name!r}, which the catalogue does not have: take {', '.join(CATALOGUE)}, "
                "or allow models of your own with SPECDEC_ALLOW_MODELS=1."
            )
    return names or (EMBEDDED, "embedded-int8")


def sides(name: str) -> tuple[str, str | None]:
    """Target and draft of a pair that is not in the catalogue, "TARGET+DRAFT" or "TARGET"."""
    target, _, draft = name.partition("+")
    return target.strip(), draft.strip() or None


def title(name: str) -> str:
    """What people call a pair that pages offer."""
    if name in CATALOGUE:
        return CATALOGUE[name].title
    return " with ".join(one.rstrip("/").rpartition("/")[2] for one in sides(name) if one)
