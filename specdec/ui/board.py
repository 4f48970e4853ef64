"""The board of the walkthrough: one round as a small table, of which a card shows as much as it has told.

Pure: a round in, HTML out. Places stand side by side: what the drafter proposes, what the target would write there, and what
becomes of it. Colour is never alone: each verdict has a mark, a word and a kind of border. Token text is escaped.
"""

from __future__ import annotations

import html
from collections.abc import Collection, Sequence

from specdec.texts import count as count_text
from specdec.texts import number, text
from specdec.trace import Draft, Round

# What a card may show, in the order in which the story tells it.
PARTS = ("drafts", "target", "accepted", "replacement", "tail", "after")
MARKS = {"accepted": "✓ ", "rejected": "✕ ", "discarded": "– ", "open": ""}


def board(round_: Round, *, before: Sequence[str], parts: Collection[str], focus: Sequence[int] = ()) -> str:
    """before: the words of the text in front of the round. parts: of `PARTS`. focus: places (0 …) to point at."""
    count = len(round_.drafts) + 1
    rows = [_line(text("board.text"), _text(before, ()), count)]
    if "drafts" in parts:
        cells = [_draft(d, i, round_, parts, focus) for i, d in enumerate(round_.drafts)]
        rows.append(_row(text("board.guesses"), [*cells, _empty()], count))
    if "target" in parts:
        cells = [_wish(d, i, parts, focus) for i, d in enumerate(round_.drafts)]
        rows.append(_row(text("board.target"), [*cells, _behind(round_, parts, focus)], count))
    if "after" in parts:
        new = [d.text for d in round_.drafts if d.status == "accepted"] + (
            [round_.outcome.text] if round_.outcome.id is not None else []
        )
        rows.append(_line(text("board.after"), _text(before, new), count))
    return f'<table class="board"><tbody>{"".join(rows)}</tbody></table>'


def status(draft: Draft, parts: Collection[str]) -> str:
    """What is known of a guess when no more than `parts` has been told."""
    told = {"accepted": "accepted", "rejected": "replacement", "discarded": "tail"}[draft.status]
    return draft.status if told in parts else "open"


def _draft(draft: Draft, place: int, round_: Round, parts: Collection[str], focus: Sequence[int]) -> str:
    kind = status(draft, parts)
    return _chip(draft.text, MARKS[kind] + text(f"board.{kind}"), kind, pointed=place in focus)


def _wish(draft: Draft, place: int, parts: Collection[str], focus: Sequence[int]) -> str:
    best = draft.top_p[0]
    kind = status(draft, parts)
    if kind == "discarded":
        return _chip(best.text, text("board.unused"), "discarded", pointed=place in focus)
    if kind == "rejected":
        return _chip(best.text, "↵ " + text("board.replaces"), "replacement", pointed=place in focus)
    return _chip(
        best.text,
        text("board.sure", percent=100 * best.probability),
        "same" if kind == "accepted" else "open",
        pointed=place in focus,
    )


def _behind(round_: Round, parts: Collection[str], focus: Sequence[int]) -> str:
    """The place behind the last guess: the bonus token, or nothing that anybody needs."""
    if round_.outcome.kind == "bonus" and "after" in parts:
        return _chip(round_.outcome.text, "+ " + text("stage.added.bonus"), "bonus", pointed=len(round_.drafts) in focus)
    return _empty()


def _chip(word: str, note: str, kind: str, *, pointed: bool) -> str:
    classes = f"chip chip-{kind}{' chip-pointed' if pointed else ''}"
    return f'<td><span class="{classes}"><b>{html.escape(word.strip() or word)}</b><small>{html.escape(note)}</small></span></td>'


def _empty() -> str:
    return "<td></td>"


def _row(label: str, cells: Sequence[str], count: int) -> str:
    return f'<tr><th colspan="{count}" scope="rowgroup">{label}</th></tr><tr>{"".join(cells)}</tr>'


def _line(label: str, content: str, count: int) -> str:
    span = f'colspan="{count}"'
    return f'<tr><th {span} scope="rowgroup">{label}</th></tr><tr><td {span} class="line">{content}</td></tr>'


def _text(before: Sequence[str], new: Sequence[str]) -> str:
    old = html.escape("".join(before))
    return f"<span>{old}</span><mark>{html.escape(''.join(new))}</mark>" if new else f"<span>{old}</span>"


def scale(chance: float, u: float) -> str:
    """The dice of one verdict: a bar from 0 to 1, kept up to `chance`, thrown away behind it, and the arrow of u."""
    kept = 100 * min(1.0, chance)
    where = 100 * min(max(u, 0.0), 1.0)
    words = html.escape(text("board.dice.kept" if u < chance else "board.dice.gone", u=u, chance=chance))
    inside, outside = (text("board.accepted") if kept > 12 else ""), (text("board.discarded") if kept < 75 else "")
    return (
        f'<div class="dice" role="img" aria-label="{words}"><div class="dice-bar">'
        f'<span class="dice-kept" style="width:{kept:.2f}%">{inside}</span>'
        f'<span class="dice-gone" style="width:{100 - kept:.2f}%">{outside}</span></div>'
        f'<div class="dice-u" style="left:{where:.2f}%"><i></i>u = {number(u, ".2f")}</div></div>'
    )


def split(tokens: Sequence[str]) -> str:
    """A text cut into its tokens; a blank shows as ␣."""
    parts = "".join(f"<span>{html.escape(t.replace(' ', '␣'))}</span>" for t in tokens)
    return f'<p class="split" aria-label="{count_text("tokens", len(tokens))}">{parts}</p>'
