"""The trained drafters of the embedded target: where their weights are and how they join a pair."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from specdec.draft_runner import load_draft
from specdec.head_drafter import HeadDrafter, load_head

FOLDER = Path(__file__).resolve().parent.parent / "assets" / "drafters"
HEAD_FILE, DRAFT_FILE = "head.safetensors", "draft.safetensors"


def with_trained_drafters(pair: Any, folder: Path = FOLDER) -> Any:
    """`pair` with the attached head (its default from now on) and the draft model that were trained for its target.

    A weight file that is not there is left out. Raises ModelError for a damaged file and PairError for one of another target.
    """
    changes: dict[str, Any] = {}
    if (head_path := Path(folder) / HEAD_FILE).is_file():
        head = load_head(head_path, pair.target)
        changes["attached"] = {"head": lambda settings: HeadDrafter(head), **pair.attached}
    if pair.draft is None and (draft_path := Path(folder) / DRAFT_FILE).is_file():
        changes |= {"draft": load_draft(draft_path, pair.target), "draft_name": "trained draft"}
    return dataclasses.replace(pair, **changes)
