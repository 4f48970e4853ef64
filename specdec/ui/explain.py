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


def visible(text: str) -> str:
    """Token text with its blanks and control characters made visible, cut to a length that fits a label."""
    shown = "".join(
        MARKS.get(c) or (f"⟨U+{ord(c):04X}⟩" if unicodedata.category(c) in ("Cc", "Cf", "Co", "Cs") and c != "\u200d" else c)
        for c in text
    )
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


def code(text: str) -> str:
    """Token text as a Markdown code span, whatever is in it."""
    shown = visible(text) or "∅"
    fence = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    pad = " " if shown[0] == "`" or shown[-1] == "`" else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def literal(text: str) -> str:
    """A text of somebody else, a file name for instance, as Markdown that shows it as it is."""
    return re.sub(r"([\\`*_{}\[\]()#+\-.!|<>$~:&])", r"\\\1", text)


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


def plain(value: str) -> str:
    """A number of `number` in a sentence for a newcomer."""
    if "e-" in value:
        return f"{float(value):.7f}".rstrip("0") if float(value) >= 1e-6 else "almost 0"
    return "almost 1" if value == "≈ 1" else value


def equals(symbol: str, value: str) -> str:
    """ "p = 0.26", or "p ≈ 0" where the number is too small to write out."""
    return f"{symbol} ≈ {shown[-1]}" if (shown := plain(value)).startswith("almost") else f"{symbol} = {shown}"


def latex(value: str) -> str:
    """A number of `number` inside a formula."""
    mantissa, e, exponent = value.replace("≈ 1", "1").partition("e")
    return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if e else value.replace("≈ 1", r"{\approx}1")


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
    sure = f"The drafter copied {name} and was sure of it (q = 1)"
    sure = sure if draft.q == 1 else f"The drafter gave {name} the probability {equals('q', q)}"
    ratio = (
        rf"\min\left(1, \tfrac{{p(x)}}{{q(x)}}\right) = \min\left(1, \tfrac{{{latex(p)}}}{{{latex(q)}}}\right) = {latex(chance)}"
    )
    if draft.p >= draft.q:
        words = f"{sure}, the target {equals('p', p)}. The target wants it at least as much, so it stays whatever the dice say."
        verdict = r"u < 1 \text{ always}"
    else:
        quotient = (
            f"{plain(p)} / {plain(q)} = {plain(chance)}" if "almost" not in plain(p) + plain(q) else equals("p / q", chance)
        )
        words = (
            f"{sure}, the target only {equals('p', p)}. So it may stay with probability {quotient}. "
            f"The dice showed {equals('u', u)}, {'below that: it stays' if accepted else 'not below that: it goes'}."
        )
        verdict = rf"u = {latex(u)} {'<' if accepted else chr(92) + 'ge'} {latex(chance)}"
    # Two lines, for the formula has to fit half a page and a phone.
    formula = rf"\begin{{gathered}} {ratio} \\ {verdict} \;\Rightarrow\; \text{{{draft.status}}} \end{{gathered}}"
    if accepted:
        return Explanation(title=f"{name} is accepted", words=words, formula=formula, exact=_overlap(draft))
    new = code(round_.outcome.text)
    words += f" {new} takes its place, drawn from what the target wanted *more* than the drafter did: the residual."
    title = f"{name} is rejected, {new} takes its place"
    return Explanation(title=title, words=words, formula=formula, exact=_residual(round_, draft))


def _overlap(draft: Draft) -> str:
    return (
        f"At this position p and q overlap by Σ min(p, q) = {number(draft.overlap)}: "
        f"so likely is it that a draft here is accepted, whichever token it is."
    )


def _residual(round_: Round, draft: Draft) -> str:
    """Where the replacement was drawn, in numbers, as far as the trace has them."""
    outcome, mass = round_.outcome, round_.outcome.residual_mass
    if mass is None:
        return _overlap(draft)
    text = (
        f"{_overlap(draft)} What is left over, Σ max(0, p − q) = {number(mass)}, becomes the residual once it is scaled up to 1"
    )
    share = next((t.probability for t in outcome.distribution if t.id == outcome.id), None)
    inside = "" if share is None else f"; in it {code(outcome.text)} has {number(share)}"
    return f"{text}{inside}. The accepted and the residual part together give exactly p."


