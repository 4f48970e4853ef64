"""Sentences about one token of a trace, with this token's own numbers in them, and about the run as a whole.

Pure functions: a trace in, Markdown and LaTeX out. Token text is data, so it only ever appears inside a code span (`code`);
formulas hold numbers and no token text.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import datetime

from specdec import metrics
from specdec.texts import COMMA, count, language, localised, text
from specdec.trace import Draft, Round, Settings, Trace

MARKS = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"}
LONGEST = 40  # characters of one token that a sentence or a label shows


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """title, words (for a newcomer) and exact (for an expert) are Markdown, formula is LaTeX."""

    title: str
    words: str
    formula: str
    exact: str = ""


def visible(token: str, *, longest: int | None = LONGEST) -> str:
    """Token text with its blanks and control characters made visible, cut to a length that fits a label. Without `longest` it is a
    sentence of its own: nothing is cut, and blanks stay blanks."""
    shown = "".join(
        (MARKS.get(c) if longest or c != " " else c)
        or (f"⟨U+{ord(c):04X}⟩" if unicodedata.category(c) in ("Cc", "Cf", "Co", "Cs") and c != "\u200d" else c)
        for c in token
    )
    return shown if longest is None or len(shown) <= longest else shown[: longest - 1] + "…"


def code(token: str) -> str:
    """Token text as a Markdown code span, whatever is in it."""
    shown = visible(token) or "∅"
    fence = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    pad = " " if shown[0] == "`" or shown[-1] == "`" else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def literal(words: str) -> str:
    """A text of somebody else, a file name for instance, as Markdown that shows it as it is."""
    return re.sub(r"([\\`*_{}\[\]()#+\-.!|<>$~:&])", r"\\\1", words)


def number(value: float, digits: int = 2) -> str:
    """A probability: two decimals, more near 0 and near 1, which stand alone only where they are exact."""
    if value in (0, 1):
        return f"{value:.0f}"
    if value < 1e-4:
        return f"{value:.1e}"
    if value < 0.1**digits:
        return f"{value:.1g}"
    if round(value, digits) < 1:
        return f"{value:.{digits}f}"
    return f"{value:.4f}" if value < 0.99995 else "≈ 1"


def numbers(*values: float) -> list[str]:
    """The same for values that are compared: as many decimals as it takes to see which one is larger."""
    for digits in (2, 3, 4, 5):
        texts = [number(v, digits) for v in values]
        if len(set(texts)) == len({*values}):
            return texts
    return [f"{v:.7g}" for v in values]


def p_value(value: float | None) -> str:
    """Of a test, as the language writes it: two decimals, one digit where that would be 0.00; "–" where there was nothing to test."""
    if value is None:
        return "–"
    return localised(format(value, ".2f" if value >= 0.01 else ".1g"))


def plain(value: str) -> str:
    """A number of `number` in a sentence for a newcomer, as the language writes it."""
    if "e-" in value:
        return localised(f"{float(value):.7f}".rstrip("0")) if float(value) >= 1e-6 else text("number.almost0")
    return text("number.almost1") if value == "≈ 1" else localised(value)


def _vague(value: str) -> bool:
    """Whether `plain` has only words for it."""
    return value == "≈ 1" or ("e-" in value and float(value) < 1e-6)


def equals(symbol: str, value: str) -> str:
    """ "p = 0.26", or "p ≈ 0" where the number is too small to write out."""
    if _vague(value):
        return text("number.near", symbol=symbol, value="1" if value == "≈ 1" else "0")
    return text("number.equals", symbol=symbol, value=plain(value))


def latex(value: str) -> str:
    """A number of `number` inside a formula."""
    mantissa, e, exponent = value.replace("≈ 1", "1").partition("e")
    shown = rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if e else value.replace("≈ 1", r"{\approx}1")
    return shown.replace(".", "{,}") if language() in COMMA else shown


def explain(trace_settings: Settings, round_: Round, token: int) -> Explanation:
    """What happened to entry `token` of the round: a draft, or, behind the last draft, the token that the target added."""
    if token >= len(round_.drafts):
        return _outcome(trace_settings, round_)
    draft = round_.drafts[token]
    if draft.status == "discarded":
        return _discarded(round_, draft)
    return _greedy(round_, draft) if trace_settings.greedy else _sampled(round_, draft)


def _sampled(round_: Round, draft: Draft) -> Explanation:
    name, accepted = code(draft.text), draft.status == "accepted"
    p, q = numbers(draft.p, draft.q)
    chance, u = numbers(draft.accept_probability, draft.u if draft.u is not None else 0.0)
    sure = text("explain.sure", name=name) if draft.q == 1 else text("explain.gave", name=name, q=equals("q", q))
    ratio = (
        rf"\min\left(1, \tfrac{{p(x)}}{{q(x)}}\right) = \min\left(1, \tfrac{{{latex(p)}}}{{{latex(q)}}}\right) = {latex(chance)}"
    )
    if draft.p >= draft.q:
        words = text("explain.wanted", sure=sure, p=equals("p", p))
        verdict = rf"u < 1 \text{{ {text('explain.latex.always')}}}"
    else:
        vague = _vague(p) or _vague(q) or _vague(chance)
        quotient = equals("p / q", chance) if vague else f"{plain(p)} / {plain(q)} = {plain(chance)}"
        kept = "explain.stays" if accepted else "explain.goes"
        words = text(kept, sure=sure, p=equals("p", p), quotient=quotient, u=equals("u", u))
        verdict = rf"u = {latex(u)} {'<' if accepted else chr(92) + 'ge'} {latex(chance)}"
    # Two lines, for the formula has to fit half a page and a phone.
    status = text(f"explain.latex.{draft.status}")
    formula = rf"\begin{{gathered}} {ratio} \\ {verdict} \;\Rightarrow\; \text{{{status}}} \end{{gathered}}"
    if accepted:
        return Explanation(title=text("explain.accepted", name=name), words=words, formula=formula, exact=_overlap(draft))
    new = code(round_.outcome.text)
    words = text("explain.residual", words=words, new=new)
    title = text("explain.rejected", name=name, new=new)
    return Explanation(title=title, words=words, formula=formula, exact=_residual(round_, draft))


def _overlap(draft: Draft) -> str:
    return text("explain.overlap", overlap=_exact(draft.overlap))


def _exact(value: float) -> str:
    """A number of `number` for an expert, as the language writes it."""
    return localised(number(value))


def _residual(round_: Round, draft: Draft) -> str:
    """Where the replacement was drawn, in numbers, as far as the trace has them."""
    outcome, mass = round_.outcome, round_.outcome.residual_mass
    if mass is None:
        return _overlap(draft)
    share = next((t.probability for t in outcome.distribution if t.id == outcome.id), None)
    values = {"overlap": _overlap(draft), "mass": _exact(mass)}
    if share is None:
        return text("explain.left", **values)
    return text("explain.left.share", **values, new=code(outcome.text), share=_exact(share))


def _greedy(round_: Round, draft: Draft) -> Explanation:
    name, copied = code(draft.text), draft.q == 1
    if draft.status == "accepted":
        p, q = numbers(draft.p, draft.q)
        which = "explain.greedy.copied" if copied else "explain.greedy.accepted"
        return Explanation(
            title=text("explain.accepted", name=name),
            words=text(which, name=name, p=equals("p", p), q=equals("q", q)),
            formula=rf"x = \operatorname{{arg\,max}}_y\, p(y), \quad p(x) = {latex(p)} \;\Rightarrow\; {_text('accepted')}",
            exact=_greedy_note(draft),
        )
    new, best = code(round_.outcome.text), round_.outcome.p
    p, first = numbers(draft.p, best if best is not None else 1.0)
    return Explanation(
        title=text("explain.rejected", name=name, new=new),
        words=text("explain.greedy.rejected", new=new, first=equals("p", first), name=name, p=equals("p", p)),
        formula=rf"p(x) = {latex(p)} < {latex(first)} = \max_y\, p(y) \;\Rightarrow\; {_text('rejected')}",
        exact=_greedy_note(draft),
    )


def _text(name: str) -> str:
    """A word inside a formula."""
    return rf"\text{{{text(f'explain.latex.{name}')}}}"


def _greedy_note(draft: Draft) -> str:
    return text("explain.greedy.note.copied" if draft.q == 1 else "explain.greedy.note", overlap=_exact(draft.overlap))


def _discarded(round_: Round, draft: Draft) -> Explanation:
    rejected = next((d for d in round_.drafts if d.status == "rejected"), None)
    ended = next((d for d in reversed(round_.drafts) if d.status == "accepted"), None)
    name, p = code(draft.text), number(draft.p)
    if rejected is not None:
        because = text("explain.because.fell", lost=code(rejected.text))
    elif ended is not None:
        because = text("explain.because.ended_with", end=code(ended.text))
    else:
        because = text("explain.because.ended")
    return Explanation(
        title=text("explain.discarded", name=name),
        words=text("explain.unjudged", name=name, because=because, p=equals("p", p)),
        formula=rf"p(x) = {latex(p)},\; q(x) = {latex(number(draft.q))}, \quad {_text('unjudged')}",
        exact=text("explain.unjudged.exact"),
    )


def _outcome(settings: Settings, round_: Round) -> Explanation:
    outcome, name = round_.outcome, code(round_.outcome.text)
    if outcome.kind == "none":
        return Explanation(title=text("explain.end"), words=text("explain.end.words"), formula=_text("end"))
    if outcome.kind == "replacement":
        index = next(i for i, d in enumerate(round_.drafts) if d.status == "rejected")
        judged = explain(settings, round_, index)
        title = text("explain.replaces", new=name, lost=code(round_.drafts[index].text))
        return Explanation(title=title, words=judged.words, formula=judged.formula, exact=judged.exact)
    p, kind = number(outcome.p or 0.0), "bonus" if round_.drafts else "alone"
    why = text(f"explain.{kind}.why", **({"name": name} if round_.drafts else {}))
    if settings.greedy:
        words = text("explain.first", why=why, p=equals("p", p))
    else:
        words = text("explain.drawn", why=why, u=plain(number(outcome.u or 0.0)), p=equals("p", p))
    return Explanation(
        title=text(f"explain.{kind}", name=name),
        words=words,
        formula=r"x = \operatorname{arg\,max}_y\, p(y)" if settings.greedy else rf"x \sim p, \quad p(x) = {latex(p)}",
        exact=count("explain.committed", len(round_.new_ids)),
    )


def against_plain(trace: Trace) -> tuple[bool | None, str]:
    """(faster than plain decoding?, a sentence that says why with α, c and v); None where no plain step was measured."""
    s = metrics.summary(trace)
    if trace.method == "plain":
        return None, text("against.plain")
    if trace.shared:
        return None, count("against.shared", trace.shared - 1)
    if s.speedup is None or s.round_cost is None or s.mean_acceptance_length is None:
        return None, text("against.unknown")
    even = 0.98 < s.speedup < 1.02  # less than what two runs of the same thing differ by
    result = text(f"against.{'even' if even else 'slower' if s.speedup < 1 else 'faster'}", speed=s.speedup)
    balance = text("against.balance", tokens=s.mean_acceptance_length, cost=s.round_cost)
    cause = "" if even or s.speedup >= 1 else text(f"against.cause.{metrics.slow_cause(s) or 'rest'}")
    return None if even else s.speedup >= 1, " ".join(part for part in (result, balance, cause, _parts(s)) if part)


def _parts(s: metrics.Summary) -> str:
    values = {"alpha": s.acceptance_rate, "c": s.cost_coefficient, "v": s.verify_ratio}
    parts = [text(f"against.{name}", value=value) for name, value in values.items() if value is not None]
    return text("against.parts", parts=text("against.join").join(parts)) if parts else ""


def origin_text(trace: Trace) -> str:
    """ "SmolLM2-135M-Instruct · prompt look-up · γ = 4 · temperature 0 · seed 0 · float32 on cpu · 29 Nov 2026"; plain text."""
    s, pair = trace.settings, trace.pair
    models = pair.target if pair.draft is None else text("origin.with", target=pair.target, draft=pair.draft)
    if trace.method == "plain":
        how = [text("origin.plain")]
    else:
        length = text("origin.adaptive", n=s.draft_length) if s.adaptive else f"γ = {s.draft_length}"
        how = [text("origin.drafter", drafter=s.drafter), length]
    warp = [text("origin.temperature", value=s.temperature)]
    if not s.greedy:
        warp += [f"top-k {s.top_k}"] * bool(s.top_k) + [localised(f"top-p {s.top_p:g}")] * (s.top_p < 1)
        warp += [text("origin.seed", n=s.seed)]
    dtype = text("origin.held", dtype=pair.dtype, held=pair.held) if pair.held else pair.dtype
    where = text("origin.device", dtype=dtype, device=trace.device)
    return " · ".join([models, *how, *warp, where, day(trace.created)])


def day(created: str) -> str:
    try:
        moment = datetime.fromisoformat(created)
    except ValueError:
        return created[:20]
    return text("day", day=moment.day, month=text("months").split(",")[moment.month - 1], year=moment.year)
