"""What one run leaves behind: every round, every drafted token with its q, p, u and verdict, every time.

A trace is the only thing that the screen, the metrics and the exports look at. It holds enough to check each verdict again,
it travels as JSON (`Trace.to_json`, `Trace.from_json`) and it is versioned by `SCHEMA`.

Conventions
- Probabilities are numbers in [0, 1], times are seconds, token ids are ids of the target's vocabulary.
- `p` is the target distribution, `q` the draft distribution, after temperature, top-k and top-p; in greedy runs
  (temperature 0) both are the models' own distributions at temperature 1, to look at, and the verdict is the argmax.
- A list of probabilities travels as `[[id, text, probability], ...]`, most probable first.
- `text` is what a token looks like on its own. A token that is only a part of a character shows as its bytes ("⟨F0 9F⟩")
  and carries them in `bytes` (hexadecimal), so that neighbouring parts can be put together again.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from specdec.errors import SettingsError, TraceError
from specdec.trace_check import check

SCHEMA = 1
MAX_DRAFT_LENGTH = 32
AUTO_LONGEST = 8  # the most that a round proposes when γ is "auto"
TOP = 10  # how many of the most probable tokens a trace keeps of a distribution

Status = Literal["accepted", "rejected", "discarded"]
OutcomeKind = Literal["replacement", "bonus", "none"]
FinishReason = Literal["eos", "length", "context", "stopped"]
Method = Literal["speculative", "plain"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a person chooses for one run. Checked on construction: a bad value raises SettingsError.

    drafter: "draft", "head", "head-lookup", "early-exit", "lookup", or "" for the pair's default.
    draft_length: γ, tokens proposed in a round; with `adaptive` the most that a round may propose. "auto" stands for both.
    adaptive: γ is chosen anew each round, see `specdec.adaptive`.
    temperature: 0 is greedy decoding; top_k 0 and top_p 1 switch those filters off.
    raw: the prompt is continued as it stands, without the chat template.
    exit_layers: layers that the early-exit drafter runs; 0 leaves the choice to it.
    ngram: longest run of tokens that prompt look-up tries to find again.
    """

    drafter: str = ""
    draft_length: int = 4
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    max_new_tokens: int = 64
    seed: int = 0
    raw: bool = False
    exit_layers: int = 0
    ngram: int = 3
    adaptive: bool = False

    def __post_init__(self) -> None:
        if self.draft_length == "auto":
            object.__setattr__(self, "draft_length", AUTO_LONGEST)
            object.__setattr__(self, "adaptive", True)
        _whole("draft length", self.draft_length, 0, MAX_DRAFT_LENGTH)
        _whole("top-k", self.top_k, 0, 1_000_000)
        _whole("max new tokens", self.max_new_tokens, 1, 100_000)
        _whole("seed", self.seed, 0, 2**63 - 1)
        _whole("exit layers", self.exit_layers, 0, 1_000)
        _whole("n-gram length", self.ngram, 1, 16)
        _number("temperature", self.temperature, 0.0, 100.0)
        _number("top-p", self.top_p, 0.0, 1.0)
        if self.top_p == 0:
            raise SettingsError("top-p is 0, which leaves no token to choose: take a value above 0, 1 switches it off.")
        if 0 < self.temperature < 1e-3:
            raise SettingsError(
                f"temperature is {self.temperature:g}, too close to 0 to divide by: take 0 for greedy decoding or at least 0.001."
            )

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    def replace(self, **changes: Any) -> "Settings":
        return dataclasses.replace(self, **changes)


