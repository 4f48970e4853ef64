"""Carries out `specdec.busy`: really batched passes of the pair's target and drafter, timed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from specdec.busy import Busy, BusyFinding, Passes
from specdec.drafters import NOTHING, Drafter, Proposal, Request, make_drafter
from specdec.experiments import Carried, origin
from specdec.passes import Pass, perform
from specdec.sampling import Draws, SamplingRule
from specdec.trace import Settings

GREEDY = SamplingRule(temperature=0.0)


@dataclass(eq=False)
class _Served:
    """One request: its tokens, its cache, its drafter."""

    committed: list[int]
    sequence: Any
    drafter: Drafter
    draws: Draws = field(default_factory=lambda: Draws(0))


@dataclass(eq=False)
class _Times:
    """One entry for each turn. ratios, costs: in plain passes of the same turn; a cost is None where nothing was drafted."""

    plain: list[float] = field(default_factory=list)
    ratios: dict[int, list[float]] = field(default_factory=dict)
    costs: list[float | None] = field(default_factory=list)


def begin(pair: Any, request: Any, stop: Callable[[], bool]) -> Carried:
    work = _Work(pair, request.experiment)
    return Carried(work.steps(), work.finding, stop)


class _Work:
    def __init__(self, pair: Any, asked: Busy) -> None:
        self.pair, self.asked = pair, asked
        self.name = asked.drafter or pair.drafters[0]
        self.served: list[_Served] = []
        self.times = {count: _Times() for count in asked.at_once}
        self.judged = self.accepted = 0

    def steps(self) -> Iterator[str]:
        """Reads the prompts, one a step; then turn by turn every number of requests."""
        for number in range(max(self.asked.at_once)):
            self._read(self.asked.prompts[number % len(self.asked.prompts)], number)
            yield "read"
        for turn in range(self.asked.turns + 1):
            for count in self.asked.at_once:
                with torch.inference_mode():
                    self._turn(count, keep=turn > 0)  # kernels and buffers of each shape are made in the first one
                yield f"{count} at once"

    def _read(self, prompt: str, number: int) -> None:
        ids = list(self.pair.encode(prompt, raw=False))
        ids = ids[-max(2, self.asked.longest_prompt - number % 16) :]  # of different lengths, as requests are
        longest = max(self.asked.draft_lengths)
        drafter = make_drafter(self.name, self.pair, Settings(drafter=self.name, draft_length=longest))
        sequence = self.pair.target.open(hidden_layers=drafter.hidden_layers)
        sequence.forward(ids[:-1], keep=1)
        sequence.warm(1 + longest)
        drafter.start(ids, sequence)
        self.served.append(_Served(ids, sequence, drafter))

    def _turn(self, count: int, *, keep: bool) -> None:
        """A plain pass, a draft, and a verifying pass for each γ; the last and longest one commits what it accepts."""
        group, times, longest = self.served[:count], self.times[count], max(self.asked.draft_lengths)
        plain = self._pass(group, [[one.committed[-1]] for one in group])[1]
        proposals, steps = self._draft(group, longest)
        verified: dict[int, float] = {}
        logits: list[torch.Tensor] = []
        for length in sorted(self.asked.draft_lengths):
            # A drafter may have nothing to propose; the pass is as long all the same, for that is what is measured.
            padding = [one.committed[-1:] * length for one in group]
            drafts = [(p.ids + more)[:length] for p, more in zip(proposals, padding, strict=True)]
            fed = [[one.committed[-1], *ids] for one, ids in zip(group, drafts, strict=True)]
            logits, verified[length] = self._pass(group, fed, commit=length == longest)
        for one, proposal, own in zip(group, proposals, logits, strict=True):
            self._commit(one, proposal, own.argmax(-1).tolist(), counted=keep)
        if keep:
            times.plain.append(plain)
            times.costs.append(steps[0] / plain if steps else None)
            for length, seconds in verified.items():
                times.ratios.setdefault(length, []).append(seconds / plain)

    def _pass(self, group: list[_Served], fed: list[list[int]], *, commit: bool = False) -> tuple[list[torch.Tensor], float]:
        """One pass for all, with the choice of every token, which waits for the device. Taken back unless it is to `commit`."""
        target = self.pair.target
        target.synchronize()
        begun = time.perf_counter()
        logits = perform([Pass(target.together, one.sequence, ids, keep=len(ids)) for one, ids in zip(group, fed, strict=True)])
        torch.cat(logits).argmax(-1).tolist()
        seconds = time.perf_counter() - begun
        if not commit:
            for one, ids in zip(group, fed, strict=True):
                one.sequence.crop(one.sequence.length - len(ids))
        return logits, seconds

    def _draft(self, group: list[_Served], length: int) -> tuple[list[Proposal], list[float]]:
        """Every drafter's proposal, their passes done together, and the seconds of a step of all of them."""
        steps = [one.drafter.steps(Request(one.committed, length, GREEDY, one.draws, False, lambda: None)) for one in group]
        done: dict[int, Proposal] = {}
        wanted: dict[int, Pass] = {}
        begun = time.perf_counter()

        def go_on(number: int, result: Any) -> None:
            try:
                wanted[number] = next(steps[number]) if result is None else steps[number].send(result)
            except StopIteration as end:
                done[number] = end.value or NOTHING

        for number in range(len(group)):
            go_on(number, None)
        while wanted:
            numbers = list(wanted)
            for number, result in zip(numbers, perform([wanted.pop(n) for n in numbers]), strict=True):
                go_on(number, result)
        self.pair.target.synchronize()
        spent = time.perf_counter() - begun
        longest = max((len(p.ids) for p in done.values()), default=0)
        return [done[n] for n in range(len(group))], [spent / longest] if longest else []

    def _commit(self, one: _Served, proposal: Proposal, best: list[int], *, counted: bool) -> None:
        kept = 0
        while kept < len(proposal.ids) and proposal.ids[kept] == best[kept]:
            kept += 1
        if counted:
            self.accepted += kept
            self.judged += min(kept + 1, len(proposal.ids))
        one.committed += best[: kept + 1]
        one.sequence.crop(len(one.committed) - 1)
        one.drafter.settle(len(one.committed) - 1)

    def finding(self, reason: str) -> BusyFinding:
        lengths = sorted(self.asked.draft_lengths)
        seen = [len(one.committed) for one in self.served]
        return BusyFinding(
            finish_reason=reason,
            **origin(self.pair),
            drafter=self.name,
            draft_lengths=tuple(lengths),
            context=round(statistics.fmean(seen), 1) if seen else 0.0,
            judged=self.judged,
            accepted=self.accepted,
            passes=tuple(_passes(count, times, lengths) for count, times in self.times.items() if times.plain),
        )


def _passes(count: int, times: _Times, lengths: list[int]) -> Passes:
    known = [cost for cost in times.costs if cost is not None]
    cost = statistics.median(known) if known else 0.0
    return Passes(
        at_once=count,
        turns=len(times.plain),
        plain=round(statistics.median(times.plain), 7),
        fastest=round(min(times.plain), 7),
        slowest=round(max(times.plain), 7),
        ratios=tuple(round(statistics.median(times.ratios[n]), 4) for n in lengths),
        cost=round(cost, 4),
        turn_ratios=tuple(tuple(round(ratio, 4) for ratio in times.ratios[n]) for n in lengths),
        turn_costs=tuple(round(cost if one is None else one, 4) for one in times.costs),
    )
