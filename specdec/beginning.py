"""The words that every chat begins with, read once and kept.

A chat template puts the same tokens before every prompt: the system message and the name of the first speaker. Their keys and values
do not depend on what follows, so a run takes them over instead of reading them again, as servers do under the name of prefix caching.
Plain and speculative runs do it alike.
"""

from __future__ import annotations

import weakref
from os.path import commonprefix
from typing import Any

from specdec.passes import Pass, perform

WORTH = 8  # tokens, from which on it pays to keep them, or to read apart what prompts have in common

_kept: weakref.WeakKeyDictionary[Any, dict[tuple[int, ...], Any]] = weakref.WeakKeyDictionary()  # pair -> layers -> sequence


def kept(pair: Any, prompt_ids: list[int], hidden_layers: tuple[int, ...]) -> Any:
    """A sequence of the pair's target that holds the first tokens of this very prompt, and in `hidden` their states of
    `hidden_layers`; None where there is nothing worth keeping. It is read when it is asked for the first time.
    """
    if getattr(pair.target, "piece", None) is None:
        return None  # sequences of this runner cannot take over tokens
    if not (getattr(pair, "has_chat_template", False) and getattr(pair, "keep_beginning", True)):
        return None
    sequences = _kept.setdefault(pair, {})
    layers = tuple(hidden_layers)
    if layers not in sequences:
        sequences[layers] = _read(pair, layers)
    sequence = sequences[layers]
    fits = sequence is not None and len(prompt_ids) > sequence.length and prompt_ids[: sequence.length] == sequence.ids
    return sequence if fits else None


def _read(pair: Any, layers: tuple[int, ...]) -> Any:
    # Where a template ends and a prompt begins, tokens may melt together: what these two have in common need not be all there is, and
    # a prompt that begins otherwise is read as a whole.
    ids = commonprefix([pair.encode("a", raw=False)[:-1], pair.encode("7 times", raw=False)[:-1]])[: pair.target.piece]
    if len(ids) < WORTH:
        return None
    once = Pass(pair.target.together, pair.target.open(hidden_layers=layers), list(ids))
    perform([once])
    once.sequence.ids = list(ids)
    return once.sequence