def _greedy(round_: Round, draft: Draft) -> Explanation:
    name = code(draft.text)
    if draft.status == "accepted":
        p, q = numbers(draft.p, draft.q)
        had = "the drafter copied it" if draft.q == 1 else f"the drafter had {equals('q', q)}"
        return Explanation(
            title=f"{name} is accepted",
            words=(
                "At temperature 0 there are no dice: a draft stays if it is the target's own first choice. "
                f"{name} is ({equals('p', p)}; {had})."
            ),
            formula=rf"x = \operatorname{{arg\,max}}_y\, p(y), \quad p(x) = {latex(p)} \;\Rightarrow\; \text{{accepted}}",
            exact=_greedy_note(draft),
        )
    new, best = code(round_.outcome.text), round_.outcome.p
    p, first = numbers(draft.p, best if best is not None else 1.0)
    return Explanation(
        title=f"{name} is rejected, {new} takes its place",
        words=(
            "At temperature 0 there are no dice: a draft stays only if it is the target's own first choice. "
            f"That is {new} ({equals('p', first)}) and not {name} ({equals('p', p)}), so {new} takes its place. "
            "Its score was already there, from the same pass."
        ),
        formula=rf"p(x) = {latex(p)} < {latex(first)} = \max_y\, p(y) \;\Rightarrow\; \text{{rejected}}",
        exact=_greedy_note(draft),
    )


def _greedy_note(draft: Draft) -> str:
    whose = "the target's distribution" if draft.q == 1 else "both models' distributions"
    return (
        f"The bars show {whose} at temperature 1, to look at; p and q overlap by {number(draft.overlap)}. "
        "The verdict only asks which token is first, so the text is the target's own greedy text, token for token."
    )


def _discarded(round_: Round, draft: Draft) -> Explanation:
    rejected = next((d for d in round_.drafts if d.status == "rejected"), None)
    ended = next((d for d in reversed(round_.drafts) if d.status == "accepted"), None)
    name, p = code(draft.text), number(draft.p)
    if rejected is not None:
        reason = f"it was written to follow {code(rejected.text)}, and that fell"
    else:
        reason = f"the text had already ended with {code(ended.text)}" if ended else "the text had already ended"
    return Explanation(
        title=f"{name} is discarded",
        words=(
            f"{name} was never judged: {reason}. The target's one pass had scored it as well ({equals('p', p)}), "
            "but that score belongs to a text that no longer exists."
        ),
        formula=rf"p(x) = {latex(p)},\; q(x) = {latex(number(draft.q))}, \quad \text{{not judged}}",
        exact="Discarded drafts count in the draft utilisation, not in the acceptance rate α.",
    )


def _outcome(settings: Settings, round_: Round) -> Explanation:
    outcome, name = round_.outcome, code(round_.outcome.text)
    if outcome.kind == "none":
        words = "The last accepted draft was the end of the text, so the target had nothing to add."
        return Explanation(title="The text ends here", words=words, formula=r"\text{end of text}")
    if outcome.kind == "replacement":
        index = next(i for i, d in enumerate(round_.drafts) if d.status == "rejected")
        judged = explain(settings, round_, index)
        title = f"{name} replaces {code(round_.drafts[index].text)}"
        return Explanation(title=title, words=judged.words, formula=judged.formula, exact=judged.exact)
    p, count = number(outcome.p or 0.0), len(round_.new_ids)
    if round_.drafts:
        title = f"{name} is a bonus token"
        why = (
            "No draft was rejected. The same pass had also scored the position behind the last draft, "
            f"so {name} comes on top without another pass."
        )
    else:
        title = f"{name} comes from the target alone"
        why = "Nothing was drafted in this round, so the pass yields one token, as in plain decoding."
    how = (
        "It is the target's first choice there" if settings.greedy else f"It was drawn from p with u = {number(outcome.u or 0.0)}"
    )
    return Explanation(
        title=title,
        words=f"{why} {how} ({equals('p', p)}).",
        formula=r"x = \operatorname{arg\,max}_y\, p(y)" if settings.greedy else rf"x \sim p, \quad p(x) = {latex(p)}",
        exact=f"This round committed {count} token{'s' if count > 1 else ''} with one pass of the target.",
    )


