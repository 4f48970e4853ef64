"""The judge: what becomes of the drafts of a round, under the target's own probabilities [Leviathan 2023, algorithm 1].

Left to right: greedy keeps a draft while it is the target's argmax, sampling keeps it while u < p/q. The first one that is rejected is
replaced by a token from norm(max(0, p − q)); if none is, a bonus token comes from the p behind the last draft. `specdec.ahead` does the
same on a GPU without waiting for the host.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specdec.drafters import Proposal
from specdec.sampling import Draws, require_numbers, residual


@dataclass(frozen=True)
class Verdicts:
    """What the judge says of one round.

    accepted: how many drafts stay. rejected: whether the draft behind them was judged and refused. us: the draw of each judged draft.
    token: replacement or bonus, None when the run ended on an accepted draft. u: its draw. source: the distribution it was drawn
    from [V], residual_mass: before normalising, for a sampled replacement.
    """

    accepted: int
    rejected: bool
    us: list[float | None]
    token: int | None
    u: float | None
    source: Tensor | None
    residual_mass: float | None


def judge(proposal: Proposal, *, logits: Tensor, p: Tensor | None, draws: Draws, eos_ids: frozenset[int]) -> Verdicts:
    """Verdicts on n drafts. logits: the target's, [n+1, V]. p: [n+1, V] for a sampled run, None for a greedy one."""
    if p is None:
        best = logits.argmax(-1)
        require_numbers(bool(logits.gather(1, best[:, None]).isfinite().all()))
        return _judge_greedy(proposal.ids, best.tolist(), eos_ids)
    us: list[float | None] = []
    positions = torch.arange(len(proposal.ids), device=p.device)
    chosen = torch.tensor(proposal.ids, dtype=torch.long, device=p.device)
    p_drafted = p[positions, chosen].tolist()
    q = proposal.q.to(p.device) if proposal.q is not None else p[:0]
    q_drafted = q[positions, chosen].tolist()
    for i, token in enumerate(proposal.ids):
        kept, u = draws.accept(p_drafted[i], q_drafted[i])
        us.append(u)
        if not kept:
            source, mass = residual(p[i], q[i])
            replacement, draw_u = draws.pick(source)
            return Verdicts(i, True, us, replacement, draw_u, source, mass)
        if token in eos_ids:
            return Verdicts(i + 1, False, us, None, None, None, None)
    bonus, draw_u = draws.pick(p[-1])
    return Verdicts(len(us), False, us, bonus, draw_u, p[-1], None)


def _judge_greedy(drafted: list[int], best: list[int], eos_ids: frozenset[int]) -> Verdicts:
    for i, token in enumerate(drafted):
        if token != best[i]:
            return Verdicts(i, True, [None] * (i + 1), best[i], None, None, None)
        if token in eos_ids:
            return Verdicts(i + 1, False, [None] * (i + 1), None, None, None, None)
    return Verdicts(len(drafted), False, [None] * len(drafted), best[-1], None, None, None)
