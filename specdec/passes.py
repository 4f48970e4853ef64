"""Passes that a run asks for, and how they are done: alone, or together with those of other runs.

The loop and the drafters do not call models. They yield a `Pass` and go on when they are sent its result; so the same loop serves one
run (`drive`) and many at once (`specdec.batch`), and there is no second one that could differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(eq=False)
class Pass:
    """One pass of a model that a run asks for; whoever drives the run has it done, alone or together with those of other runs.

    together: does any number of passes that name it or its equal, -> one result each. sequence: the run's own. ids: tokens to
    feed. keep: the last how many logits are wanted. layers, offset: of an early exit. features: what else is fed, for a head.
    seconds: how long it took, filled in by `perform`; passes that were done together have the same.
    """

    together: Callable[[list["Pass"]], list[Tensor]]
    sequence: Any
    ids: Sequence[Any]
    keep: int | None = 1
    layers: int = 0
    offset: int = 0
    features: Tensor | None = None
    seconds: float = 0.0


def one_by_one(passes: list[Pass]) -> list[Tensor]:
    """For models that know no other way."""
    return [
        one.sequence.forward_exit(one.ids, layers=one.layers, offset=one.offset)
        if one.layers
        else one.sequence.forward(one.ids, keep=one.keep)
        for one in passes
    ]


def perform(passes: list[Pass]) -> list[Tensor]:
    """Do passes that name the same function, or equal ones, and time them."""
    begun = time.perf_counter()
    results = passes[0].together(passes)
    seconds = time.perf_counter() - begun
    for one in passes:
        one.seconds = seconds
    return results


def drive(steps: Generator[Pass, Tensor, Any]) -> Any:
    """Do every pass that `steps` asks for, one after the other; returns what it returns."""
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send(perform([wanted])[0])
    except StopIteration as end:
        return end.value
