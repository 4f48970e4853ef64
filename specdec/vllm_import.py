"""Somebody's own server: the speculative decoding counters of vLLM, read from its /metrics text or from responses.

- /metrics (Prometheus text): `vllm:spec_decode_num_drafts`, `..._num_draft_tokens`, `..._num_accepted_tokens` and
  `..._num_accepted_tokens_per_pos{position="0"}`, all counted since the server started; two snapshots make a difference.
- responses (JSON): `metrics.speculative_decoding`, there when the server runs with --per-request-spec-decode-metrics.

vLLM's acceptance rate is accepted / all drafted tokens, here called draft utilisation. The α of the formulas is accepted / judged,
and the counters do not name the judged ones; they follow from how many drafts each round accepted: a round that accepted n < γ
drafts judged n + 1, one that accepted all of them judged γ.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from specdec.errors import SettingsError
from specdec.measure_stats import histogram_quantile

PREFIX = "vllm:spec_decode_num_"
LATENCIES = {
    "vllm:time_to_first_token_seconds": "time to first token",
    "vllm:inter_token_latency_seconds": "between two tokens",
    "vllm:time_per_output_token_seconds": "between two tokens",  # its name in older versions
    "vllm:e2e_request_latency_seconds": "complete answer",
}

Buckets = tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True)
class ServerStats:
    """rounds: passes that verified drafts (vLLM: drafts). drafted, accepted: tokens.

    reached: rounds that accepted at least 1, 2, ... drafts. judged: drafts that were accepted or rejected; None where reached is
    not known. exact: whether all rounds had the same γ, so that judged is exact; else it is the most that it can be, and α the
    least. latencies: name -> cumulative buckets of a histogram, in seconds. responses: how many were read, 0 for /metrics.
    """

    model: str
    rounds: int
    drafted: int
    accepted: int
    reached: tuple[int, ...]
    judged: int | None
    exact: bool
    latencies: dict[str, Buckets] = field(default_factory=dict)
    responses: int = 0

    @property
    def utilisation(self) -> float | None:
        """accepted / drafted: what vLLM calls draft acceptance rate."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def acceptance_rate(self) -> float | None:
        """α: accepted / judged."""
        return self.accepted / self.judged if self.judged else None

    @property
    def mean_acceptance_length(self) -> float | None:
        """τ: 1 + accepted / rounds."""
        return 1 + self.accepted / self.rounds if self.rounds else None

    @property
    def mean_draft_length(self) -> float | None:
        return self.drafted / self.rounds if self.rounds else None

    @property
    def accepted_per_round(self) -> list[int]:
        """Rounds that accepted exactly 0, 1, 2, ... drafts."""
        steps = (self.rounds, *self.reached, 0)
        return [a - b for a, b in zip(steps, steps[1:], strict=False)]

    def percentiles(self, name: str) -> list[float | None]:
        """P50, P90, P99 of a histogram, in seconds."""
        return [histogram_quantile(self.latencies[name], share) for share in (0.5, 0.9, 0.99)]

    def since(self, before: ServerStats) -> ServerStats:
        """What came between two snapshots of one server. Raises SettingsError when `before` is the later one."""
        if before.rounds > self.rounds or before.drafted > self.drafted:
            raise SettingsError("The counters of the first file are higher than those of the second: give the earlier one first.")
        length = max(len(self.reached), len(before.reached))
        reached = tuple(a - b for a, b in zip(_padded(self.reached, length), _padded(before.reached, length), strict=True))
        latencies = {
            name: tuple((bound, count - dict(before.latencies.get(name, ())).get(bound, 0.0)) for bound, count in buckets)
            for name, buckets in self.latencies.items()
        }
        rounds, drafted = self.rounds - before.rounds, self.drafted - before.drafted
        return _checked(
            model=self.model,
            rounds=rounds,
            drafted=drafted,
            accepted=self.accepted - before.accepted,
            reached=reached,
            latencies=latencies,
        )