def _whole(name: str, value: Any, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise SettingsError(f"{name} is {value!r}: take a whole number from {low} to {high}.")


def _number(name: str, value: Any, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:  # refuses nan, too
        raise SettingsError(f"{name} is {value!r}: take a number from {low:g} to {high:g}.")


@dataclass(frozen=True)
class TokenProbability:
    """One row of a distribution; travels as [id, text, probability]."""

    id: int
    text: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class Draft:
    """One drafted token.

    q, p: its draft and target probability. accept_probability: min(1, p/q), in greedy runs 1 or 0.
    u: the uniform draw it was judged by; None in greedy runs and for a discarded draft, which is never judged.
    draw_u: the uniform draw that the drafter picked it with; None for a deterministic drafter.
    overlap: Σ min(p, q) at its position, the exact chance that a draft there is accepted.
    top_p, top_q: the `TOP` most probable tokens of p and of q.
    """

    id: int
    text: str
    q: float
    p: float
    accept_probability: float
    u: float | None
    status: Status
    overlap: float
    top_p: tuple[TokenProbability, ...]
    top_q: tuple[TokenProbability, ...]
    draw_u: float | None = None
    bytes: str | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The token that the target itself adds at the end of a round.

    kind: "replacement" behind a rejected draft, "bonus" when no draft was rejected (also when there was none to reject, as in
    plain decoding), "none" when the run ended on an accepted draft; then id, p and u are None and text is "".
    p: its target probability. u: the uniform draw it was picked with, None in greedy runs.
    distribution: the `TOP` most probable tokens of what it was drawn from: the residual for a sampled replacement, else p.
    residual_mass: Σ max(0, p − q) before normalising, for a sampled replacement, else None.
    """

    kind: OutcomeKind
    id: int | None
    text: str
    p: float | None
    u: float | None
    distribution: tuple[TokenProbability, ...]
    residual_mass: float | None
    bytes: str | None = None


@dataclass(frozen=True, kw_only=True)
class Seconds:
    """Where the time of a round went. draft: one entry a draft step. record: making this very record, not part of decoding."""

    draft: tuple[float, ...]
    verify: float
    judge: float
    record: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Round:
    """One round: drafts, verdicts, and the token that the target adds.

    start: tokens committed before it, prompt included.
    """

    index: int
    start: int
    drafts: tuple[Draft, ...]
    outcome: Outcome
    seconds: Seconds

    @property
    def accepted(self) -> int:
        """How many drafts were accepted."""
        return sum(d.status == "accepted" for d in self.drafts)

    @property
    def judged(self) -> int:
        """How many drafts were judged: the accepted ones and the rejected one."""
        return sum(d.status != "discarded" for d in self.drafts)

    @property
    def copied(self) -> bool:
        """Whether the drafts were copied from the text: nothing was drawn, and the drafter named one token and no other."""
        return bool(self.drafts) and all(d.q == 1 and d.draw_u is None and len(d.top_q) == 1 for d in self.drafts)

    @property
    def new_ids(self) -> tuple[int, ...]:
        """The token ids that the round commits, in order."""
        kept = tuple(d.id for d in self.drafts if d.status == "accepted")
        return kept if self.outcome.id is None else (*kept, self.outcome.id)


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Counts and sums over a run. Ratios are left to `specdec.metrics`.

    seconds: from the start of the prefill to the last token; seconds_other is what the named parts leave of it.
    target_passes: passes of the target after the prefill, one a round.
    """

    prompt_tokens: int
    new_tokens: int
    target_passes: int
    drafted: int
    judged: int
    accepted: int
    rejected: int
    discarded: int
    replacements: int
    bonuses: int
    seconds: float
    seconds_prefill: float
    seconds_draft: float
    seconds_verify: float
    seconds_judge: float
    seconds_record: float
    seconds_other: float


def counts(rounds: Sequence[Round]) -> dict[str, int]:
    """What `Totals` counts in the rounds of a run."""
    drafted, judged, accepted = sum(len(r.drafts) for r in rounds), sum(r.judged for r in rounds), sum(r.accepted for r in rounds)
    return {
        "target_passes": len(rounds),
        "drafted": drafted,
        "judged": judged,
        "accepted": accepted,
        "rejected": judged - accepted,
        "discarded": drafted - judged,
        "replacements": sum(r.outcome.kind == "replacement" for r in rounds),
        "bonuses": sum(r.outcome.kind == "bonus" for r in rounds),
    }


@dataclass(frozen=True, kw_only=True)
class PairInfo:
    """Which models made the run. draft is None for a drafter that needs no model of its own. dtype: the number format that the target
    computes in. held: the one that its weights are held in, where that is shorter and holds them without rounding.
    """

    name: str
    target: str
    draft: str | None
    target_parameters: int
    draft_parameters: int | None
    dtype: str
    vocabulary: int
    context: int
    held: str | None = None


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One whole run. `output_text` is exact; the closing EOS, and a character that the last token leaves incomplete, are not in it.

    device: for instance "cpu" or "cuda:0 (NVIDIA H100)"; versions: of the libraries; created: ISO date and time, UTC.
    plain_step_seconds: median time of one plain target step, measured in the same process on the same device right behind the run,
    or before it, if it did not come to its end; None where it was not measured. shared: how many runs, itself included, at most shared
    a pass with it; its times are then not those of a run alone. None when it was alone. title: a name that a person gave to a kept run.
    read_bandwidth: bytes per second at which the device reads its memory, measured when the pair was loaded; None where it was not
    measured.
    """

    method: Method
    settings: Settings
    pair: PairInfo
    device: str
    versions: dict[str, str]
    created: str
    prompt: str
    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    output_text: str
    finish_reason: FinishReason
    seconds_to_first_token: float
    rounds: tuple[Round, ...]
    totals: Totals
    title: str = ""
    plain_step_seconds: float | None = None
    shared: int | None = None
    read_bandwidth: float | None = None
    schema: int = field(default=SCHEMA)

    def to_dict(self) -> dict[str, Any]:
        return _encode(self)

    def to_json(self) -> str:
        """Compact JSON, under 1 MB for 200 tokens."""
        return json.dumps(self.to_dict(), ensure_ascii=False, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_dict(cls, data: Any) -> "Trace":
        if not isinstance(data, dict):
            raise TraceError("This is no trace: a trace file holds one JSON object. Choose a file that was downloaded here.")
        if data.get("schema") != SCHEMA:
            found = f"has trace schema {str(data['schema'])[:20]}" if "schema" in data else "names no trace schema"
            raise TraceError(f"This file {found} and this version reads schema {SCHEMA}: make the run again.")
        trace = _decode(cls, data, "trace")
        check(trace)
        return trace

    @classmethod
    def from_json(cls, text: str | bytes) -> "Trace":
        """Raises TraceError with one sentence when the text is broken, foreign or inconsistent."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise TraceError(f"This file is not readable JSON ({error}): choose a trace that was downloaded here.") from None
        return cls.from_dict(data)


# JSON in and out, driven by the dataclasses themselves, so that a field cannot be forgotten on one side.


def _encode(value: Any) -> Any:
    if isinstance(value, TokenProbability):
        return [value.id, value.text, value.probability]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {name: getattr(value, name) for name in _hints(type(value))}
        # None is what a reader assumes where such a field is missing; four drafts a round make that count.
        return {name: _encode(v) for name, v in fields.items() if v is not None or name not in _optional(type(value))}
    if isinstance(value, (tuple, list)):
        return [_encode(v) for v in value]
    return value


@lru_cache(maxsize=None)
def _hints(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls)}


@lru_cache(maxsize=None)
def _optional(cls: type) -> frozenset[str]:
    """Fields that are None unless given."""
    return frozenset(f.name for f in dataclasses.fields(cls) if f.default is None)


def _decode(kind: Any, value: Any, where: str) -> Any:
    """`value` as `kind`, or a TraceError that names the place."""
    origin = typing.get_origin(kind)
    if kind is TokenProbability:
        if not isinstance(value, list) or len(value) != 3:
            raise TraceError(f"This trace is damaged: {where} should be [id, text, probability].")
        return TokenProbability(*(_decode(t, v, where) for t, v in zip((int, str, float), value)))
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise TraceError(f"This trace is damaged: {where} should be an object.")
        required = {f.name for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING}
        missing = sorted(required - value.keys())
        if missing:
            raise TraceError(f"This trace is damaged: {where} lacks {missing[0]!r}.")
        known = {n: _decode(t, value[n], f"{where}.{n}") for n, t in _hints(kind).items() if n in value}
        try:
            return kind(**known)
        except SettingsError as error:
            raise TraceError(f"This trace is damaged: {error}") from None
    if origin is tuple:
        if not isinstance(value, list):
            raise TraceError(f"This trace is damaged: {where} should be a list.")
        inner = typing.get_args(kind)[0]
        return tuple(_decode(inner, v, f"{where}[{i}]") for i, v in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise TraceError(f"This trace is damaged: {where} should map names to texts.")
        return {_decode(str, k, f"a name in {where}"): _decode(str, v, f"{where}.{k[:40]}") for k, v in value.items()}
    if origin is Literal:
        if value not in typing.get_args(kind):
            raise TraceError(f"This trace is damaged: {where} is {str(value)[:40]!r}.")
        return value
    if origin in (typing.Union, types.UnionType):
        inner = next(t for t in typing.get_args(kind) if t is not type(None))
        return None if value is None else _decode(inner, value, where)
    if kind is float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= sys.float_info.max:
            raise TraceError(f"This trace is damaged: {where} should be a number.")
        return float(value)
    if isinstance(value, bool) != (kind is bool) or not isinstance(value, kind) or (kind is int and abs(value) >= 2**63):
        raise TraceError(f"This trace is damaged: {where} should be {_KINDS[kind]}.")
    if kind is str and not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
        raise TraceError(f"This trace is damaged: {where} has half a character, which no screen can show.")
    return value


_KINDS = {str: "a text", int: "a whole number", bool: "true or false"}
