"""The trained drafters of the embedded target: where their weights are and how they join a pair."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.draft_runner import load_draft
from specdec.head_drafter import AttachedHeadRunner, HeadDrafter, load_head
from specdec.head_lookup import HeadOrLookup

FOLDER = Path(__file__).resolve().parent.parent / "assets" / "drafters"
HEAD_FILE, DRAFT_FILE = "head.safetensors", "draft.safetensors"


@dataclass(frozen=True)
class HeadMaker:
    """Makes the head drafter of one run. parameters: of the head, without rows that the target has anyway; parameters_read: those
    that one draft step reads. component: the weight file's name without its ending.
    """

    runner: AttachedHeadRunner
    component = "head"

    def __call__(self, settings: Any) -> HeadDrafter:
        return HeadDrafter(self.runner)

    @property
    def parameters(self) -> int:
        return self.runner.parameters

    @property
    def parameters_read(self) -> int:
        return self.runner.parameters_read


class HeadOrLookupMaker(HeadMaker):
    """The same for the head that takes turns with prompt look-up."""

    def __call__(self, settings: Any) -> HeadOrLookup:
        return HeadOrLookup(self.runner, ngram=settings.ngram)


def with_trained_drafters(pair: Any, folder: Path = FOLDER) -> Any:
    """`pair` with the attached head (its default from now on), alone and with look-up, and the draft model, all trained for its target.

    A weight file that is not there is left out. Raises ModelError for a damaged file and PairError for one of another target.
    """
    changes: dict[str, Any] = {}
    if (head_path := Path(folder) / HEAD_FILE).is_file():
        runner = load_head(head_path, pair.target)
        changes["attached"] = {HeadDrafter.name: HeadMaker(runner), HeadOrLookup.name: HeadOrLookupMaker(runner), **pair.attached}
    if pair.draft is None and (draft_path := Path(folder) / DRAFT_FILE).is_file():
        changes |= {"draft": load_draft(draft_path, pair.target), "draft_name": "trained draft"}
    return dataclasses.replace(pair, **changes)
