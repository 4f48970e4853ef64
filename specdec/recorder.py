"""Turns the tensors of one round into the records of the trace: texts, probabilities, top tokens, overlap."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from specdec.sampling import accept_probability, most_probable, overlap
from specdec.trace import TOP, Draft, Outcome, TokenProbability

TopTokens = tuple[TokenProbability, ...]


class Recorder:
    """texts: gives tokens their texts. full: keep what is only there to look at; without it a sampled run still has q, p and u,
    a greedy run has zeros in their place, and no list of top tokens is made."""

    def __init__(self, texts: Any, *, full: bool, greedy: bool) -> None:
        self.texts, self.full, self.greedy = texts, full, greedy

    @torch.inference_mode()
    def describe(self, proposal: Any, verdicts: Any, *, logits: Tensor, p: Tensor | None) -> tuple[tuple[Draft, ...], Outcome]:
        """proposal: n drafts. verdicts: the judge's. logits, p: the target's, [n+1, V]; p is None in greedy runs."""
        if p is None and self.full:
            p = logits.softmax(-1)
        top_p = self._top(p) if self.full else [()] * (len(proposal.ids) + 1)
        return self._drafts(proposal, verdicts, p, top_p), self._outcome(verdicts, p, top_p)

    def _drafts(self, proposal: Any, verdicts: Any, p: Tensor | None, top_p: list[TopTokens]) -> tuple[Draft, ...]:
        count = len(proposal.ids)
        if not count:
            return ()
        if p is None:
            q_drafted = p_drafted = [0.0] * count
        else:
            q = proposal.q.to(p.device)
            at = torch.arange(count, device=p.device), torch.tensor(proposal.ids, device=p.device)
            q_drafted, p_drafted = q[at].tolist(), p[at].tolist()
        top_q, overlaps = self._to_look_at(q, p[:-1], proposal.columns) if self.full else ([()] * count, [0.0] * count)
        drafts = []
        for i, token in enumerate(proposal.ids):
            judged = i < len(verdicts.us)
            accepted = i < verdicts.accepted
            if self.greedy:
                chance = 1.0 if accepted or (not judged and top_p[i] and top_p[i][0].id == token) else 0.0
            else:
                chance = accept_probability(p_drafted[i], q_drafted[i])
            drafts.append(
                Draft(
                    id=token,
                    text=self.texts.text(token),
                    q=_digits(q_drafted[i], 9),
                    p=_digits(p_drafted[i], 9),
                    accept_probability=_digits(chance, 9),
                    u=_digits(verdicts.us[i], 12) if judged else None,
                    status="accepted" if accepted else "rejected" if judged else "discarded",
                    overlap=_digits(overlaps[i], 6),
                    top_p=top_p[i],
                    top_q=top_q[i],
                    draw_u=_digits(proposal.draw_us[i], 12),
                    bytes=self.texts.fragment(token),
                )
            )
        return tuple(drafts)

    def _to_look_at(self, q: Tensor, p: Tensor, columns: Tensor | None) -> tuple[list[TopTokens], list[float]]:
        """Of each draft: the most probable tokens of q, and Σ min(p, q). q, p: [n, V]. columns: see `Proposal`."""
        if columns is not None:  # the others add to neither
            columns = columns.to(p.device)
            q, p = q[:, columns], p[:, columns]
        return self._top(q, columns), overlap(p, q).clamp(max=1).tolist()

    def _outcome(self, verdicts: Any, p: Tensor | None, top_p: list[TopTokens]) -> Outcome:
        token = verdicts.token
        if token is None:
            return Outcome(kind="none", id=None, text="", p=None, u=None, distribution=(), residual_mass=None)
        row = None if p is None else p[verdicts.accepted]
        top = top_p[verdicts.accepted]
        if self.full and verdicts.rejected and verdicts.source is not None:
            top = self._top(verdicts.source[None])[0]  # the residual; everything else is drawn from p itself
        return Outcome(
            kind="replacement" if verdicts.rejected else "bonus",
            id=token,
            text=self.texts.text(token),
            p=0.0 if row is None else _digits(float(row[token]), 9),
            u=_digits(verdicts.u, 12),
            distribution=top,
            residual_mass=_digits(verdicts.residual_mass, 9),
            bytes=self.texts.fragment(token),
        )

    def _top(self, rows: Tensor, tokens: Tensor | None = None) -> list[TopTokens]:
        """The `TOP` most probable tokens of each row that have any probability. tokens: ids of the columns, where they are not all."""
        values, places = most_probable(rows, TOP)
        places = places if tokens is None else tokens[places]
        return [
            tuple(TokenProbability(i, self.texts.text(i), _digits(v, 4)) for i, v in zip(ids, row) if v > 0)
            for ids, row in zip(places.tolist(), values.tolist())
        ]


def _digits(value: float | None, digits: int) -> float | None:
    """What a reader can use, in a third of the size: 9 digits tell every float32 apart, 12 are finer than any p/q they meet."""
    return None if value is None else float(f"{value:.{digits}g}")
