"""The example of the walkthrough: two tables that stand for a target and a drafter, run by the real loop.

"Please" · the drafter proposes "send the invoice today" · the target would write "send the report".

`greedy_run` and `sampled_round` are what `specdec.decoding` makes of the tables; nothing about a round is scripted. They import
torch, but only when they are called: for the values at which the page opens their traces are kept in assets/lessons, made by

    python -m specdec.story

and compared with the loop by the tests.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from specdec.trace import Settings, Trace

FOLDER = Path(__file__).resolve().parents[1] / "assets" / "lessons"
PROMPT = "Please"
WORDS = ("Please", " send", " the", " invoice", " report", " letter", " today", " to", " team", ".")
DRAFTED = (" send", " the", " invoice", " today")  # what the drafter proposes first
PLACE = 2  # of " invoice" in it
GREEDY = Settings(drafter="draft", draft_length=4, max_new_tokens=8, raw=True)
SAMPLED = GREEDY.replace(temperature=1.0)

Row = dict[str, float]

# Text so far -> probabilities of the next word, for the words that matter; `_row` spreads what is left over the others.
TARGET: dict[str, Row] = {
    "Please": {" send": 0.82},
    "Please send": {" the": 0.86},
    "Please send the": {" report": 0.55, " invoice": 0.30, " letter": 0.15},
    "Please send the invoice": {" today": 0.50, ".": 0.40},
    "Please send the letter": {" today": 0.50, ".": 0.40},
    "Please send the report": {" to": 0.60, " today": 0.25},
    "Please send the report to": {" the": 0.91},
    "Please send the report to the": {" team": 0.85},
    "Please send the report to the team": {" today": 0.62, ".": 0.35},
}
DRAFT: dict[str, Row] = {
    "Please": {" send": 0.74},
    "Please send": {" the": 0.90},
    "Please send the": {" invoice": 0.60, " report": 0.25, " letter": 0.15},
    "Please send the invoice": {" today": 0.70, ".": 0.20},
    "Please send the letter": {" today": 0.70, ".": 0.20},
    "Please send the report": {" to": 0.55, " today": 0.30},
    "Please send the report to": {" the": 0.93},
    "Please send the report to the": {" team": 0.72},
    "Please send the report to the team": {" today": 0.58, ".": 0.30},
}
END: Row = {".": 0.95}  # behind everything else


@dataclass(frozen=True, kw_only=True)
class Dice:
    """What the page lets a person set in the sampled round: p and q of " invoice" at its place, and the u that judges it.

    The other two words of that place share what is left, in the proportion of the tables.
    """

    p: float = 0.30
    q: float = 0.60
    u: float = 0.70


def _row(known: Row) -> list[float]:
    rest = 1 - sum(known.values())
    rest = rest if rest > 1e-9 else 0.0  # what rounding leaves is nobody's
    others = [w for w in WORDS[1:] if w not in known]
    return [known[w] if w in known else rest / len(others) if w in others else 0.0 for w in WORDS]


def _shared(known: Row, invoice: float) -> Row:
    """`known` with another value for " invoice", the others scaled to what is left."""
    others = {w: v for w, v in known.items() if w != " invoice"}
    scale = (1 - invoice) / sum(others.values())
    return {" invoice": invoice, **{w: v * scale for w, v in others.items()}}


def pair(dice: Dice = Dice()) -> Any:
    """The two tables as a pair (torch)."""
    from specdec.table import TableModel, TablePair

    changed = {"Please send the": (_shared(TARGET["Please send the"], dice.p), _shared(DRAFT["Please send the"], dice.q))}

    def model(table: dict[str, Row], which: int) -> TableModel:
        def next_distribution(tokens: tuple[int, ...]) -> list[float]:
            text = "".join(WORDS[t] for t in tokens)
            known = changed[text][which] if text in changed else table.get(text, END)
            return _row(known)

        return TableModel(next_distribution, vocabulary=len(WORDS))

    return TablePair(words=WORDS, target=model(TARGET, 0), draft=model(DRAFT, 1), title="two small tables")


def greedy_run() -> Trace:
    """The run of the walkthrough: two rounds, eight tokens."""
    from specdec.decoding import generate

    return generate(pair(), PROMPT, GREEDY)


def sampled_round(dice: Dice) -> Trace:
    """One round with dice: the drafter draws the same four words, " invoice" is judged by dice.u. Deterministic."""
    from specdec.decoding import Run
    from specdec.sampling import Draws

    class Dealt(Draws):
        """Draws whose u are dealt from a list instead of a generator; every rule that uses them is the real one."""

        def __init__(self, us: list[float]) -> None:
            self._random = self
            self._us = iter(us)

        def random(self) -> float:
            return next(self._us)

    class DealtRun(Run):
        def __init__(self, us: list[float]) -> None:
            super().__init__(tables, PROMPT, SAMPLED, method="speculative")
            self._draws = Dealt(us)

    tables = pair(dice)
    drawn, text = [], PROMPT
    for word in DRAFTED:
        row = tables.draft.next_distribution(tuple(tables.encode(text)))
        at = WORDS.index(word)
        drawn.append(sum(row[:at]) + row[at] / 2)  # the middle of the word's piece of [0, 1)
        text += word
    # Then one u for each judged draft, and one for the token that the target adds.
    run = DealtRun([*drawn, 0.35, 0.50, dice.u, 0.30, 0.50][: len(drawn) + 5])
    next(run)
    return run.trace()


@lru_cache(maxsize=1)
def warm() -> None:
    """Import what a round needs (torch takes seconds) while somebody is still reading."""
    threading.Thread(target=lambda: __import__("specdec.decoding"), daemon=True).start()


@lru_cache(maxsize=256)
def sampled(dice: Dice) -> Trace:
    """`sampled_round`, from the kept trace where it is the usual one."""
    return kept("walkthrough-sampled") if dice == Dice() else sampled_round(dice)


@lru_cache(maxsize=4)
def kept(name: str) -> Trace:
    """A trace in assets/lessons."""
    return Trace.from_json((FOLDER / f"{name}.json").read_bytes())


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, trace in (("walkthrough", greedy_run()), ("walkthrough-sampled", sampled_round(Dice()))):
        (FOLDER / f"{name}.json").write_text(trace.to_json() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
