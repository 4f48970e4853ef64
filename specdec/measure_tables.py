"""The tables of a measurement as rows of names and numbers, units in the names: for the report, the page and the command line."""

from __future__ import annotations

from typing import Any

from specdec.measure import Measurement
from specdec.measure_analysis import Analysis, Figures
from specdec.measure_records import RunRecord
from specdec.measure_stats import Interval, cost_per_million

Row = dict[str, Any]

MS, MEGA = 1e3, 1e-6


def speed(analysis: Analysis, kind: str) -> list[Row]:
    """Each arm on one kind of task: speed-up with its interval, speed, waiting."""
    return [
        {
            "arm": f.arm.name,
            "speed-up (×)": _value(f.speedup),
            "from": _bound(f.speedup, "low"),
            "to": _bound(f.speedup, "high"),
            "slower than plain (prompts)": f.slower,
            "slowest prompt (×)": f.slowest,
            "decoding (tokens/s)": _value(f.tokens_per_second),
            "first token (ms)": _value(f.first_token, MS),
            "complete answer (s)": _value(f.answer),
            "prompts": f.prompts,
            "runs": f.runs,
            "same text as plain": "–" if f.same_text is None else f"{f.same_text[0]} of {f.same_text[1]}",
        }
        for f in analysis.of(kind)
    ]


def acceptance(analysis: Analysis, kind: str) -> list[Row]:
    """Each speculative arm: what its drafts were worth, and what they cost."""
    return [
        {
            "arm": f.arm.name,
            "acceptance rate α": f.acceptance_rate,
            "draft utilisation": f.utilisation,
            "drafted a round": f.mean_draft_length,
            "rounds with drafts": f.drafting_share,
            "tokens a round τ": f.mean_acceptance_length,
            "accepted a round": f.accepted_per_round,
            "draft step c (plain steps)": f.cost_coefficient,
            "verifying v (plain steps)": f.verify_ratio,
            "formula E/(γc+v) (×)": f.predicted_speedup,
        }
        for f in analysis.of(kind)
        if f.arm.drafter
    ]


def waiting(analysis: Analysis, kind: str) -> list[Row]:
    """Between visible tokens, and between two moments at which something appears, in milliseconds."""
    names = ("P50", "P90", "P99")
    return [
        {
            "arm": f.arm.name,
            **{f"between tokens {n} (ms)": f.gaps and v * MS for n, v in zip(names, f.gaps or (0, 0, 0), strict=True)},
            **{f"between pauses {n} (ms)": f.pauses and v * MS for n, v in zip(names, f.pauses or (0, 0, 0), strict=True)},
        }
        for f in analysis.of(kind)
    ]


def time_split(analysis: Analysis, kind: str) -> list[Row]:
    """Where the time of all runs went, in seconds."""
    return [
        {
            "arm": f.arm.name,
            "prefill (s)": f.seconds_prefill,
            "drafting (s)": f.seconds_draft,
            "verifying (s)": f.seconds_verify,
            "judging (s)": f.seconds_judge,
            "other (s)": f.seconds_other,
        }
        for f in analysis.of(kind)
    ]


def memory(analysis: Analysis) -> list[Row]:
    """Megabytes (10⁶ bytes), the most over all runs."""
    return [
        {
            "arm": f.arm.name,
            "weights (MB)": _scaled(f.memory.weights, MEGA),
            "keys and values (MB)": _scaled(f.memory.cache, MEGA),
            "peak of the process (MB)": _scaled(f.memory.peak, MEGA),
        }
        for f in analysis.of("")
    ]


def loads(analysis: Analysis, price: float) -> list[Row]:
    """Requests at once: throughput, waiting, cost. price: of one device-hour."""
    return [
        {
            "requests at once": one.at_once,
            "arm": one.arm.name,
            "throughput (tokens/s)": one.tokens_per_second,
            "against plain (×)": one.speedup,
            "first token, median (ms)": one.first_token * MS,
            "complete answer, median (s)": one.answer,
            "complete answer, P90 (s)": one.answer_p90,
            "cost of a million tokens": one.cost(price),
        }
        for one in analysis.loads
    ]


def cost_alone(figures: Figures, price: float) -> float | None:
    """Of a million output tokens with one request after the other, reading the prompts included."""
    return cost_per_million(price, figures.served_per_second) if figures.served_per_second else None


def records(measurement: Measurement) -> list[Row]:
    """Every record, flat: what a spreadsheet can work on."""
    rows = []
    for r in measurement.records:
        single = isinstance(r, RunRecord)
        rows.append(
            {
                "record": "run" if single else "batch",
                "arm": r.arm.name,
                "drafter": r.drafter,
                "draft_length": r.draft_length,
                "kind": measurement.design.prompts[r.prompt].kind if single else "",
                "prompt": r.prompt if single else "",
                "repeat": r.repeat,
                "at_once": 1 if single else r.at_once,
                "requests": 1 if single else r.requests,
                "new_tokens": r.new_tokens,
                "rounds": len(r.round_tokens) if single else r.target_passes,
                "drafted": r.drafted,
                "judged": r.judged,
                "accepted": r.accepted,
                "seconds": r.seconds_total if single else r.seconds,
                "seconds_to_first_token": r.seconds_to_first_token if single else "",
                "seconds_prefill": r.seconds_prefill if single else "",
                "seconds_draft": r.seconds_draft if single else "",
                "seconds_verify": r.seconds_verify if single else "",
                "seconds_judge": r.seconds_judge if single else "",
                "finish_reason": r.finish_reason if single else "",
                "text": r.text if single else "",
                "peak_bytes": r.memory.peak,
                "weights_bytes": r.memory.weights,
                "cache_bytes": r.memory.cache,
                "at": r.at,
            }
        )
    return rows


def _value(interval: Interval | None, scale: float = 1.0) -> float | None:
    return None if interval is None else interval.value * scale


def _bound(interval: Interval | None, side: str) -> float | None:
    return None if interval is None else getattr(interval, side)


def _scaled(value: int | None, scale: float) -> float | None:
    return None if value is None else value * scale
