"""Who proposes tokens. One small interface, and the contract that every drafter keeps:

- the q that a drafter reports at a position is the distribution that it really picked the token from: the softmax it drew from, or all
  mass on one token if it did not draw;
- it proposes at most the number of tokens that it was asked for, none included, and never draws from anywhere but `draws`;
- after `settle(kept)` its own cache holds exactly the committed tokens that it has seen, never a rejected one.

A drafter belongs to one run: `make_drafter` makes it, `start` gives it the prompt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specdec.errors import SettingsError
from specdec.passes import Pass, drive
from specdec.runner import CachedSequence, token_ids
from specdec.sampling import Draws, SamplingRule, one_hot
from specdec.trace import Settings


@dataclass(frozen=True)
class Proposal:
    """What a drafter proposes in one round.

    ids: n drafted tokens. q: [n, V], the distribution each was picked from; in greedy runs the drafter's own distribution at
    temperature 1, to look at (None when nobody looks). draw_us: the uniform draw of each, None where nothing was drawn.
    seconds: of each draft step. columns: token ids [m], ascending, outside which q is zero, for whoever would search the rest in
    vain; None where the drafter has no vocabulary of its own.
    """

    ids: list[int]
    q: Tensor | None
    draw_us: list[float | None]
    seconds: list[float]
    columns: Tensor | None = None


NOTHING = Proposal([], None, [], [])


@dataclass(frozen=True)
class Request:
    """What the loop asks of a drafter in one round.

    committed: prompt and output so far. count: how many tokens at most. look: q is wanted although the run is greedy.
    check: to be called before every model pass; it raises when the run is to stop.
    """

    committed: list[int]
    count: int
    rule: SamplingRule
    draws: Draws
    look: bool
    check: Callable[[], None]


class Drafter:
    """Base of all drafters; proposes nothing, which is plain decoding.

    A drafter of one's own defines `propose`; one whose model can serve several runs in one pass defines `steps` instead.
    """

    name = "none"
    hidden_layers: tuple[int, ...] = ()  # hidden states of the target that it reads, see Runner.open
    goes_ahead = False  # whether it does with tokens that are on the device and that no host has seen, see specdec.ahead

    def start(self, prompt_ids: list[int], target: CachedSequence) -> None:
        """A new run. `target` holds all of the prompt but its last token, and its `hidden` those tokens' states."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "propose" in cls.__dict__ and "steps" not in cls.__dict__:
            cls.steps = _steps_of_propose

    def way(self, committed: list[int]) -> str:
        """How it would draft behind these tokens, for one that drafts in several ways: what a way costs, and how often its drafts
        stay, is learnt for each by itself where γ is chosen round by round."""
        return ""

    def propose(self, request: Request) -> Proposal:
        """`steps` for one run alone."""
        return drive(self.steps(request))

    def steps(self, request: Request) -> Generator[Pass, Tensor, Proposal]:
        """Yields the passes that drafting needs, is sent their logits, returns the proposal."""
        yield from ()
        return NOTHING

    def settle(self, kept: int) -> None:
        """The round is judged: `kept` tokens stay in the target's cache, all committed ones but the newest.

        The target's `hidden` still has the states of the pass that verified: the newest token's and each draft's, in order.
        """


def _steps_of_propose(self: Drafter, request: Request) -> Generator[Pass, Tensor, Proposal]:
    """`Drafter.steps` of a drafter that asks nobody for its passes."""
    yield from ()
    return self.propose(request)


class _StepDrafter(Drafter):
    """A drafter that runs a model once for each token."""

    _columns: Tensor | None = None  # ids of the draft vocabulary, where the model has one of its own

    def steps(self, request: Request) -> Generator[Pass, Tensor, Proposal]:
        ids: list[int] = []
        rows: list[Tensor] = []
        us: list[float | None] = []
        seconds: list[float] = []
        for step in range(request.count):
            request.check()
            wanted = self._next_pass(request.committed, ids)
            logits = yield wanted
            begun = time.perf_counter()
            token, u, q = pick(logits, request)
            ids.append(token)
            us.append(u)
            if q is not None:
                rows.append(q)
            seconds.append(wanted.seconds + time.perf_counter() - begun)
        self._done()
        return Proposal(ids, torch.stack(rows) if rows else None, us, seconds, self._columns)

    def _next_pass(self, committed: list[int], drafted: list[int]) -> Pass:
        """The pass that gives the logits [1, V] of the token behind `committed` + `drafted`."""
        raise NotImplementedError

    def _done(self) -> None:
        """All tokens of the round are proposed."""


def pick(logits: Tensor, request: Request) -> tuple[int, float | None, Tensor | None]:
    """logits [1, V] -> (token, u or None, the q it was picked from or None when nobody looks)."""
    if request.rule.greedy:
        return request.draws.best(logits[0]), None, request.rule.probabilities(logits)[0] if request.look else None
    q = request.rule.probabilities(logits)[0]
    token, u = request.draws.pick(q)
    return token, u, q


