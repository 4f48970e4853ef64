"""The rules of speculative sampling, as pure functions on tensors. The exactness of the project lives here.

p is the target distribution, q the draft distribution: what the drafter really sampled from. A drafted token x is accepted with
probability min(1, p(x)/q(x)); the first rejected position takes a replacement drawn from norm(max(0, p − q)). The emitted token then
follows p exactly, whatever q is [Leviathan, Kalman, Matias 2023, arXiv 2211.17192, Theorem 1 and appendix A.1; Chen et al. 2023,
arXiv 2302.01318]. Probability maths is done in float32 or wider whatever the dtype of the model.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec.errors import ModelError
from specdec.trace import Settings


def _wide(values: Tensor) -> Tensor:
    """At least float32; float64 stays what it is."""
    return values if values.dtype == torch.float64 else values.float()


@dataclass(frozen=True)
class SamplingRule:
    """How logits become the distribution that is sampled from: temperature, then top-k, then top-p, as transformers does it."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    @classmethod
    def of(cls, settings: Settings) -> "SamplingRule":
        return cls(settings.temperature, settings.top_k, settings.top_p)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    def probabilities(self, logits: Tensor) -> Tensor:
        """logits [n, V] -> probabilities [n, V].

        In greedy decoding nothing is sampled: the result is the model's own distribution at temperature 1, to look at.
        """
        logits = _wide(logits)
        if self.greedy:
            return logits.softmax(-1)
        scores = logits / self.temperature
        if 0 < self.top_k < scores.shape[-1]:
            weakest = scores.topk(self.top_k).values[:, -1:]
            scores = scores.masked_fill(scores < weakest, float("-inf"))  # ties with the k-th token stay, as in transformers
        p = scores.softmax(-1)
        return keep_top_p(p, self.top_p) if self.top_p < 1 else p


def keep_top_p(p: Tensor, top_p: float) -> Tensor:
    """p [n, V] -> the smallest set of most probable tokens that holds `top_p` of the mass, renormalised; never empty.

    Sorting 49,152 numbers costs more than the rest of the judgement. Tokens under (1 − top_p)/V together weigh less than 1 − top_p,
    so all of them go; only the others are sorted.
    """
    if p.device.type == "cuda":
        return keep_top_p_without_waiting(p, top_p)
    out = torch.zeros_like(p)
    floor = (1 - top_p) / p.shape[-1]
    for row, kept in zip(p, out):
        ids = (row >= row.max().clamp(max=floor)).nonzero().squeeze(-1)  # if all are equal, all are at the floor
        order = row[ids].argsort(stable=True)
        ids = ids[order]
        weights = row[ids]
        cumulative = weights.cumsum(0)
        cumulative = cumulative + (1 - cumulative[-1:])  # what the tokens that were not sorted weigh comes first
        keep = cumulative > 1 - top_p
        keep[-1:] = True
        kept[ids[keep]] = weights[keep]
    return out / out.sum(-1, keepdim=True)


def keep_top_p_without_waiting(p: Tensor, top_p: float) -> Tensor:
    """The same where counting the tokens that are left would make the host wait for the device: all are sorted."""
    floor = (1 - top_p) / p.shape[-1]
    weights = p.masked_fill(p < p.amax(-1, keepdim=True).clamp(max=floor), 0)
    ascending, order = weights.sort(dim=-1, stable=True)  # what is not to be sorted comes first, as zeros
    cumulative = ascending.cumsum(-1)
    keep = cumulative + (1 - cumulative[:, -1:]) > 1 - top_p
    keep[:, -1:] = True
    out = torch.zeros_like(p).scatter(-1, order, ascending.masked_fill(~keep, 0))
    return out / out.sum(-1, keepdim=True)


def accept_probability(p: float, q: float) -> float:
    """min(1, p/q) of one drafted token; 0 when p is 0. q is positive, for the drafter has drawn the token from it."""
    if p <= 0:
        return 0.0
    return 1.0 if p >= q else p / q


