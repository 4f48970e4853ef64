"""Carries out `specdec.asked`: reads the text again, token by token, and asks the drafter at each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from specdec.asked import AskedFinding, EveryPlace
from specdec.drafters import Request, make_drafter
from specdec.errors import SettingsError
from specdec.experiments import Carried, origin
from specdec.sampling import Draws, SamplingRule
from specdec.trace import Settings


def begin(pair: Any, request: Any, stop: Callable[[], bool]) -> Carried:
    """Raises SettingsError for a run that is sampled, for one of another tokenizer, and for a text that no run of the pair can have
    written: its ids come from a file or over a network, and one that has no embedding would end a GPU for everybody."""
    asked, settings = request.experiment, request.settings
    if not settings.greedy:
        raise SettingsError("The drafter can be asked again about a run at temperature 0 only: choose such a run.")
    if tuple(pair.encode(request.prompt, raw=settings.raw)) != tuple(asked.prompt_ids):
        raise SettingsError("This run was made by another pair of models: choose a run of the pair that is loaded.")
    room = min(settings.max_new_tokens, pair.context - len(asked.prompt_ids))
    if len(asked.output_ids) > room or not all(0 <= token < pair.vocabulary for token in asked.output_ids):
        raise SettingsError(
            f"This run's text cannot be read again: its ids must lie below {pair.vocabulary:,} and be no more than {max(0, room):,}."
        )
    work = _Work(pair, asked, settings)
    return Carried(work.steps(), work.finding, stop)


class _Work:
    def __init__(self, pair: Any, asked: EveryPlace, settings: Settings) -> None:
        self.pair, self.asked, self.settings = pair, asked, settings
        self.drafter = make_drafter(settings.drafter, pair, settings.replace(draft_length=asked.longest, adaptive=False))
        self.proposed: list[int] = []
        self.agreed: list[int] = []

    def steps(self) -> Iterator[int]:
        """One step for each token. The text is given, so nothing is judged; the caches go on as behind a round without drafts."""
        asked, rule, draws = self.asked, SamplingRule.of(self.settings), Draws(0)
        committed, output = list(asked.prompt_ids), asked.output_ids
        target = self.pair.target.open(hidden_layers=self.drafter.hidden_layers)
        with torch.inference_mode():
            if len(committed) > 1:
                target.forward(committed[:-1], keep=1)
            self.drafter.start(committed, target)
        for place, token in enumerate(output):
            with torch.inference_mode():
                count = max(0, min(asked.longest, self.settings.max_new_tokens - place - 1))
                drafts = self.drafter.propose(Request(committed, count, rule, draws, False, lambda: None)).ids
                agreed = 0
                while agreed < min(len(drafts), len(output) - place) and drafts[agreed] == output[place + agreed]:
                    agreed += 1
                target.forward(committed[-1:], keep=1)
                committed.append(token)
                target.crop(len(committed) - 1)
                self.drafter.settle(len(committed) - 1)
            self.proposed.append(len(drafts))
            self.agreed.append(agreed)
            yield place

    def finding(self, reason: str) -> AskedFinding:
        return AskedFinding(
            finish_reason=reason,
            **origin(self.pair),
            drafter=self.settings.drafter,
            longest=self.asked.longest,
            limit=self.settings.max_new_tokens,
            prompt_ids=tuple(self.asked.prompt_ids),
            output_ids=tuple(self.asked.output_ids),
            proposed=tuple(self.proposed),
            agreed=tuple(self.agreed),
        )
