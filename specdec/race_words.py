"""What a race says in words, with its own numbers: who won and why, and whether the two texts are the same. Pure, plain text."""

from __future__ import annotations

from dataclasses import dataclass

from specdec import promises
from specdec.race import Comparison, Difference, Race, compare, first_difference
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
        return Verdict(None, "One of the two made no token, so there is nothing to compare.")
    what = "the complete answer" if found.whole else f"the first {_tokens(found.tokens)}"
    plain, speculative, ratio = seconds(found.seconds_plain), seconds(found.seconds_speculative), f"{found.speedup:.2f}×"
    if found.faster is None:
        head = f"With or without the drafter, {what} took about the same time: {speculative} with, {plain} without ({ratio})."
    elif found.faster:
        head = f"The drafter pays here: {what} took {speculative} instead of {plain}, {ratio} the speed of plain decoding."
    else:
        head = f"The drafter loses here: {what} took {speculative} instead of {plain}, {ratio} the speed of plain decoding."
    parts = [_passes(found), _cause(found), _figures(found)]
    return Verdict(found.faster, head, " ".join(part for part in parts if part))


def _passes(found: Comparison) -> str:
    if not found.whole:
        length = found.speculative.tokens_per_pass
        short = " That is too short a piece to judge by." if found.tokens < FEW else ""
        return f"Only that many are in both texts.{short} Each pass of the target brought {length:.2f} tokens instead of 1."
    return f"The target ran {found.speculative.passes} times instead of {found.plain.passes}."


def _cause(found: Comparison) -> str:
    s = found.figures
    first = seconds(found.plain.first), seconds(found.speculative.first)
    return {
        None: "",
        "acceptance_rate": f"The cause is α: {_of(s.acceptance_rate)} of the judged drafts were accepted, too few to pay for "
        "making and checking them.",
        "cost_coefficient": f"The cause is c: each drafted token cost {_of(s.cost_coefficient)} plain steps, too much for what "
        "the drafts brought.",
        "verify_ratio": f"The cause is v: a pass that checks drafts cost {_of(s.verify_ratio)} plain steps on this device.",
        "start": f"The cause is the start: the rounds were no slower than plain steps, but the first token came after {first[1]} "
        f"instead of {first[0]}.",
        "nothing drafted": "The drafter found nothing to propose, so every pass brought one token, as in plain decoding.",
    }[found.cause]


def _figures(found: Comparison) -> str:
    """α, c and v, without the one that was just named as the cause."""
    s = found.figures
    values = {
        "acceptance_rate": ("α", s.acceptance_rate),
        "cost_coefficient": ("c", s.cost_coefficient),
        "verify_ratio": ("v", s.verify_ratio),
    }
    values.pop(found.cause, None)
    parts = [f"{name}\u00a0=\u00a0{value:.2f}" for name, value in values.values() if value is not None]
    return f"({', '.join(parts)}; costs in plain steps of this race.)" if parts else ""


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
        return Texts(None, "No text to compare.", "One of the two runs made no token.")
    if a != b:
        return Texts(True, f"Identical as far as both go: {_tokens(min(a, b))}.", "One of the two was ended earlier.")
    return Texts(
        True,
        f"Identical text, checked: all {_tokens(a)} are the same.",
        "Greedy decoding has no dice, and a draft stays only where it is the target's own choice.",
    )


def _differs(found: Difference, dtype: str) -> Texts:
    head = (
        f"The texts differ from token {found.place + 1} on: plain decoding wrote {quoted(found.plain)}, "
        f"speculative decoding {quoted(found.speculative)}."
    )
    if found.gap is None:
        return Texts(False, head, "The two tokens were not close, so rounding does not explain it: save this race and report it.")
    (a, b), (c, d) = found.logits_plain, found.logits_speculative
    numbers = f"Their logits, up to a constant: {a:.4f} and {b:.4f} in the plain run, {c:.4f} and {d:.4f} in the speculative one."
    if found.tie:
        return Texts(
            True,
            head,
            f"{numbers} A numerical tie: they lie {found.gap:.1g} apart at most, and passes over one and over several tokens round "
            f"differently by about that in {dtype}. Both texts are right.",
        )
    return Texts(
        False,
        head,
        f"{numbers} They lie {found.gap:.2g} apart, more than rounding in {dtype} explains: save this race and report it.",
    )


def _sampled(race: Race) -> Texts:
    kept = [said for said in (_favourites("plain", race.plain), _favourites("speculative", race.speculative)) if said]
    rest = (
        "Here dice are thrown, and the two runs throw them for different questions, so the texts differ. Both are drawn from the "
        f"same distribution, that of the target at temperature {race.plain.settings.temperature:g}."
    )
    if kept:
        rest += f" A look at these very runs: the target's favourite token came {' and '.join(kept)}."
    return Texts(None, "Two texts, one law.", rest)


def _favourites(name: str, trace: Trace) -> str:
    found = promises.favourites(trace)
    if not len(found.kept):
        return ""
    return f"{found.count} times in the {name} run, where its own probabilities promise {found.expected:.0f} ± {found.error:.0f}"


def quoted(text: str) -> str:
    """A token in quotation marks, whatever is invisible in it escaped."""
    return "“" + "".join(c if c.isprintable() else repr(c)[1:-1] for c in text) + "”"


def seconds(value: float | None) -> str:
    """ "12 ms", "0.84 s", "12.3 s"."""
    if value is None:
        return "–"
    if value < 0.0995:
        return f"{1e3 * value:.3g} ms"
    return f"{value:.2f} s" if value < 9.995 else f"{value:.1f} s"


def _tokens(count: int) -> str:
    return f"{count} token{'' if count == 1 else 's'}"


def _of(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
