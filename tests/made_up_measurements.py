"""Made-up measurements: runs with the speed-ups that a test wants, and the design that real ones are made with."""

from __future__ import annotations

from specdec.measure import Design, Measurement, Origin
from specdec.measure_records import PLAIN, Arm, BatchRecord, RunRecord
from specdec.prompt_sets import Prompt

ORIGIN = Origin(
    pair="p", target="t", dtype="float32", device="cpu", machine="m", threads=1, versions={"torch": "2"}, weights={}, created="2026"
)
PROMPTS = (Prompt("a", "abc abc abc"), Prompt("a", "hello"), Prompt("b", "one two one two"))
DESIGN = Design(pair="tiny", drafters=("draft", "lookup"), draft_lengths=(1, 3), prompts=PROMPTS, repeats=2, new_tokens=10)


def run_record(arm, prompt, seconds, tokens=10, **changes):
    """A made-up run: `tokens` rounds of one token."""
    base = dict(
        drafter=arm.drafter,
        draft_length=arm.draft_length,
        prompt=prompt,
        repeat=0,
        prompt_tokens=3,
        new_tokens=tokens,
        finish_reason="length",
        drafted=40 if arm.drafter else 0,
        judged=20 if arm.drafter else 0,
        accepted=10 if arm.drafter else 0,
        rounds_with_drafts=tokens if arm.drafter else 0,
        seconds_to_first_token=0.1,
        seconds_prefill=0.0,
        seconds_draft=0.2 * seconds if arm.drafter else 0.0,
        seconds_verify=0.8 * seconds,
        seconds_verify_drafts=0.8 * seconds if arm.drafter else 0.0,
        seconds_judge=0.0,
        round_seconds=(seconds / tokens,) * tokens,
        round_tokens=(1,) * tokens,
        text="x",
    )
    return RunRecord(**{**base, **changes})


def made_up(speedups, draft_length=4):
    """A measurement in which prompt i has the speed-up speedups[i]."""
    arm = Arm("head", draft_length)
    prompts = tuple(Prompt("a", str(i)) for i in range(len(speedups)))
    records = [run_record(PLAIN, i, 1.0) for i in range(len(speedups))]
    records += [run_record(arm, i, 1.0 / s) for i, s in enumerate(speedups)]
    design = Design(drafters=("head",), draft_lengths=(draft_length,), prompts=prompts)
    return Measurement(design=design, origin=ORIGIN, records=tuple(records))


def batch(arm, at_once, seconds, tokens=800):
    return BatchRecord(
        drafter=arm.drafter,
        draft_length=arm.draft_length,
        repeat=0,
        at_once=at_once,
        requests=8,
        new_tokens=tokens,
        seconds=seconds,
        first_token_seconds=(0.1, 0.3) * 4,
        answer_seconds=(1.0, 2.0) * 4,
        drafted=0,
        judged=10,
        accepted=5,
        target_passes=100,
    )
