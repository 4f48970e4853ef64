"""What the stage is told: `StageView`, plain numbers and texts taken from a trace or from a run that is still going on.

Pure: no Streamlit here. `StageView.to_dict` is what travels to the browser, in the names of the trace.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from specdec.trace import TOP, Draft, Outcome, Round, Settings, TokenProbability, Trace

State = Literal["empty", "loading", "queued", "running", "done", "stopped", "failed"]
Kind = Literal["recording", "live"]
ROWS = 5  # tokens listed of one position


@dataclass(frozen=True, kw_only=True)
class StageView:
    """What the stage shows.

    run: name of the run; the stage keeps its place under it and starts anew when it changes.
    label: said at the top all the time, for instance "Recording · 29 Nov 2026 · cpu" or "Live · cpu".
    kind: "recording" or "live". A live run plays by itself and follows the newest round; a recording waits for Play.
    state, message: where the run stands, and a sentence for a person (what is loading, why it failed).
    queue: place in the queue, 1 is next. progress: done share of loading in [0, 1], None if unknown.
    settings: as resolved (the name of the drafter filled in). prompt: what the person wrote.
    plain_step_seconds: median plain step, None if unknown; then the plain clock is left out.
    play: start playing at once (where movement is wanted at all). start_round: the round to open at, counted from 0.
    """

    run: str
    label: str
    kind: Kind = "live"
    state: State = "done"
    message: str = ""
    queue: int | None = None
    progress: float | None = None
    prompt: str = ""
    settings: Settings = Settings()
    method: Literal["speculative", "plain"] = "speculative"
    rounds: tuple[Round, ...] = ()
    finish_reason: str | None = None
    plain_step_seconds: float | None = None
    play: bool = False
    start_round: int = 0

    @classmethod
    def from_trace(
        cls, trace: Trace, *, run: str, label: str, kind: Kind = "recording", play: bool = False, start_round: int = 0
    ) -> "StageView":
        """A finished run. For a live run that has just ended keep its `run` and give kind="live": the animation goes on."""
        return cls(
            run=run,
            label=label,
            kind=kind,
            state="stopped" if trace.finish_reason == "stopped" else "done",
            prompt=trace.prompt,
            settings=trace.settings,
            method=trace.method,
            rounds=trace.rounds,
            finish_reason=trace.finish_reason,
            plain_step_seconds=trace.plain_step_seconds,
            play=play,
            start_round=start_round,
        )

    @classmethod
    def live(
        cls,
        *,
        run: str,
        label: str,
        prompt: str,
        settings: Settings,
        state: State,
        rounds: Iterable[Round] = (),
        method: Literal["speculative", "plain"] = "speculative",
        message: str = "",
        queue: int | None = None,
        progress: float | None = None,
        plain_step_seconds: float | None = None,
    ) -> "StageView":
        """A run that is waiting, going on, or has ended without a trace. rounds: all rounds so far, appended to only."""
        return cls(
            run=run,
            label=label,
            kind="live",
            state=state,
            message=message,
            queue=queue,
            progress=progress,
            prompt=prompt,
            settings=settings,
            method=method,
            rounds=tuple(rounds),
            plain_step_seconds=plain_step_seconds,
            play=True,
        )

    @classmethod
    def empty(cls, message: str = "Write a prompt and press Run.") -> "StageView":
        """No run yet."""
        return cls(run="", label="", state="empty", message=message)

    def to_dict(self, told: dict[int, dict[str, Any]] | None = None) -> dict[str, Any]:
        """JSON-ready, in the names of the trace; about 350 bytes a draft.

        told: rounds of this very run by number, as they were returned before; those that are missing are added.
        """
        told = {} if told is None else told
        for number, round_ in enumerate(self.rounds):
            if number not in told:
                told[number] = _round(round_, greedy=self.settings.greedy)
        return {
            "run": self.run,
            "label": self.label,
            "kind": self.kind,
            "state": self.state,
            "message": self.message,
            "queue": self.queue,
            "progress": self.progress,
            "prompt": self.prompt,
            "raw": self.settings.raw,
            "greedy": self.settings.greedy,
            "drafter": self.settings.drafter,
            "draft_length": self.settings.draft_length,
            "method": self.method,
            "finish_reason": self.finish_reason,
            "plain_step_seconds": self.plain_step_seconds,
            "play": self.play,
            "start_round": self.start_round,
            "rounds": [told[number] for number in range(len(self.rounds))],
        }


# What travels of a round. Numbers keep six digits; of the two distributions only the tokens worth listing.


def _six(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def _round(round_: Round, *, greedy: bool) -> dict[str, Any]:
    rejected = next((d for d in round_.drafts if d.status == "rejected"), None)
    return {
        "index": round_.index,
        "start": round_.start,
        "copied": round_.copied,
        "drafts": [_draft(d, greedy=greedy) for d in round_.drafts],
        "outcome": _outcome(round_.outcome, rejected),
        "seconds": {
            "draft": [_six(s) for s in round_.seconds.draft],
            "verify": _six(round_.seconds.verify),
            "judge": _six(round_.seconds.judge),
        },
    }


def _draft(draft: Draft, *, greedy: bool) -> dict[str, Any]:
    result = {
        "id": draft.id,
        "text": draft.text,
        "q": _six(draft.q),
        "p": _six(draft.p),
        "accept_probability": _six(draft.accept_probability),
        "u": _six(draft.u),
        "status": draft.status,
        "overlap": _six(draft.overlap),
        "rows": position_rows(draft),
    }
    if draft.bytes is not None:
        result["bytes"] = draft.bytes
    if greedy and draft.top_p:
        result["choice"] = draft.top_p[0].text
    return result


def _outcome(outcome: Outcome, rejected: Draft | None) -> dict[str, Any]:
    result = {
        "kind": outcome.kind,
        "id": outcome.id,
        "text": outcome.text,
        "p": _six(outcome.p),
        "u": _six(outcome.u),
        "residual_mass": _six(outcome.residual_mass),
        "rows": residual_rows(outcome, rejected),
    }
    if outcome.bytes is not None:
        result["bytes"] = outcome.bytes
    return result


def position_rows(draft: Draft) -> list[list[Any]]:
    """[[id, text, p, q], ...] for the tokens that either model wants most at this position, the drafted one among them.

    p or q is None where the trace does not list that token for that model.
    """
    p, q = _listed(draft.top_p) | {draft.id: draft.p}, _listed(draft.top_q) | {draft.id: draft.q}
    texts = {t.id: t.text for t in (*draft.top_p, *draft.top_q)} | {draft.id: draft.text}
    ranked = sorted(texts, key=lambda i: -max(p.get(i, 0.0), q.get(i, 0.0)))
    other_p, other_q = _unlisted(draft.top_p), _unlisted(draft.top_q)
    return [[i, texts[i], _six(p.get(i, other_p)), _six(q.get(i, other_q))] for i in _keep(ranked, draft.id, ROWS)]


def _listed(top: tuple[TokenProbability, ...]) -> dict[int, float]:
    return {t.id: t.probability for t in top}


def _unlisted(top: tuple[TokenProbability, ...]) -> float | None:
    """Probability of a token that is not in the list: 0 when the list is shorter than a trace keeps, else unknown."""
    return 0.0 if len(top) < TOP else None


def residual_rows(outcome: Outcome, rejected: Draft | None) -> list[list[Any]]:
    """[[id, text, p, q, left], ...]: the tokens that the outcome was most probably drawn from, the drawn one among them.

    left = max(0, p − q), before normalising, is None unless the outcome was drawn from the residual; then the rejected token,
    with nothing left, is the last row. p or q is None where the trace does not list it.
    """
    texts = {t.id: t.text for t in outcome.distribution}
    if outcome.id is not None:
        texts[outcome.id] = outcome.text
    chance = {t.id: t.probability for t in outcome.distribution}
    if outcome.residual_mass is None or rejected is None:
        drawn = {outcome.id: outcome.p} if outcome.id is not None else {}
        ranked = _keep(list(texts), outcome.id, ROWS)
        return [[i, texts[i], _six(chance.get(i, drawn.get(i))), None, None] for i in ranked]
    p, q = _listed(rejected.top_p) | {rejected.id: rejected.p}, _listed(rejected.top_q) | {rejected.id: rejected.q}
    rows = []
    for i in _keep([i for i in texts if i != rejected.id], outcome.id, ROWS - 1):
        left = chance[i] * outcome.residual_mass if i in chance else None
        p_here, q_here = p.get(i, outcome.p if i == outcome.id else None), q.get(i, _unlisted(rejected.top_q))
        if left and p_here is not None and q_here is None:  # the trace lists ten tokens of q, the difference gives the rest
            q_here = max(0.0, p_here - left)
        if left and p_here is None and q_here is not None:
            p_here = q_here + left
        rows.append([i, texts[i], _six(p_here), _six(q_here), _six(left)])
    return [*rows, [rejected.id, rejected.text, _six(rejected.p), _six(rejected.q), 0.0]]


def _keep(ranked: list[int], wanted: int | None, most: int) -> list[int]:
    """The first `most`, with `wanted` put in the last place if it is not among them."""
    if wanted is None or wanted in ranked[:most]:
        return ranked[:most]
    return [*ranked[: most - 1], wanted]
