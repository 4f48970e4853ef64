"""A prompt on its way into the caches of a run: piece by piece, so that others need not wait for all of a long one."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any

import torch
from torch import Tensor

from specdec.beginning import kept
from specdec.drafters import Drafter
from specdec.passes import Pass, drive


class PromptReader:
    """Reads all of a prompt but its newest token, and starts the drafter on it.

    verify: the target's passes, see `decoding.Verify`. feeds: the most tokens that a later pass has. check: called before every
    pass; it raises when the run is to stop. Afterwards `target` is the run's own sequence; `seconds` is what the reading took.
    """

    def __init__(
        self,
        pair: Any,
        prompt_ids: list[int],
        drafter: Drafter,
        *,
        verify: Callable[[list[Pass]], list[Tensor]],
        feeds: int,
        check: Callable[[], None],
    ) -> None:
        self.pair, self.prompt_ids, self.drafter = pair, prompt_ids, drafter
        self.target: Any = None
        self.seconds = 0.0
        self._verify, self._feeds, self._check = verify, feeds, check
        self._steps: Generator[Pass, Tensor, None] | None = None
        self._piece: Pass | None = None

    @property
    def done(self) -> bool:
        """Whether the prompt is in the caches."""
        return self.target is not None

    @property
    def untouched(self) -> bool:
        """Whether nothing of the prompt has been read yet."""
        return self._steps is None and not self.done

    @property
    def next_tokens(self) -> int:
        """How many the next piece has, at most; 0 when the prompt is read."""
        return 0 if self.done else min(len(self.prompt_ids), self._most or len(self.prompt_ids))

    @property
    def _most(self) -> int | None:
        """Tokens of a piece; None where the target reads a prompt as a whole."""
        return getattr(self.pair.target, "piece", None)

    def read(self) -> None:
        """All of it, alone."""
        begun = time.perf_counter()
        drive(self.steps())
        self.seconds = time.perf_counter() - begun

    def steps(self, known: Any = None) -> Generator[Pass, Tensor, None]:
        """`read`, step by step: yields the passes that it takes, each over a piece of the prompt.

        known: a sequence of the target that holds the first tokens of this very prompt, and their states; they are not read again.
        Without it, what every chat begins with is taken over, see `specdec.beginning`.
        """
        self._check()
        known = known or kept(self.pair, self.prompt_ids, self.drafter.hidden_layers)
        target = self.pair.target.open(hidden_layers=self.drafter.hidden_layers)
        states: list[Tensor] = []
        if known is not None:
            target.adopt(known)
            states.append(known.hidden)
        rest = self.prompt_ids[target.length : -1]
        piece = self._most or max(1, len(rest))
        for first in range(0, len(rest), piece):
            yield Pass(self._verify, target, rest[first : first + piece])
            self._check()
            states.append(target.hidden)
        if self.drafter.hidden_layers and states:
            target.hidden = torch.cat(states)  # also where all of the prompt was known
        target.warm(self._feeds)
        self.drafter.start(self.prompt_ids, target)
        self.pair.target.synchronize()
        self.target = target

    def next_piece(self, known: Any = None) -> Pass | None:
        """For one who has several prompts read together: the pass that is needed next, None when the prompt is read."""
        if self.untouched:
            begun = time.perf_counter()
            self._steps = self.steps(known)
            self._piece = next(self._steps, None)
            self.seconds += time.perf_counter() - begun
        return self._piece

    def took_piece(self, logits: Tensor) -> None:
        """That pass is done."""
        begun = time.perf_counter() - self._piece.seconds
        try:
            self._piece = self._steps.send(logits)
        except StopIteration:
            self._piece = None
        self.seconds += time.perf_counter() - begun

    def let_go(self) -> None:
        """The run is over: its caches are not needed any more."""
        self.target = self._steps = self._piece = None
        self.drafter = Drafter()
