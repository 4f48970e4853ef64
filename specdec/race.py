"""With and without: one request decoded plainly and speculatively, one after the other, and laid on one clock.

`Race` holds the two traces and travels as JSON. Everything else here is a pure function of them:
- `arrivals` and `bars`: when each token was there, and what each model pass took, counted from the start of the request;
- `compare`: time to the first token and to the whole answer of both, the speed-up, and c and v against the plain steps of this
  very race, not against a step that was measured at some other time;
- `first_difference`: in greedy runs both texts must be the same; if they are not, where and how close the two tokens were.

Speed-up here is that of the whole request: plain time / speculative time up to the same number of tokens, prompt included.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import Any, Literal

from specdec import metrics
from specdec.errors import TraceError
from specdec.tokens import surrogate
from specdec.trace import Round, Trace

SCHEMA = 1
SHARED = ("temperature", "top_k", "top_p", "max_new_tokens", "seed", "raw")  # settings that both runs must have alike
EVEN = 0.02  # less than this share is what two runs of the same thing differ by

# Passes of different shapes round differently. Logits that are nearer than this may change places; more is a mistake somewhere.
ROUNDING = {"float64": 1e-6, "float32": 0.01, "float16": 0.1, "bfloat16": 0.5}

Kind = Literal["prefill", "draft", "verify", "plain", "judge"]
Cause = Literal["acceptance_rate", "cost_coefficient", "verify_ratio", "start", "nothing drafted"]


@dataclass(frozen=True, kw_only=True)
class Race:
    """Two runs of the same request: same prompt, target, device and settings, but for who drafts. title: given by a person."""

    plain: Trace
    speculative: Trace
    title: str = ""

    def renamed(self, title: str) -> Race:
        return dataclasses.replace(self, title=title)

    def to_json(self) -> str:
        """Compact JSON; the two traces in it are in the format of `specdec.trace`."""
        data = {"race": SCHEMA, "title": self.title, "plain": self.plain.to_dict(), "speculative": self.speculative.to_dict()}
        return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Race:
        """Raises TraceError with one sentence when the text is broken, foreign, or holds two runs that cannot be compared."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise TraceError(f"This file is not readable JSON ({error}): choose a race that was saved here.") from None
        if not isinstance(data, dict) or "race" not in data:
            raise TraceError("This is no race: a race file holds a plain and a speculative run. Choose a race that was saved here.")
        if data["race"] != SCHEMA:
            raise TraceError(f"This race has format {str(data['race'])[:20]} and this version reads {SCHEMA}: make the race again.")
        if not isinstance(title := data.get("title", ""), str) or surrogate(title):
            raise TraceError("This race is damaged: its title should be a text.")
        race = cls(plain=Trace.from_dict(data.get("plain")), speculative=Trace.from_dict(data.get("speculative")), title=title)
        race.check()
        return race

    def check(self) -> None:
        """Raise TraceError unless the two runs differ in nothing but the drafts."""
        a, b = self.plain, self.speculative
        same = {
            "prompt": a.prompt_ids == b.prompt_ids,
            "target": (a.pair.target, a.pair.dtype) == (b.pair.target, b.pair.dtype),
            "device": a.device == b.device,
            "settings": all(getattr(a.settings, name) == getattr(b.settings, name) for name in SHARED),
        }
        if (a.method, b.method) != ("plain", "speculative"):
            raise TraceError("This race is damaged: it should hold a plain run and a speculative one.")
        if (wrong := next((name for name, fits in same.items() if not fits), None)) is not None:
            raise TraceError(f"The two runs of this race cannot be compared, they differ in their {wrong}: make the race again.")


# On the clock


@dataclass(frozen=True)
class Bar:
    """One stretch of work. start, seconds: on the clock of the request. round: its number from 0, None for the prefill.

    tokens: how many tokens a pass took in; of a draft step, its place in the draft from 1; of a judge, how many tokens came out.
    """

    kind: Kind
    start: float
    seconds: float
    round: int | None
    tokens: int


def bars(trace: Trace) -> list[Bar]:
    """What the time of a run went into, in order. Between the bars is what belongs to none of them; recording is left out."""
    found = [Bar("prefill", 0.0, trace.totals.seconds_prefill, None, len(trace.prompt_ids))]
    clock = trace.totals.seconds_prefill
    for round_, gap in zip(trace.rounds, _gaps(trace), strict=True):
        clock += gap
        pass_: Kind = "plain" if trace.method == "plain" else "verify"
        parts = [("draft", s, i + 1) for i, s in enumerate(round_.seconds.draft)]
        parts += [(pass_, round_.seconds.verify, len(round_.drafts) + 1), ("judge", round_.seconds.judge, len(round_.new_ids))]
        for kind, seconds, tokens in parts:
            found.append(Bar(kind, clock, seconds, round_.index, tokens))
            clock += seconds
    return found


def arrivals(trace: Trace) -> tuple[float, ...]:
    """Seconds from the start of the request until each new token was there; the tokens of a round come together at its end."""
    clock, times = trace.totals.seconds_prefill, []
    for round_, gap in zip(trace.rounds, _gaps(trace), strict=True):
        clock += gap + _spent(round_)
        times += [clock] * len(round_.new_ids)
    return tuple(times)


def _spent(round_: Round) -> float:
    return math.fsum(round_.seconds.draft) + round_.seconds.verify + round_.seconds.judge


