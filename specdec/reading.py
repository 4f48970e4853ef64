"""Reading the prompts of several runs together: a piece of each in one pass, and what they have in common only once.

Reading a prompt costs several times what a round costs, and when a class presses Run, that is what everybody waits for. The prompts
of a chat begin alike, with the words of the template, and the weights can be read once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from os.path import commonprefix
from typing import Any

import torch

from specdec.beginning import WORTH, kept
from specdec.decoding import Run
from specdec.passes import Pass, perform


def read_on(runs: dict[int, Run]) -> dict[int, Exception]:
    """One piece of the prompt of each run; what went wrong inside single ones, a stop included.

    All runs are of one pair, and none has been started. Afterwards those whose prompt is read are.
    """
    failed: dict[int, Exception] = {}
    wanted: dict[int, Pass] = {}
    known = _read_common(runs)
    for number, run in runs.items():
        try:
            if (piece := run.reader.next_piece(known.get(number))) is not None:
                wanted[number] = piece
        except Exception as error:  # noqa: BLE001 - it is this run's
            failed[number] = error
    groups: dict[Any, list[int]] = {}
    for number, piece in wanted.items():
        groups.setdefault(piece.together, []).append(number)
    for group in groups.values():
        for number, logits in zip(group, perform([wanted[number] for number in group]), strict=True):
            try:
                runs[number].reader.took_piece(logits)
            except Exception as error:  # noqa: BLE001 - it is this run's
                failed[number] = error
    return failed


def _read_common(runs: dict[int, Run]) -> dict[int, Any]:
    """For runs that have read nothing yet and begin alike: a sequence that holds what they have in common."""
    alike: dict[tuple[int, ...], list[int]] = {}
    for number, run in runs.items():
        if run.reader.untouched and getattr(run.pair.target, "piece", None) is not None:
            alike.setdefault(tuple(run.drafter.hidden_layers), []).append(number)
    known: dict[int, Any] = {}
    for layers, group in alike.items():
        first = runs[group[0]]
        target = first.pair.target
        common = _common([runs[number].prompt_ids[:-1] for number in group], most=target.piece)
        begun = kept(first.pair, first.prompt_ids, layers)
        have = begun.length if begun is not None else 0
        if len(group) > 1 and len(common) - have >= WORTH:
            once = Pass(target.together, _follow(target, begun, layers), common[have:])
            perform([once])
            if begun is not None and layers:
                once.sequence.hidden = torch.cat([begun.hidden, once.sequence.hidden])
            for number in group:
                runs[number].reader.seconds += once.seconds
                known[number] = once.sequence
    return known


def _follow(target: Any, begun: Any, layers: tuple[int, ...]) -> Any:
    """A new sequence that goes on behind `begun`."""
    sequence = target.open(hidden_layers=layers)
    if begun is not None:
        sequence.adopt(begun)
    return sequence


def _common(prompts: Sequence[Sequence[int]], *, most: int) -> list[int]:
    """The tokens that all of them begin with."""
    return list(commonprefix([list(prompt[:most]) for prompt in prompts]))