def _padded(values: tuple[int, ...], length: int) -> tuple[int, ...]:
    return values + (0,) * (length - len(values))


def _checked(*, rounds: int, drafted: int, accepted: int, reached: tuple[int, ...], **more: Any) -> ServerStats:
    """Stats whose counters fit together; raises SettingsError otherwise."""
    while reached and not reached[-1] and len(reached) > 1 and drafted <= rounds * (len(reached) - 1):
        reached = reached[:-1]
    if accepted > drafted or any(b > a for a, b in zip((rounds, *reached), reached, strict=False)):
        raise SettingsError(
            f"The counters do not fit together: {drafted} tokens drafted and {accepted} accepted in {rounds} rounds."
        )
    if reached and sum(reached) != accepted:
        raise SettingsError(
            f"The counters do not fit together: {accepted} tokens accepted in all, {sum(reached)} by position: take them again."
        )
    judged = rounds + sum(reached[:-1]) if reached else None
    exact = bool(reached) and drafted == rounds * len(reached)
    return ServerStats(rounds=rounds, drafted=drafted, accepted=accepted, reached=reached, judged=judged, exact=exact, **more)


def read(data: bytes | str, *, name: str = "the file") -> ServerStats:
    """A /metrics text, one response, or several (a list, or one on each line). Raises SettingsError with one sentence."""
    try:
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
    except UnicodeDecodeError:
        raise SettingsError(f"{name} is not text: give what http://your-server/metrics shows, or a response as JSON.") from None
    if not text.strip():
        raise SettingsError(f"{name} is empty: give what http://your-server/metrics shows, or a response as JSON.")
    first = text.lstrip()[0]
    return _responses(text, name) if first in "{[" or text.lstrip().startswith("data:") else _metrics(text, name)


def _metrics(text: str, name: str) -> ServerStats:
    from prometheus_client.parser import text_string_to_metric_families

    counters: dict[str, float] = {}
    positions: dict[int, float] = {}
    buckets: dict[str, dict[float, float]] = {}
    models: dict[str, None] = {}
    found_vllm = False
    try:
        for sample in (s for family in text_string_to_metric_families(text) for s in family.samples):
            found_vllm = found_vllm or sample.name.startswith("vllm:")
            what = sample.name.removesuffix("_total")
            if what == PREFIX + "accepted_tokens_per_pos":
                place = int(sample.labels["position"])
                positions[place] = positions.get(place, 0.0) + _count(sample.value)
            elif what.startswith(PREFIX) and not what.endswith("_created"):
                counters[what] = counters.get(what, 0.0) + _count(sample.value)
                models[sample.labels.get("model_name", "")] = None
            elif (base := sample.name.removesuffix("_bucket")) in LATENCIES and base != sample.name:
                bounds = buckets.setdefault(LATENCIES[base], {})
                bound = float(sample.labels["le"])
                bounds[bound] = bounds.get(bound, 0.0) + _count(sample.value)
    except (ValueError, KeyError, IndexError) as error:
        raise SettingsError(
            f"{name} is no Prometheus text ({str(error)[:120]}): give what http://your-server/metrics shows."
        ) from None
    wanted = [PREFIX + part for part in ("drafts", "draft_tokens", "accepted_tokens")]
    missing = next((w for w in wanted if w not in counters), None)
    if missing and not found_vllm:
        raise SettingsError(f"{name} holds nothing of vLLM: give what http://your-server/metrics shows, or a response as JSON.")
    if missing:
        raise SettingsError(
            f"{name} has no {missing}: was the server started with --speculative-config, in a version from 2025 on?"
        )
    if not counters[wanted[0]]:
        raise SettingsError(f"{name} has counted no draft yet: send the server some requests first.")
    places = range(max(positions, default=-1) + 1)
    return _checked(
        model=", ".join(filter(None, models)),
        rounds=int(counters[wanted[0]]),
        drafted=int(counters[wanted[1]]),
        accepted=int(counters[wanted[2]]),
        reached=tuple(int(positions.get(place, 0.0)) for place in places),
        latencies={n: tuple(sorted(b.items())) for n, b in buckets.items()},
    )