def accepts(p: float, q: float, u: float) -> bool:
    """u < p/q, written without the division, so that an underflowing q does no harm and p = 0 never passes, u = 0 included."""
    return u * q < p


def residual(p: Tensor, q: Tensor) -> tuple[Tensor, float]:
    """p [V], q [V] -> (norm(max(0, p − q)) [V], its mass before normalising).

    p and q that are equal to rounding leave no mass. A rejection is then a rounding error as well, and p itself is the limit.
    """
    rest = (p - q).clamp(min=0)
    mass = float(rest.sum())
    return (rest / mass, mass) if mass > 0 else (p, 0.0)


def overlap(p: Tensor, q: Tensor) -> Tensor:
    """p, q [n, V] -> Σ min(p, q) [n]: the chance that a draft from q is accepted under p [Leviathan 2023, Theorem 3.5]."""
    return torch.minimum(p, q).sum(-1)


def most_probable(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """rows [n, V] -> the `count` largest values of each, descending, and where they stand, both [n, min(count, V)].

    What `Tensor.topk` does; over a whole vocabulary on a CPU in a third of its time, from the maxima of blocks: a value among the
    largest `count` of a row lies in one of the `count` blocks whose maxima are largest.
    """
    size, width = rows.shape[-1], 64
    if rows.device.type != "cpu" or size < 4 * count * width:
        return rows.topk(min(count, size))
    if size % width:
        rows = torch.nn.functional.pad(rows, (0, width - size % width), value=float("-inf"))
    blocks = rows.reshape(len(rows), -1, width)
    best = blocks.amax(-1).topk(count, sorted=False).indices
    some = blocks.gather(1, best[:, :, None].expand(-1, -1, width))
    values, places = some.reshape(len(rows), -1).topk(count)
    return values, best.gather(1, places // width) * width + places % width


def one_hot(ids: Tensor, vocabulary: int) -> Tensor:
    """The q of a drafter that does not draw: all mass on the token it proposes. ids [n] -> [n, V], float32."""
    return torch.zeros(len(ids), vocabulary, device=ids.device).scatter_(1, ids[:, None], 1.0)


def require_numbers(finite: bool) -> None:
    """Raise ModelError unless the largest logits are numbers: behind a model that overflows, they are not even in order."""
    if not finite:
        raise ModelError("the logits of the next token are no numbers: the model computes nonsense in this number format, take float32.")


def require_probabilities(total: float) -> None:
    """Raise ModelError when what adds up to `total` are no probabilities, as behind a model that overflows."""
    if not 0 < total < float("inf"):
        raise ModelError(
            f"the probabilities of the next token add up to {total}: the model computes nonsense in this number format, take "
            "float32."
        )


class Draws:
    """Every random decision of a run, from one generator that the run seeds.

    device: where probabilities that it picks from are best made.
    """

    device = torch.device("cpu")

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def best(self, logits: Tensor) -> int:
        """logits [V] -> the most probable token. It waits for the device, so that the time of a step is the time of the step."""
        return int(logits.argmax())

    def pick(self, probabilities: Tensor) -> tuple[int, float]:
        """probabilities [V] -> (token id, the u it was picked with): inverse of the cumulative sum, in float64.

        Raises ModelError when they are no probabilities, as behind a model that overflows.
        """
        u = self._random.random()
        # Some devices have no float64 (MPS), and one row is quickly moved.
        cumulative = probabilities.to("cpu").double().cumsum(0)
        total = float(cumulative[-1])
        require_probabilities(total)
        index = int(torch.searchsorted(cumulative, torch.tensor(u * total, dtype=torch.float64), right=True))
        if index >= len(cumulative):  # u·total rounded up to total: the last token that has any probability
            index = int(probabilities.nonzero()[-1])
        return index, u

    def accept(self, p: float, q: float) -> tuple[bool, float]:
        """p(x), q(x) -> (accepted, the u of this one draft). Each draft has a draw of its own."""
        u = self._random.random()
        return accepts(p, q, u), u
