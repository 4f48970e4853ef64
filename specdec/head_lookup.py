"""Two drafters in turn: what has stood in the text before is copied, everything else the attached head writes.

A copied draft costs no model step and, where a text repeats itself, is right far more often than any small model; elsewhere
look-up finds nothing, and the head does. A run of two tokens must be found again: a single one repeats by chance too often.
The choice hangs on committed tokens alone, and when the head stops on what it has drafted before, so q is what each draft was
really picked from, and the output stays exact.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

from torch import Tensor

from specdec.drafters import Proposal, Request, copied, repeated_ending
from specdec.head_drafter import AttachedHeadRunner, HeadDrafter
from specdec.passes import Pass

LEAST = 2
"""Tokens that must be found again. In greedy texts of the embedded target, four drafts behind a repeated run of two or more are
right 2.6 times on average, behind a single repeated token .5 times; the head is at .7.
"""


class HeadOrLookup(HeadDrafter):
    """The head, as long as it is sure, but for the rounds in which prompt look-up finds something to copy."""

    name = "head-lookup"
    goes_ahead = False  # whether it is sure must be known to the host before the next step
    least_sure = 0.35

    def __init__(self, runner: AttachedHeadRunner, *, ngram: int) -> None:
        super().__init__(runner)
        self.ngram = max(LEAST, ngram)

    def start(self, prompt_ids: list[int], target: Any) -> None:
        super().start(prompt_ids, target)
        self._searched: tuple[int, int | None] = (0, None)  # how long the text was, and where it goes on

    def way(self, committed: list[int]) -> str:
        return "written" if self._place(committed) is None else "copied"

    def _place(self, committed: list[int]) -> int | None:
        """Where the text goes on behind an earlier occurrence of its ending; both who ask for it in a round search once."""
        if self._searched[0] != len(committed):  # a text only grows
            self._searched = (len(committed), repeated_ending(committed, ngram=self.ngram, least=LEAST))
        return self._searched[1]

    def steps(self, request: Request) -> Generator[Pass, Tensor, Proposal]:
        begun = time.perf_counter()
        place = self._place(request.committed)
        if place is not None and request.count:
            ids = request.committed[place : place + request.count]
            return copied(ids, self.runner.vocabulary.full, request, begun=begun)
        searched = time.perf_counter() - begun
        proposal = yield from super().steps(request)
        if proposal.seconds:
            proposal.seconds[0] += searched
        return proposal