def _count(value: float) -> float:
    if not 0 <= value < 2**63 or math.isnan(value):
        raise ValueError(f"a counter is {value}")
    return value


def _responses(text: str, name: str) -> ServerStats:
    found = [entry for value in _values(text, name) for entry in _entries(value)]
    if not found:
        raise SettingsError(
            f"{name} has no metrics.speculative_decoding: start vLLM with --per-request-spec-decode-metrics summary, and stream "
            "with stream_options.include_usage."
        )
    total = ServerStats(model="", rounds=0, drafted=0, accepted=0, reached=(), judged=0, exact=True)
    for place, (model, entry) in enumerate(found, start=1):
        try:
            one = _response(entry)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SettingsError(
                f"metrics.speculative_decoding of response {place} of {name} cannot be read ({error}): it should be "
                "as vLLM 0.29 to 0.32 write it."
            ) from None
        length = max(len(total.reached), len(one.reached))
        total = dataclasses.replace(
            total,
            model=total.model or model,
            rounds=total.rounds + one.rounds,
            drafted=total.drafted + one.drafted,
            accepted=total.accepted + one.accepted,
            reached=tuple(a + b for a, b in zip(_padded(total.reached, length), _padded(one.reached, length), strict=True)),
            judged=total.judged + one.judged,
            exact=total.exact and one.exact,
            responses=place,
        )
    if not total.rounds:
        raise SettingsError(f"{name} has counted no draft: the server drafted nothing for it.")
    return total


def _values(text: str, name: str) -> Iterator[Any]:
    """The whole text as one JSON value, or one value on each line, as a stream or a log has them."""
    try:
        yield json.loads(text)
        return
    except (ValueError, RecursionError):
        pass
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.strip().removeprefix("data:").strip()
        if line and line != "[DONE]":
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as error:
                raise SettingsError(f"Line {number} of {name} is no JSON ({error}).") from None


def _entries(value: Any, model: str = "", depth: int = 0) -> Iterator[tuple[str, dict]]:
    """(model, speculative_decoding) of every response in a value, also one that something has wrapped up."""
    if depth > 4:
        return
    if isinstance(value, list):
        for inner in value:
            yield from _entries(inner, model, depth + 1)
    elif isinstance(value, dict):
        model = value["model"] if isinstance(value.get("model"), str) else model
        if "num_spec_steps" in value:
            yield model, value
        else:
            for key in ("metrics", "speculative_decoding", "data", "response", "body"):
                yield from _entries(value.get(key), model, depth + 1)


def _response(entry: dict[str, Any]) -> ServerStats:
    """One metrics.speculative_decoding object."""
    histogram = [_whole(v) for v in entry["acceptance_histogram"]]
    by_length = {int(k): [_whole(v) for v in row] for k, row in (entry.get("acceptance_histogram_by_draft_length") or {}).items()}
    rounds, drafted = _whole(entry["num_spec_steps"]), _whole(entry["num_draft_tokens"])
    accepted = _whole(entry["num_accepted_draft_tokens"])
    if sum(histogram) != rounds or sum(j * n for j, n in enumerate(histogram)) != accepted:
        raise ValueError(f"its histogram does not add up to {rounds} steps and {accepted} accepted tokens")
    longest = len(histogram) - 1
    if by_length:
        judged, exact = sum(n * min(j + 1, k) for k, row in by_length.items() for j, n in enumerate(row)), True
    else:
        judged, exact = sum(n * min(j + 1, longest) for j, n in enumerate(histogram)), drafted == rounds * longest
    reached = tuple(sum(histogram[j:]) for j in range(1, longest + 1))
    return ServerStats(model="", rounds=rounds, drafted=drafted, accepted=accepted, reached=reached, judged=judged, exact=exact)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{str(value)[:40]} is no count")
    return value
