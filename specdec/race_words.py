"""What a race says in words, with its own numbers: who won and why, and whether the two texts are the same. Pure, plain text."""

from __future__ import annotations

from dataclasses import dataclass

from specdec import promises
from specdec.race import Comparison, Difference, Race, compare, first_difference
from specdec.texts import count as counted
from specdec.texts import localised, number, text
from specdec.trace import Trace

FEW = 16  # tokens; over fewer, one round more or less decides


@dataclass(frozen=True)
class Verdict:
    """faster: None where it is even or unknown. head: the result in one sentence; rest: why, in the terms of the formulas."""

    faster: bool | None
    head: str
    rest: str = ""


def verdict(race: Race) -> Verdict:
    """Who was faster, with the cause by its name (α, c or v) where the drafter lost."""
    found = compare(race)
    if found.speedup is None:
        return Verdict(None, text("race.verdict.none"))
    which = "even" if found.faster is None else "faster" if found.faster else "slower"
    head = text(
        f"race.verdict.{'' if found.whole else 'part.'}{which}",
        tokens=_tokens(found.tokens),
        with_=seconds(found.seconds_speculative),
        without=seconds(found.seconds_plain),
        ratio=localised(f"{found.speedup:.2f}×"),
    )
    parts = [_passes(found), _cause(found), _figures(found)]
    return Verdict(found.faster, head, " ".join(part for part in parts if part))


def _passes(found: Comparison) -> str:
    if not found.whole:
        return text("race.only.short" if found.tokens < FEW else "race.only", length=found.speculative.tokens_per_pass)
    return text("race.ran", speculative=found.speculative.passes, plain=found.plain.passes)


def _cause(found: Comparison) -> str:
    if found.cause is None:
        return ""
    values = {
        "value": _of(getattr(found.figures, found.cause, None)),
        "plain": seconds(found.plain.first),
        "speculative": seconds(found.speculative.first),
    }
    return text(f"race.cause.{found.cause}", **values)


def _figures(found: Comparison) -> str:
    """α, c and v, without the one that was just named as the cause."""
    s = found.figures
    values = {
        "acceptance_rate": ("α", s.acceptance_rate),
        "cost_coefficient": ("c", s.cost_coefficient),
        "verify_ratio": ("v", s.verify_ratio),
    }
    values.pop(found.cause, None)
    parts = [f"{name}\u00a0=\u00a0{_of(value)}" for name, value in values.values() if value is not None]
    return text("race.figures", figures=", ".join(parts)) if parts else ""


@dataclass(frozen=True)
class Texts:
    """What can be said of the two texts. good: True identical or a tie, False a mistake, None where they may differ."""

    good: bool | None
    head: str
    rest: str = ""


def texts(race: Race) -> Texts:
    """Greedy: the same text, checked, or the first difference and its reason. Sampled: two texts, one law."""
    return _greedy(race) if race.plain.settings.greedy else _sampled(race)


def _greedy(race: Race) -> Texts:
    found = first_difference(race)
    if found is not None:
        return _differs(found, race.plain.pair.dtype)
    a, b = len(race.plain.output_ids), len(race.speculative.output_ids)
    if not min(a, b):
        return Texts(None, text("race.no_text"), text("race.no_text.why"))
    if a != b:
        return Texts(True, text("race.as_far", tokens=_tokens(min(a, b))), text("race.as_far.why"))
    return Texts(True, text("race.identical", tokens=_tokens(a)), text("race.identical.why"))


def _differs(found: Difference, dtype: str) -> Texts:
    head = text("race.differs", place=found.place + 1, plain=quoted(found.plain), speculative=quoted(found.speculative))
    if found.gap is None:
        return Texts(False, head, text("race.differs.far"))
    (a, b), (c, d) = found.logits_plain, found.logits_speculative
    logits = text("race.logits", a=a, b=b, c=c, d=d)
    return Texts(found.tie, head, text("race.tie" if found.tie else "race.no_tie", logits=logits, gap=found.gap, dtype=dtype))


def _sampled(race: Race) -> Texts:
    kept = [said for said in (_favourites("plain", race.plain), _favourites("speculative", race.speculative)) if said]
    why = text("race.law.why", temperature=race.plain.settings.temperature)
    seen = text("race.law.and").join(kept)
    return Texts(None, text("race.law"), text("race.law.look", why=why, seen=seen) if kept else why)


def _favourites(name: str, trace: Trace) -> str:
    found = promises.favourites(trace)
    if not len(found.kept):
        return ""
    return text(f"race.law.{name}", count=found.count, expected=found.expected, error=found.error)


def quoted(token: str) -> str:
    """A token in quotation marks, whatever is invisible in it escaped."""
    return text("quote", text="".join(c if c.isprintable() else repr(c)[1:-1] for c in token))


def seconds(value: float | None) -> str:
    """ "12 ms", "0.84 s", "12.3 s"."""
    if value is None:
        return "–"
    if value < 0.0995:
        return localised(f"{1e3 * value:.3g} ms")
    return localised(f"{value:.2f} s" if value < 9.995 else f"{value:.1f} s")


def _tokens(count: int) -> str:
    return counted("tokens", count)


def _of(value: float | None) -> str:
    return "–" if value is None else number(value, ".2f")
