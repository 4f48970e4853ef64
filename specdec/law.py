"""Is it the target's law? Many continuations of one prompt, speculative and by the target alone, counted and tested.

What is wanted and what was found, as plain records; `specdec.law_sampling` draws them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specdec import goodness
from specdec.experiments import Experiment, Finding

LEAST = 1e-3  # a token with a smaller chance is listed only if it came
OTHERS = -1  # stands for all tokens (or texts) that are not listed


@dataclass(frozen=True, kw_only=True)
class Law(Experiment):
    """count: continuations of each kind. tokens: of each. at_once: how many are drawn together, which is one step."""

    count: int = 200
    tokens: int = 3
    temperature: float = 1.0
    top_p: float = 1.0
    drafter: str = ""
    raw: bool = True
    seed: int = 0
    at_once: int = 8

    module = "specdec.law_sampling"

    @property
    def total(self) -> int:
        return 2 * -(-self.count // self.at_once)


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """One text of a few tokens and how often it came. It is shorter where the text ended."""

    ids: tuple[int, ...]
    texts: tuple[str, ...]
    count: int


@dataclass(frozen=True, kw_only=True)
class LawFinding(Finding):
    """exact: the target's probabilities of the first token, (id, p) of all that came and of all above `LEAST`.

    drafted, accepted: of the speculative runs.
    """

    prompt: str
    drafter: str
    tokens: int
    temperature: float
    speculative: tuple[Continuation, ...]
    alone: tuple[Continuation, ...]
    exact: tuple[tuple[int, float], ...]
    drafted: int
    accepted: int

    @property
    def counts(self) -> tuple[int, int]:
        """Continuations of each kind."""
        return tuple(sum(one.count for one in kind) for kind in (self.speculative, self.alone))


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """labels: the commonest first, the last one may stand for all others. exact: the target's probabilities, None where unknown.

    test: the two counts against each other (G-test). against_exact: the speculative counts against the probabilities.
    """

    labels: tuple[str, ...]
    speculative: tuple[int, ...]
    alone: tuple[int, ...]
    exact: tuple[float, ...] | None
    test: goodness.ChiSquare
    against_exact: goodness.ChiSquare | None


def compare(found: LawFinding, place: int | None, *, shown: int = 8, others: str = "…") -> Comparison:
    """place: 0 for the first token, 1 for the second …; None for the whole continuation. others: label of all that is not shown."""
    take: Callable[[Continuation], tuple[object, str]]
    if place is None:
        take = lambda one: (one.ids, "".join(one.texts))  # noqa: E731
    else:
        take = lambda one: one_of(one, place)  # noqa: E731
    names: dict[object, str] = {}
    tallies: list[Counter] = []
    for kind in (found.speculative, found.alone):
        tally: Counter = Counter()
        for one in kind:
            key, name = take(one)
            names[key] = name
            tally[key] += one.count
        tallies.append(tally)
    keys = sorted(names, key=lambda key: (-(tallies[0][key] + tallies[1][key]), str(names[key])))
    test = goodness.g_test([tallies[0][k] for k in keys], [tallies[1][k] for k in keys])
    exact = against = None
    if place == 0:
        known = dict(found.exact)
        against = _against(tallies[0], known)
        wanted = [known.get(key, 0.0) for key in keys[:shown]]
        exact = (*wanted, max(0.0, 1 - sum(wanted)))
    best, rest = keys[:shown], keys[shown:]
    if exact is not None and not rest:
        rest = [OTHERS]  # what did not come has a probability, too
    tail = [tuple(tally[k] for k in best) + ((sum(tally[k] for k in rest),) if rest else ()) for tally in tallies]
    labels = (*(names[key] for key in best), *((others,) if rest else ()))
    return Comparison(labels=labels, speculative=tail[0], alone=tail[1], exact=exact, test=test, against_exact=against)


def _against(tally: Counter, known: dict[int, float]) -> goodness.ChiSquare:
    """Counts of first tokens against the target's probabilities. Which cells are put together must not depend on what came: those
    that expect fewer than 5 are."""
    total = sum(tally.values())
    if any(known.get(key, 0.0) <= 0 for key in tally):
        return goodness.chi_square([1, 0], [0.0, 1.0])  # something impossible happened
    cells = [key for key, p in known.items() if p * total >= goodness.LEAST_EXPECTED]
    counts, wanted = [tally[key] for key in cells], [known[key] for key in cells]
    return goodness.chi_square([*counts, total - sum(counts)], [*wanted, max(0.0, 1 - sum(wanted))])


def one_of(one: Continuation, place: int) -> tuple[int, str]:
    """id and text of the token at that place; a text that had ended has none there."""
    return (one.ids[place], one.texts[place]) if place < len(one.ids) else (-2, "(end)")


def tallied(texts: Sequence[tuple[int, ...]], name: Callable[[int], str]) -> tuple[Continuation, ...]:
    """The commonest first."""
    return tuple(
        Continuation(ids=ids, texts=tuple(name(i) for i in ids), count=count) for ids, count in Counter(texts).most_common()
    )