FINISHED = {
    "eos": "the model ended its answer",
    "length": "the length that was asked for is reached",
    "context": "the model's context is full",
    "stopped": "stopped",
}


def against_plain(trace: Trace) -> tuple[bool | None, str]:
    """(faster than plain decoding?, a sentence that says why with α, c and v); None where no plain step was measured."""
    s = metrics.summary(trace)
    if trace.method == "plain":
        return None, "Plain decoding: one target pass for each token. This is what speculation is compared with."
    if trace.shared:
        others = "one other run" if trace.shared == 2 else f"up to {trace.shared - 1} other runs"
        return (
            None,
            f"The machine served {others} in the same passes, so the times here are not those of a run alone, and are compared with "
            "nothing. What was proposed, accepted and replaced is as exact as ever.",
        )
    if s.speedup is None or s.round_cost is None or s.mean_acceptance_length is None:
        return (
            None,
            "No plain step was measured with this run, so it cannot be said whether plain decoding would have been faster.",
        )
    even = 0.98 < s.speedup < 1.02  # less than what two runs of the same thing differ by
    if even:
        result = f"**As fast as plain decoding ({s.speedup:.2f}×).** "
    else:
        result = f"**{s.speedup:.2f}× the speed of plain decoding{': slower' if s.speedup < 1 else ''}.** "
    balance = f"A round brought {s.mean_acceptance_length:.2f} tokens and took as long as {s.round_cost:.2f} plain steps. "
    cause = "" if even or s.speedup >= 1 else _cause(s) + " "
    return None if even else s.speedup >= 1, result + balance + cause + _parts(s)


def _cause(s: metrics.Summary) -> str:
    return {
        "cost_coefficient": "Drafting is what costs too much here.",
        "verify_ratio": "Checking several tokens in one pass is what costs too much on this machine.",
        "acceptance_rate": "Too few drafts were accepted to pay for making and checking them.",
        None: "What a round costs beside its passes is too much.",
    }[metrics.slow_cause(s)]


def _parts(s: metrics.Summary) -> str:
    parts = [
        f"α = {s.acceptance_rate:.2f} of the judged drafts were accepted" if s.acceptance_rate is not None else "",
        f"a drafted token cost c = {s.cost_coefficient:.2f} plain steps" if s.cost_coefficient is not None else "",
        f"a pass that checks drafts cost v = {s.verify_ratio:.2f}" if s.verify_ratio is not None else "",
    ]
    sentence = ", ".join(part for part in parts if part)
    return sentence + "." if sentence else ""


def origin_text(trace: Trace) -> str:
    """ "SmolLM2-135M-Instruct · prompt look-up · γ = 4 · temperature 0 · seed 0 · float32 on cpu · 29 Nov 2026"; plain text."""
    s, pair = trace.settings, trace.pair
    models = pair.target if pair.draft is None else f"{pair.target} with {pair.draft}"
    how = ["plain decoding"] if trace.method == "plain" else [f"drafter: {s.drafter}", f"γ {'chosen each round, at most' if s.adaptive else '='} {s.draft_length}"]
    warp = [f"temperature {s.temperature:g}"]
    if not s.greedy:
        warp += [f"top-k {s.top_k}"] * bool(s.top_k) + [f"top-p {s.top_p:g}"] * (s.top_p < 1) + [f"seed {s.seed}"]
    return " · ".join([models, *how, *warp, f"{pair.dtype} on {trace.device}", day(trace.created)])


def day(created: str) -> str:
    try:
        moment = datetime.fromisoformat(created)
    except ValueError:
        return created[:20]
    return f"{moment.day} {moment:%b %Y}"