class DraftModel(_StepDrafter):
    """An independent, smaller model with the target's vocabulary."""

    name = "draft"
    goes_ahead = True

    def __init__(self, runner: Any) -> None:
        self.sequence = runner.open()
        self._together = runner.together
        if (reduced := getattr(runner, "reduced", None)) is not None:
            self._columns = reduced.ids

    def start(self, prompt_ids: list[int], target: CachedSequence) -> None:
        self.sequence.crop(0)
        if len(prompt_ids) > 1:
            self.sequence.forward(prompt_ids[:-1], keep=1)

    def _next_pass(self, committed: list[int], drafted: list[int]) -> Pass:
        # Behind a fully accepted round the last draft is not in the cache yet: then two tokens are fed.
        return Pass(self._together, self.sequence, (committed + drafted)[self.sequence.length :])

    def settle(self, kept: int) -> None:
        self.sequence.crop(min(kept, self.sequence.length))


class EarlyExit(_StepDrafter):
    """The target's own first layers, with its final norm and head; their cache is the target's."""

    name = "early-exit"
    goes_ahead = True

    def __init__(self, layers: int) -> None:
        self.layers = layers

    def start(self, prompt_ids: list[int], target: CachedSequence) -> None:
        self.target = target
        target.warm(1, exit_layers=self.layers)

    def _next_pass(self, committed: list[int], drafted: list[int]) -> Pass:
        newest = drafted[-1] if drafted else committed[-1]
        return Pass(self.target.runner.together, self.target, [newest], layers=self.layers, offset=len(drafted))

    def _done(self) -> None:
        self.target.crop_exit(layers=self.layers)


class PromptLookup(Drafter):
    """Finds the last few tokens again earlier in the text and proposes what followed them there. No model, so no draft time to speak of.

    The longest run of at most `ngram` tokens wins, and of several places the most recent one.
    """

    name = "lookup"
    goes_ahead = True

    def __init__(self, *, ngram: int, vocabulary: int) -> None:
        self.ngram = ngram
        self.vocabulary = vocabulary

    def steps(self, request: Request) -> Generator[Pass, Tensor, Proposal]:
        yield from ()
        begun = time.perf_counter()
        ids = find_continuation(request.committed, ngram=self.ngram, count=request.count)
        if not ids:
            return Proposal([], None, [], [time.perf_counter() - begun] if request.count else [])
        return copied(ids, self.vocabulary, request, begun=begun)


def copied(ids: list[int], vocabulary: int, request: Request, *, begun: float) -> Proposal:
    """The proposal of tokens that were not drawn: q of [len(ids), vocabulary] is certain of each. begun: when the search was."""
    q = one_hot(token_ids(ids, torch.device(request.draws.device)), vocabulary)
    seconds = time.perf_counter() - begun
    return Proposal(ids, q, [None] * len(ids), [seconds / len(ids)] * len(ids))


def find_continuation(tokens: list[int], *, ngram: int, count: int, least: int = 1) -> list[int]:
    """At most `count` tokens that followed the most recent earlier occurrence of the longest repeated ending of `tokens`, which has
    `least` to `ngram` tokens."""
    place = repeated_ending(tokens, ngram=ngram, least=least)
    return [] if place is None else tokens[place : place + count]


def repeated_ending(tokens: list[int], *, ngram: int, least: int = 1) -> int | None:
    """Where it goes on behind that occurrence; None where there is none.

    Backwards, once, for in a long text this is what a round of look-up costs: most tokens are unlike the last one.
    """
    end = len(tokens) - 1
    longest, place = least - 1, None
    for here in range(end - 1, -1, -1):
        if tokens[here] != tokens[end]:
            continue
        length = 1
        while length < ngram and length <= here and tokens[here - length] == tokens[end - length]:
            length += 1
        if length > longest:
            longest, place = length, here + 1
            if length >= ngram:
                break
    return place


def default_exit_layers(layers: int) -> int:
    """A third of the target: fewer agree with it on nothing, more cost too much."""
    return max(1, layers // 3)


def _exit_layers(wanted: int, layers: int) -> int:
    if wanted >= layers:
        raise SettingsError(f"early exit after {wanted} layers is impossible: this target has {layers}, take 1 to {layers - 1}.")
    return wanted or default_exit_layers(layers)


def make_drafter(name: str, pair: Any, settings: Settings) -> Drafter:
    """The drafter called `name` for one run of `pair`. Raises SettingsError when the pair does not offer it."""
    if name == "none":
        return Drafter()
    if name not in pair.drafters:
        raise SettingsError(f"drafter {name!r} is not offered by {pair.title}: take one of {', '.join(pair.drafters)}.")
    if name == "lookup":
        return PromptLookup(ngram=settings.ngram, vocabulary=pair.vocabulary)
    if name == "early-exit":
        return EarlyExit(_exit_layers(settings.exit_layers, pair.target.layers))
    if name == "draft":
        return DraftModel(pair.draft)
    return pair.attached[name](settings)
