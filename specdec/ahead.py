"""Rounds whose decisions are made on the device: the host hears of them once, when the round is over.

A host that waits for every drafted token leaves a GPU idle most of the time. `AheadDraws` stands where `Draws` stands, but sends
all uniform draws of a round to the device at its beginning, picks tokens there, as tensors that no host has seen, and judges
there; one small record comes back. The draws come from the same generator in the same order, and each decision is the same
function of probabilities and draw as in `specdec.sampling` and `specdec.judging.judge`, so that a seed means the same run.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specdec.drafters import Proposal
from specdec.judging import Verdicts
from specdec.runner import sent, token_ids
from specdec.sampling import Draws, SamplingRule, require_numbers, require_probabilities


@dataclass(frozen=True)
class Judged(Verdicts):
    """What the host hears of a round. proposal: with ids as numbers. p: the target's probabilities [n+1, V], None in a greedy run.
    verify, judge: seconds."""

    proposal: Proposal
    p: Tensor | None
    verify: float
    judge: float


class AheadDraws(Draws):
    """The draws of one run, a round ahead. `begin`, then the drafter's picks, `proposed`, then `judge`; and so on."""

    def __init__(self, seed: int, device: torch.device | str = "cpu") -> None:
        super().__init__(seed)
        self.device = torch.device(device)
        self._us: list[float] = []  # drawn and not used up

    def begin(self, count: int) -> None:
        """A round of at most `count` drafts. Draws of a round that was broken off are used again."""
        needed = 2 * count + 1  # a pick and a verdict for each draft, and the target's own token
        self._us += [self._random.random() for _ in range(needed - len(self._us))]
        self._on_device = sent(torch.tensor(self._us, dtype=torch.float64), self.device)
        self._picks = 0
        self._totals: list[Tensor] = []
        self._marks = _Marks(self.device)

    def best(self, logits: Tensor) -> Tensor:
        """logits [V] -> token []."""
        token = logits.argmax()
        self._marks.add()
        return token

    def pick(self, probabilities: Tensor) -> tuple[Tensor, float]:
        """probabilities [V] -> (token [], the u it was picked with)."""
        token, total = pick(probabilities, self._on_device[self._picks : self._picks + 1])
        u = self._us[self._picks]
        self._picks += 1
        self._totals.append(total)
        self._marks.add()
        return token[0], u

    def proposed(self) -> None:
        """The drafter is done."""
        self._drafted = len(self._marks)
        self._marks.add()

    @torch.inference_mode()
    def judge(self, proposal: Proposal, *, logits: Tensor, rule: SamplingRule, eos_ids: frozenset[int]) -> Judged:
        """Verdicts on n drafts. logits: the target's, [n+1, V]. Raises ModelError when the probabilities are none."""
        self._marks.add()
        p = None if rule.greedy else rule.probabilities(logits)
        count = len(proposal.ids)
        drafted = token_ids(proposal.ids, logits.device) if count else logits.new_zeros(0, dtype=torch.long)
        source = None
        if p is None:
            accepted, token = judge_greedy(drafted, logits)
            numbers = [accepted, token, drafted, logits.amax(-1).isfinite().all()[None]]
        else:
            us = self._on_device[self._picks :]
            q = proposal.q.to(p.device) if count else p[:0]
            accepted, token, source, mass, total = judge_sampled(drafted, p, q, us)
            numbers = [accepted, token, drafted, mass, *self._totals, total]
        record = torch.cat([part.double() for part in numbers]).tolist()  # here the host waits
        kept, token = int(record[0]), int(record[1])
        ids = [int(i) for i in record[2 : 2 + count]]
        if p is None:
            require_numbers(record[2 + count] == 1)
        for total in record[3 + count :]:
            require_probabilities(total)
        mass = None if p is None else record[2 + count]
        return self._told(dataclasses.replace(proposal, ids=ids), p, kept, token, source, mass, eos_ids)

    def _told(
        self,
        proposal: Proposal,
        p: Tensor | None,
        accepted: int,
        token: int | None,
        source: Tensor | None,
        mass: float | None,
        eos_ids: frozenset[int],
    ) -> Judged:
        ids = proposal.ids
        rejected = accepted < len(ids)
        end = next((i for i, drafted in enumerate(ids[:accepted]) if drafted in eos_ids), None)
        if end is not None:  # the text ends on a draft: what was decided behind it never happened
            accepted, rejected, token, source = end + 1, False, None, None
        judged, sampled = accepted + rejected, mass is not None
        us: Sequence[float | None] = self._us[self._picks : self._picks + judged] if sampled else [None] * judged
        used = self._picks + judged
        u = self._us[used] if sampled and token is not None else None
        del self._us[: (used + (token is not None)) if sampled else 0]
        draft, verify, judge = self._marks.seconds(self._drafted)
        if len(draft) == len(ids):  # else nothing was picked on the device
            proposal = dataclasses.replace(proposal, seconds=draft)
        verdicts = (accepted, rejected, list(us), token, u, source, mass if rejected else None)
        return Judged(*verdicts, proposal=proposal, p=p, verify=verify, judge=judge)


