"""What holds for every trace of the loop, for tests of it."""

from __future__ import annotations

import dataclasses

import pytest

from specdec.trace import Round, Trace


def statuses(round_: Round) -> str:
    """a, r, d for each draft, then R, B or - for the outcome."""
    return "".join(d.status[0] for d in round_.drafts) + {"replacement": "R", "bonus": "B", "none": "-"}[round_.outcome.kind]


def without_times(trace: Trace) -> Trace:
    rounds = tuple(dataclasses.replace(r, seconds=None) for r in trace.rounds)
    counts = {f.name: 0.0 for f in dataclasses.fields(trace.totals) if f.name.startswith("seconds")}
    totals = dataclasses.replace(trace.totals, **counts)
    return dataclasses.replace(trace, rounds=rounds, totals=totals, created="", seconds_to_first_token=0.0)


def check(trace: Trace) -> None:
    """What holds for every trace: it is readable, and its totals are the sums of its rounds."""
    assert Trace.from_json(trace.to_json()) == trace
    totals, rounds = trace.totals, trace.rounds
    letters = "".join(statuses(r) for r in rounds)
    assert totals.prompt_tokens == len(trace.prompt_ids) and totals.new_tokens == len(trace.output_ids)
    assert totals.target_passes == len(rounds)
    assert totals.drafted == sum(len(r.drafts) for r in rounds) == totals.judged + totals.discarded
    assert totals.judged == totals.accepted + totals.rejected
    assert (totals.accepted, totals.rejected, totals.discarded) == tuple(map(letters.count, "ard"))
    assert (totals.replacements, totals.bonuses) == (letters.count("R"), letters.count("B"))
    assert totals.rejected == totals.replacements
    assert totals.new_tokens == totals.accepted + totals.replacements + totals.bonuses
    assert totals.new_tokens <= trace.settings.max_new_tokens
    named = totals.seconds_prefill + totals.seconds_draft + totals.seconds_verify + totals.seconds_judge + totals.seconds_record
    assert totals.seconds + 1e-5 >= named and totals.seconds_other == pytest.approx(totals.seconds - named, abs=1e-5)
    assert 0 <= trace.seconds_to_first_token <= totals.seconds + 1e-6
