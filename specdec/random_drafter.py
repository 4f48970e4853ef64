"""The worst honest drafter: every token of the vocabulary with the same chance. For the page about what does not pay.

It is offered nowhere else. Its q is what it draws from, so its runs are as exact as any: they only waste time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any

import torch
from torch import Tensor

from specdec.drafters import NOTHING, Drafter, Proposal, Request
from specdec.experiments import Guesses
from specdec.passes import Pass


class RandomDrafter(Drafter):
    """vocabulary: how many tokens it picks from."""

    name = Guesses.name

    def __init__(self, vocabulary: int) -> None:
        self._q = torch.full((vocabulary,), 1 / vocabulary)

    def steps(self, request: Request) -> Generator[Pass, Tensor, Proposal]:
        yield from ()
        if request.count < 1:
            return NOTHING
        begun = time.perf_counter()
        picked = [request.draws.pick(self._q) for _ in range(request.count)]
        seconds = time.perf_counter() - begun
        ids, us = [token for token, _ in picked], [u for _, u in picked]
        return Proposal(ids, self._q.expand(len(ids), -1), us, [seconds / len(ids)] * len(ids))


def begin(pair: Any, request: Any, stop: Callable[[], bool]) -> Any:
    """The run of a request whose experiment is `Guesses`."""
    from specdec import decoding

    drafter = RandomDrafter(pair.vocabulary)
    return decoding.stream(pair, request.prompt, request.settings, drafter=drafter, stop=stop, record=request.record)