def pick(probabilities: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """probabilities [V], u [1] float64 -> (token [1], their sum [1]); the rule of `Draws.pick`."""
    cumulative = probabilities.double().cumsum(0)
    total = cumulative[-1:]
    index = torch.searchsorted(cumulative, u * total, right=True)
    places = torch.arange(len(probabilities), device=probabilities.device)
    last = (places * (probabilities > 0)).amax(0, keepdim=True)  # nothing here copies a number to the device, which would wait
    return torch.where(index < len(probabilities), index, last), total


def judge_greedy(drafted: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """drafted [n], logits [n+1, V] -> (how many stay [1], the token behind them [1])."""
    best = logits.argmax(-1)
    accepted = (drafted == best[:-1]).long().cumprod(0).sum(0, keepdim=True)
    return accepted, best.index_select(0, accepted)


def judge_sampled(drafted: Tensor, p: Tensor, q: Tensor, us: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """drafted [n], p [n+1, V], q [n, V], us [n+1 or more] -> (how many stay [1], the token behind them [1], what that was drawn
    from [V], the residual's mass [1], the sum of what it was drawn from [1])."""
    count = len(drafted)
    if not count:
        token, total = pick(p[0], us[:1])
        return us.new_zeros(1, dtype=torch.long), token, p[0], total, total
    rows = torch.arange(count, device=p.device)
    kept = us[:count] * q[rows, drafted].double() < p[rows, drafted].double()
    accepted = kept.long().cumprod(0).sum(0, keepdim=True)
    rejected = accepted < count
    row = p.index_select(0, accepted)[0]
    rest = (row - q.index_select(0, accepted.clamp(max=count - 1))[0]).clamp(min=0)
    mass = rest.sum()[None]
    source = torch.where(rejected & (mass > 0), rest / mass, row)
    token, total = pick(source, us.index_select(0, accepted + rejected))
    return accepted, token, source, mass, total


class _Marks:
    """Points of time in a round, on the device's own clock where it has one: nobody waits for them until `seconds`."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.current_stream(device) if device.type == "cuda" else None
        self._begun = time.perf_counter()
        self._points: list[Any] = []
        self.add()

    def __len__(self) -> int:
        return len(self._points)

    def add(self) -> None:
        if self._stream is not None:
            event = torch.cuda.Event(enable_timing=True)
            event.record(self._stream)
            self._points.append(event)
        else:
            self._points.append(time.perf_counter())

    def seconds(self, drafted: int) -> tuple[list[float], float, float]:
        """Once the device is done: (of each pick, of verification, of the rest until now). drafted: the mark at which the
        drafter was done; the next one is the end of the verification."""
        spans = [self._between(a, b) for a, b in zip(self._points, self._points[1:], strict=False)]
        draft, verify = spans[: drafted - 1], spans[drafted]
        whole = time.perf_counter() - self._begun
        return draft, verify, max(0.0, whole - sum(spans[: drafted + 1]))

    def _between(self, a: Any, b: Any) -> float:
        return a.elapsed_time(b) / 1e3 if self._stream is not None else b - a
