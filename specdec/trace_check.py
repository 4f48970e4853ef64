"""Refuses a trace whose parts contradict each other, so that nobody explains numbers that never happened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from specdec.errors import TraceError

if TYPE_CHECKING:
    from specdec.trace import Round, Seconds, Totals, Trace

LONGEST_SECONDS = 1e9  # thirty years; beyond it a time is a damaged number
MOST_BYTES_PER_SECOND = 1e15
LARGEST_ID = 2**31 - 1
_LETTERS = {"accepted": "a", "rejected": "r", "discarded": "d"}


def check(trace: Trace) -> None:
    """Raises TraceError, one sentence that names the place, at the first contradiction."""
    ids: list[int] = []
    for number, round_ in enumerate(trace.rounds):
        where = f"round {number}"
        if round_.index != number or round_.start != len(trace.prompt_ids) + len(ids):
            raise _damaged(f"{where} says it is number {round_.index} starting at {round_.start}")
        if trace.method == "plain" and round_.drafts:
            raise _damaged(f"{where} has drafts, and plain decoding drafts nothing")
        _check_verdicts(round_, where)
        if not all(-1e-6 <= value <= 1 + 1e-4 for value in _probabilities(round_)):
            raise _damaged(f"a probability of {where} is outside 0 to 1")
        if not all(_is_hexadecimal(part.bytes) for part in (*round_.drafts, round_.outcome)):
            raise _damaged(f"the bytes of a token of {where} are not hexadecimal")
        _check_times(_times(round_.seconds), where)
        ids.extend(round_.new_ids)
    if tuple(ids) != trace.output_ids:
        raise _damaged("its rounds do not add up to its output")
    if not all(0 <= token <= LARGEST_ID for token in _token_ids(trace)):
        raise _damaged(f"a token id is outside 0 to {LARGEST_ID}")
    for name, told, counted in _counts(trace, trace.totals):
        if told != counted:
            raise _damaged(f"its totals say {told} for {name} and its rounds add up to {counted}")
    _check_times((value for name, value in vars(trace.totals).items() if name.startswith("seconds")), "the totals")
    _check_times((trace.seconds_to_first_token,), "the first token")
    if trace.shared is not None and not 1 < trace.shared <= 100_000:
        raise _damaged(f"{trace.shared} runs cannot have shared a pass")
    if trace.read_bandwidth is not None and not 0 < trace.read_bandwidth <= MOST_BYTES_PER_SECOND:
        raise _damaged(f"memory cannot be read at {trace.read_bandwidth:g} bytes per second")
    if trace.plain_step_seconds is not None and not 0 < trace.plain_step_seconds <= LONGEST_SECONDS:
        raise _damaged(f"a plain step cannot take {trace.plain_step_seconds:g} seconds")


def _damaged(what: str) -> TraceError:
    return TraceError(f"This trace is damaged: {what}.")


def _check_verdicts(round_: Round, where: str) -> None:
    """Accepted drafts, then at most one rejected, then discarded ones; the outcome follows from them."""
    kind, order = round_.outcome.kind, "".join(_LETTERS[d.status] for d in round_.drafts)
    judged = order.rstrip("d")
    rejected = judged.endswith("r")
    kept = judged[:-1] if rejected else judged
    if kept.strip("a") or (len(judged) < len(order) and not rejected and kind != "none"):
        raise _damaged(f"the verdicts of {where} are in an impossible order")
    if (kind == "replacement") != rejected or (kind == "none") != (round_.outcome.id is None) or (kind == "none" and not kept):
        raise _damaged(f"the outcome of {where} does not follow from its verdicts")


def _probabilities(round_: Round) -> Iterator[float]:
    """All that must lie between 0 and 1."""
    for draft in round_.drafts:
        yield from (draft.q, draft.p, draft.accept_probability, draft.overlap)
        yield from (u for u in (draft.u, draft.draw_u) if u is not None)
        yield from (row.probability for row in (*draft.top_p, *draft.top_q))
    outcome = round_.outcome
    yield from (value for value in (outcome.p, outcome.u, outcome.residual_mass) if value is not None)
    yield from (row.probability for row in outcome.distribution)


def _is_hexadecimal(text: str | None) -> bool:
    try:
        return text is None or bytes.fromhex(text) is not None
    except ValueError:
        return False


def _token_ids(trace: Trace) -> Iterator[int]:
    yield from trace.prompt_ids
    for round_ in trace.rounds:
        yield from round_.new_ids
        yield from (row.id for row in round_.outcome.distribution)
        for draft in round_.drafts:
            yield draft.id
            yield from (row.id for row in (*draft.top_p, *draft.top_q))


def _times(seconds: Seconds) -> tuple[float, ...]:
    return (*seconds.draft, seconds.verify, seconds.judge, seconds.record)


def _check_times(times: Iterable[float], where: str) -> None:
    for value in times:
        if not 0 <= value <= LONGEST_SECONDS:
            raise _damaged(f"a time of {where} is {value:g} seconds")


def _counts(trace: Trace, totals: Totals) -> Iterator[tuple[str, int, int]]:
    """name, what the totals say, what the rounds add up to."""
    rounds = trace.rounds
    drafted, judged = sum(len(r.drafts) for r in rounds), sum(r.judged for r in rounds)
    accepted = sum(r.accepted for r in rounds)
    kinds = [r.outcome.kind for r in rounds]
    yield "prompt tokens", totals.prompt_tokens, len(trace.prompt_ids)
    yield "new tokens", totals.new_tokens, len(trace.output_ids)
    yield "target passes", totals.target_passes, len(rounds)
    yield "drafted tokens", totals.drafted, drafted
    yield "judged drafts", totals.judged, judged
    yield "accepted drafts", totals.accepted, accepted
    yield "rejected drafts", totals.rejected, judged - accepted
    yield "discarded drafts", totals.discarded, drafted - judged
    yield "replacements", totals.replacements, kinds.count("replacement")
    yield "bonus tokens", totals.bonuses, kinds.count("bonus")
