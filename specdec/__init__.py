"""Speculative decoding that can be watched, checked and measured.

    import specdec
    pair = specdec.load_pair()
    for round_ in specdec.stream(pair, "Why is the sky blue?", specdec.Settings(draft_length=4)):
        print(round_)
    trace = specdec.generate(pair, "Why is the sky blue?")

Importing the package does not import torch; the names below load what they need when they are first used.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from specdec.errors import ModelError, PairError, SettingsError, SpecdecError, TraceError
from specdec.trace import Settings, Trace

__version__ = "0.1.0"

# torch's threads wait for each other about 200 times in a pass. By default they spin for milliseconds, which on a machine that a browser
# is using as well makes a pass ten times slower; a short spin costs nothing on a quiet one. Read when torch is loaded, hence here.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")

_LAZY = {
    "load_pair": "specdec.models",
    "CATALOGUE": "specdec.models",
    "stream": "specdec.decoding",
    "generate": "specdec.decoding",
    "plain": "specdec.decoding",
    "summary": "specdec.metrics",
}

__all__ = ["Settings", "Trace", "SpecdecError", "SettingsError", "ModelError", "PairError", "TraceError", *_LAZY]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'specdec' has no attribute {name!r}")
