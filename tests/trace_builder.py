"""Builds made-up traces for tests: invented numbers over an invented vocabulary, never shown to anybody as a real run.

Every number is consistent all the same: p and q of a position are whole distributions over a toy vocabulary, and acceptance
probability, verdict, overlap, residual and totals follow from them by the rules of the trace (see `specdec.trace`).
What is invented is only p, q, the draws and the times. Ready ones are in `sample_traces`.

    make_trace([" Hi"], [Plan((sure(" there", 0.8, 0.7, 0.3),), "!")], settings=Settings(temperature=1.0))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specdec.trace import TOP, Draft, Outcome, PairInfo, Round, Seconds, Settings, TokenProbability, Totals, Trace

Token = str | bytes  # bytes: a token that is only a part of a character
Distribution = dict[Token, float]

EOS = "<|im_end|>"
FILLERS = (" of", " it", " on", " as", " by", " so", " we", " up", " no", " if", " my", " he")
_IDS: dict[Token, int] = {EOS: 2}


def token_id(token: Token) -> int:
    """A stable id for this process: the end-of-text token has 2, the others count up from 10."""
    return _IDS.setdefault(token, 10 + len(_IDS))


def token_text(token: Token) -> str:
    return token if isinstance(token, str) else "⟨" + " ".join(f"{b:02X}" for b in token) + "⟩"


def distribution(*named: tuple[Token, float]) -> Distribution:
    """The named probabilities, and what is missing to 1 spread over filler words, halving from one to the next."""
    result = dict(named)
    rest = 1.0 - sum(result.values())
    assert rest > -1e-9, "the named probabilities pass 1"
    words = [w for w in FILLERS if w not in result]
    weights = [2.0**-i for i in range(len(words))]
    return result | {w: max(rest, 0.0) * g / sum(weights) for w, g in zip(words, weights)}


def top(probabilities: Distribution) -> tuple[TokenProbability, ...]:
    ranked = sorted(((v, t) for t, v in probabilities.items() if v > 0), key=lambda pair: -pair[0])[:TOP]
    return tuple(TokenProbability(token_id(t), token_text(t), v) for v, t in ranked)


@dataclass(frozen=True)
class Place:
    """One drafted position: the token x, the distributions there and the uniform draw that judges it."""

    x: Token
    p: Distribution
    q: Distribution
    u: float = 0.5


@dataclass(frozen=True)
class Plan:
    """One round to be made. then: the token that the target adds; behind: its distribution behind the last draft."""

    places: tuple[Place, ...]
    then: Token | None
    behind: Distribution | None = None
    then_u: float = 0.37
    draft_seconds: float = 0.002
    verify_seconds: float = 0.024


def make_round(plan: Plan, *, index: int, start: int, greedy: bool) -> Round:
    drafts: list[Draft] = []
    open_, rejected_at = True, None
    for i, place in enumerate(plan.places):
        p, q = place.p.get(place.x, 0.0), place.q[place.x]
        if greedy:
            chance = 1.0 if place.x == max(place.p, key=lambda t: place.p[t]) else 0.0
            kept = chance == 1.0
        else:
            chance = min(1.0, p / q)
            kept = place.u < chance
        status = "discarded" if not open_ else "accepted" if kept else "rejected"
        drafts.append(
            Draft(
                id=token_id(place.x),
                text=token_text(place.x),
                q=q,
                p=p,
                accept_probability=chance,
                u=None if greedy or not open_ else place.u,
                status=status,
                overlap=sum(min(place.p.get(t, 0.0), place.q.get(t, 0.0)) for t in place.p.keys() | place.q.keys()),
                top_p=top(place.p),
                top_q=top(place.q),
                draw_u=None if greedy else 0.41,
                bytes=place.x.hex() if isinstance(place.x, bytes) else None,
            )
        )
        if status == "rejected":
            open_, rejected_at = False, i
        elif status == "accepted" and place.x == EOS:
            open_ = False
    outcome = _outcome(plan, rejected_at, greedy=greedy)
    seconds = Seconds(draft=(plan.draft_seconds,) * len(drafts), verify=plan.verify_seconds, judge=0.0004, record=0.0006)
    return Round(index=index, start=start, drafts=tuple(drafts), outcome=outcome, seconds=seconds)


def _outcome(plan: Plan, rejected_at: int | None, *, greedy: bool) -> Outcome:
    if plan.then is None:
        return Outcome(kind="none", id=None, text="", p=None, u=None, distribution=(), residual_mass=None)
    token, mass = plan.then, None
    if rejected_at is None:
        kind, p = "bonus", plan.behind or distribution((token, 0.62))
        drawn_from = p
    else:
        kind, place = "replacement", plan.places[rejected_at]
        p = place.p
        drawn_from = p
        if not greedy:
            left = {t: max(0.0, v - place.q.get(t, 0.0)) for t, v in p.items()}
            mass = sum(left.values())
            drawn_from = {t: v / mass for t, v in left.items()}
    assert drawn_from.get(token, 0.0) > 0, f"{token!r} could not have been drawn"
    assert not greedy or token == max(p, key=lambda t: p[t]), "greedy takes the most probable token"
    return Outcome(
        kind=kind,
        id=token_id(token),
        text=token_text(token),
        p=p[token],
        u=None if greedy else plan.then_u,
        distribution=top(drawn_from),
        residual_mass=mass,
        bytes=token.hex() if isinstance(token, bytes) else None,
    )


def make_trace(prompt: list[Token], plans: list[Plan], *, settings: Settings, finish_reason: str = "length", **changes) -> Trace:
    """A whole trace from the plans of its rounds. changes: fields of `Trace` to set otherwise."""
    rounds, start, by_id = [], len(prompt), {}
    for index, plan in enumerate(plans):
        rounds.append(make_round(plan, index=index, start=start, greedy=settings.greedy))
        start += len(rounds[-1].new_ids)
    for token, number in _IDS.items():
        by_id[number] = token
    output_ids = tuple(i for r in rounds for i in r.new_ids)
    raw = b"".join(t if isinstance(t, bytes) else t.encode() for t in (by_id[i] for i in output_ids) if t != EOS)
    drafts = [d for r in rounds for d in r.drafts]
    count = {s: sum(d.status == s for d in drafts) for s in ("accepted", "rejected", "discarded")}
    kinds = [r.outcome.kind for r in rounds]
    draft_s, verify_s = sum(sum(r.seconds.draft) for r in rounds), sum(r.seconds.verify for r in rounds)
    judge_s, record_s = sum(r.seconds.judge for r in rounds), sum(r.seconds.record for r in rounds)
    totals = Totals(
        prompt_tokens=len(prompt),
        new_tokens=len(output_ids),
        target_passes=len(rounds),
        drafted=len(drafts),
        judged=count["accepted"] + count["rejected"],
        **count,
        replacements=kinds.count("replacement"),
        bonuses=kinds.count("bonus"),
        seconds=draft_s + verify_s + judge_s + record_s + 0.043,
        seconds_prefill=0.04,
        seconds_draft=draft_s,
        seconds_verify=verify_s,
        seconds_judge=judge_s,
        seconds_record=record_s,
        seconds_other=0.003,
    )
    fields: dict[str, Any] = dict(
        method="speculative",
        settings=settings,
        device="cpu",
        versions={"specdec": "test"},
        created="2026-11-29T12:00:00Z",
        pair=PairInfo(
            name="made-up pair (test data)",
            target="made-up target",
            draft="made-up draft",
            target_parameters=1000,
            draft_parameters=100,
            dtype="float32",
            vocabulary=4096,
            context=2048,
        ),
        prompt="".join(t for t in prompt if isinstance(t, str)),
        prompt_ids=tuple(token_id(t) for t in prompt),
        output_ids=output_ids,
        output_text=raw.decode("utf-8", errors="ignore"),
        finish_reason=finish_reason,
        seconds_to_first_token=0.07,
        rounds=tuple(rounds),
        totals=totals,
        plain_step_seconds=0.019,
    )
    return Trace(**(fields | changes))


def sure(x: Token, p: float, q: float, u: float = 0.3) -> Place:
    """A place where both models name x and the rest is filler."""
    return Place(x, distribution((x, p)), distribution((x, q)), u)