def _gaps(trace: Trace) -> list[float]:
    """The time before each round that belongs to none of its parts. Known for the first round (the time to the first token was
    measured) and for the run as a whole; what is left is spread evenly over the other rounds."""
    if not trace.rounds:
        return []
    figures = metrics.summary(trace)
    other = figures.seconds_total - trace.totals.seconds_prefill - math.fsum(map(_spent, trace.rounds))
    other = max(0.0, other)
    if len(trace.rounds) == 1:
        return [other]
    first = trace.seconds_to_first_token - trace.totals.seconds_prefill - _spent(trace.rounds[0])
    first = min(max(0.0, first), other)
    return [first] + [(other - first) / (len(trace.rounds) - 1)] * (len(trace.rounds) - 1)


# Compared


@dataclass(frozen=True, kw_only=True)
class Side:
    """One half of the race. first, complete: seconds until the first and until the last token, None where there is none."""

    tokens: int
    first: float | None
    complete: float | None
    passes: int
    tokens_per_pass: float | None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """tokens: how many both have; the race is over so many. seconds_plain, seconds_speculative: until that many were there.

    whole: both ended, with equally many tokens. speedup: plain seconds / speculative seconds. figures: those of the speculative
    run with the plain steps of this race for its c, v and speed-up. cause: why it was slower, None where it was not.
    """

    plain: Side
    speculative: Side
    tokens: int
    whole: bool
    seconds_plain: float | None
    seconds_speculative: float | None
    speedup: float | None
    figures: metrics.Summary
    cause: Cause | None

    @property
    def faster(self) -> bool | None:
        """None where the two differ by less than two runs of the same thing do, or where nothing can be said."""
        if self.speedup is None or 1 - EVEN < self.speedup < 1 + EVEN:
            return None
        return self.speedup > 1


def compare(race: Race) -> Comparison:
    times = arrivals(race.plain), arrivals(race.speculative)
    tokens = min(map(len, times))
    plain_s, speculative_s = (t[tokens - 1] if tokens else None for t in times)
    plain = metrics.summary(race.plain)
    # The plain steps of this race: the same minutes, the same text. Mean over the run, choosing the token included.
    step = plain.seconds_decode / plain.new_tokens if plain.new_tokens and plain.seconds_decode else None
    figures = metrics.summary(dataclasses.replace(race.speculative, plain_step_seconds=step))
    speedup = plain_s / speculative_s if plain_s and speculative_s else None
    ended = "stopped" not in (race.plain.finish_reason, race.speculative.finish_reason)
    return Comparison(
        plain=_side(race.plain, times[0]),
        speculative=_side(race.speculative, times[1]),
        tokens=tokens,
        whole=ended and len(times[0]) == len(times[1]),
        seconds_plain=plain_s,
        seconds_speculative=speculative_s,
        speedup=speedup,
        figures=figures,
        cause=_cause(figures) if speedup is not None and speedup <= 1 - EVEN else None,
    )


def _side(trace: Trace, times: tuple[float, ...]) -> Side:
    return Side(
        tokens=len(times),
        first=times[0] if times else None,
        complete=times[-1] if times else None,
        passes=len(trace.rounds),
        tokens_per_pass=len(times) / len(trace.rounds) if trace.rounds else None,
    )


def _cause(figures: metrics.Summary) -> Cause:
    """Of a race that was lost. Rounds that were no slower than plain steps leave only what is before them."""
    if not figures.drafted:
        return "nothing drafted"
    return metrics.slow_cause(figures) or "start"


# The two texts


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first place (from 0) at which two greedy texts differ. plain, speculative: what stands there in each.

    Logits are those of (plain's token, speculative's token) in each run, up to a constant that the two of a run share:
    ln p at temperature 1. None where the trace does not list a token. tie: rounding explains the difference.
    """

    place: int
    plain: str
    speculative: str
    logits_plain: tuple[float, float] | None
    logits_speculative: tuple[float, float] | None
    tie: bool

    @property
    def gap(self) -> float | None:
        """How far the two logits lie apart, in the run where they lie further apart."""
        both = self.logits_plain, self.logits_speculative
        return None if None in both else max(abs(a - b) for a, b in both)


def first_difference(race: Race) -> Difference | None:
    """None where the texts agree as far as both go."""
    pairs = zip(_places(race.plain), _places(race.speculative), strict=False)
    for place, ((a, a_text, in_plain), (b, b_text, in_speculative)) in enumerate(pairs):
        if a == b:
            continue
        logits = [(math.log(p[a]), math.log(p[b])) if min(p.get(a, 0), p.get(b, 0)) > 0 else None for p in (in_plain, in_speculative)]
        found = Difference(
            place=place, plain=a_text, speculative=b_text, logits_plain=logits[0], logits_speculative=logits[1], tie=False
        )
        near = found.gap is not None and found.gap <= ROUNDING.get(race.plain.pair.dtype, 0.01)
        return dataclasses.replace(found, tie=near)
    return None


def _places(trace: Trace) -> list[tuple[int, str, dict[int, float]]]:
    """(id, text, {id: p}) of each token of the output, p as far as the trace lists it."""
    found: list[tuple[int, str, dict[int, Any]]] = []
    for round_ in trace.rounds:
        for draft in round_.drafts:
            if draft.status == "accepted":
                found.append((draft.id, draft.text, {t.id: t.probability for t in draft.top_p} | {draft.id: draft.p}))
        outcome = round_.outcome
        if outcome.id is not None:
            listed = {t.id: t.probability for t in outcome.distribution}
            found.append((outcome.id, outcome.text, listed | ({outcome.id: outcome.p} if outcome.p else {})))
    return found
