"""Training of both drafters: batches from the feature store, the loss on the draft vocabulary, Muon and AdamW, checkpoints.

The rows of the draft vocabulary are frozen, so the loss needs no graph through the 10,000 columns: its gradient with respect
to the states is written down by hand and goes on from there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from specdec.errors import SettingsError
from specdec.training.features import Library
from specdec.training.muon import Muon


@dataclass(frozen=True)
class Batch:
    """Texts side by side, padded on the right; all without the common beginning.

    ids [B, T]; taps [B, T, F, d] or None; where [n] flat indices of the slots that are judged; last [n, d] the target's states
    there, unit rows, of which its final norm and output rows make p.
    """

    ids: torch.Tensor
    taps: torch.Tensor | None
    where: torch.Tensor
    last: torch.Tensor


def make_batch(library: Library, members: np.ndarray, *, with_taps: bool = True, device: torch.device | str = "cpu") -> Batch:
    """Read the texts `members` from the library."""
    places = [library.find(int(number)) for number in members]
    common, taps_count, width = library.stores[0].common, len(library.stores[0].taps), library.stores[0].width
    texts = [store.corpus.text(index)[common:] for store, index in places]
    longest = max(map(len, texts))
    ids = torch.zeros(len(texts), longest, dtype=torch.long)
    taps = torch.zeros(len(texts), longest, taps_count, width) if with_taps else None
    where, last = [], []
    for row, ((store, index), text) in enumerate(zip(places, texts, strict=True)):
        at, first = int(store.offset[index]), int(store.corpus.prompt[index]) - common - 1
        ids[row, : len(text)] = torch.from_numpy(text)
        if taps is not None:
            taps[row, : len(text)] = torch.from_numpy(store.features[at : at + len(text)].astype(np.float32))
        where.append(torch.arange(first, len(text) - 1) + row * longest)
        last.append(torch.from_numpy(store.features[at + first : at + len(text) - 1, -1].astype(np.float32)))
    moved = [part.to(device) for part in (ids, torch.cat(where), torch.cat(last))]
    return Batch(moved[0], None if taps is None else taps.to(device), *moved[1:])


@dataclass(frozen=True)
class Verdict:
    """Loss gradient and agreement of some positions: `gradient` [n, d] or None, `overlap` Σ min(p, q), `greedy` same argmax,
    `cross_entropy`.
    """

    gradient: torch.Tensor | None
    overlap: float
    greedy: float
    cross_entropy: float


@torch.no_grad()
def judge(
    states: torch.Tensor,
    rows: tuple[torch.Tensor, torch.Tensor],
    p: torch.Tensor,
    *,
    variation: float = 0.0,
    train: bool = True,
) -> Verdict:
    """Compare q = softmax(states · rows) with the target's p, both over the draft vocabulary.

    Loss = (1 − variation) · cross-entropy to p  −  variation · Σ min(p, q). states [n, d], rows [V, d] and the same transposed,
    p [n, V]. All of p counts: at temperature 1 its 64 largest values leave out a sixth of the mass, and a drafter
    that never hears of the rest proposes nothing of it.
    """
    scores = states @ rows[1]
    same = float((scores.argmax(-1) == p.argmax(-1)).float().mean())
    scores -= scores.logsumexp(-1, keepdim=True)
    cross = -torch.linalg.vecdot(p, scores)
    q = scores.exp_()
    overlap = torch.minimum(p, q).sum(-1)
    gradient = None
    if train:
        if variation:
            short = torch.where(q < p, q, 0.0)
            q *= (1 - variation) + variation * short.sum(-1, keepdim=True)
            q.sub_(short, alpha=variation)
        gradient = q.sub_(p, alpha=1 - variation) @ rows[0]
    return Verdict(gradient, float(overlap.mean()), same, float(cross.mean()))


@dataclass(frozen=True)
class Plan:
    """How one training run goes. Fractions are of its `minutes`.

    rate: Muon's step at full size. texts: in an update. deep_from: before it one roll-out step, from then on `steps`; in every
    `deep_every`-th update only until the rates fall, for the first draft is judged most often and costs least. drop: share of the
    values that are left out, against learning the texts by heart.
    variation_from: from then on `variation` of the loss is −Σ min(p, q), the acceptance probability itself. decay_from: from
    then on the rates fall to 0.
    """

    minutes: float
    steps: int = 1
    rate: float = 0.03
    vector_rate: float = 2e-3
    texts: int = 6
    deep_from: float = 0.45
    variation: float = 0.5
    variation_from: float = 0.6
    decay_from: float = 0.35
    deep_every: int = 1
    drop: float = 0.0

    def steps_at(self, fraction: float, update: int = 0) -> int:
        turn = fraction >= self.decay_from or update % self.deep_every == 0
        return self.steps if fraction >= self.deep_from and turn else 1

    def variation_at(self, fraction: float) -> float:
        return self.variation if fraction >= self.variation_from else 0.0

    def rate_at(self, fraction: float) -> float:
        """Factor of both rates: short rise, constant, straight down to 0."""
        return min(1.0, fraction / 0.02 + 0.1, max(0.0, (1 - fraction) / (1 - self.decay_from)))


class Trainer:
    """One run over one network. `states(batch, steps)` gives a list of [B, T, d] tensors, one for each roll-out step; rows [V, d]
    are the target's for the draft vocabulary, gain [d] is that of its final norm.

    The folder keeps checkpoint.pt, from which a later call goes on, and log.jsonl, the learning curve.
    """

    def __init__(
        self,
        network: torch.nn.Module,
        states: Callable[[Batch, int], list[torch.Tensor]],
        rows: torch.Tensor,
        gain: torch.Tensor,
        folder: Path,
        *,
        plan: Plan,
        with_taps: bool,
    ):
        self.network, self.states, self.folder, self.plan, self.with_taps = network, states, Path(folder), plan, with_taps
        self.rows, self.gain = (rows, rows.T.contiguous()), gain
        trained = [weight for weight in network.parameters() if weight.requires_grad]
        self.muon = Muon([weight for weight in trained if weight.ndim >= 2], lr=plan.rate)
        self.adam = torch.optim.AdamW(
            [weight for weight in trained if weight.ndim < 2], lr=plan.vector_rate, weight_decay=0.0, betas=(0.9, 0.98)
        )
        self.spent, self.seen, self.updates = 0.0, 0, 0
        network.drop = plan.drop
        self.folder.mkdir(parents=True, exist_ok=True)
        if (path := self.folder / "checkpoint.pt").exists():
            saved = torch.load(path, weights_only=True, map_location=rows.device)
            try:
                for part, name in ((network, "network"), (self.muon, "muon"), (self.adam, "adam")):
                    part.load_state_dict(saved[name])
            except (RuntimeError, ValueError) as error:  # names or shapes differ
                raise SettingsError(
                    f"{path} is of a network with other sizes: move it away, or ask for the sizes it was trained with (--layers)."
                ) from error
            self.spent, self.seen, self.updates = saved["spent"], saved["seen"], saved["updates"]

    @property
    def fraction(self) -> float:
        """Of the plan's minutes that are spent."""
        return self.spent / (60 * self.plan.minutes)

    def save(self) -> None:
        """Everything that a later call needs to go on."""
        partial = self.folder / "checkpoint.pt.partial"
        torch.save(
            {
                "network": self.network.state_dict(),
                "muon": self.muon.state_dict(),
                "adam": self.adam.state_dict(),
                "spent": self.spent,
                "seen": self.seen,
                "updates": self.updates,
            },
            partial,
        )
        partial.replace(self.folder / "checkpoint.pt")

    def batches(self, library: Library) -> Iterator[np.ndarray]:
        """Texts of similar length together, in random order, for ever."""
        source = np.random.default_rng(self.updates)
        while True:
            order = source.permutation(library.available())
            pools = [order[i : i + 16 * self.plan.texts] for i in range(0, len(order), 16 * self.plan.texts)]
            pools = [pool[np.argsort([library.length(number) for number in pool], kind="stable")] for pool in pools]
            epoch = [pool[i : i + self.plan.texts] for pool in pools for i in range(0, len(pool), self.plan.texts)]
            for position in source.permutation(len(epoch)):
                yield epoch[position]

    @torch.no_grad()
    def target(self, batch: Batch) -> torch.Tensor:
        """What the target says where a drafter is judged: p [n, V], over the draft vocabulary, at temperature 1."""
        return ((batch.last * self.gain) @ self.rows[1]).softmax(-1)

    def step(self, batch: Batch) -> list[Verdict]:
        """One update; returns the agreement of each roll-out step before it."""
        plan, verdicts, p = self.plan, [], self.target(batch)
        outputs = self.states(batch, plan.steps_at(self.fraction, self.updates))
        weights = [0.8**number for number in range(len(outputs))]
        loss = torch.zeros((), device=self.rows[0].device)
        for output, weight in zip(outputs, weights, strict=True):
            picked = output.flatten(0, 1)[batch.where]
            verdict = judge(picked, self.rows, p, variation=plan.variation_at(self.fraction))
            verdicts.append(verdict)
            loss = loss + (picked * verdict.gradient).sum() * (weight / sum(weights) / len(picked))
        loss.backward()
        factor = plan.rate_at(self.fraction)
        for optimizer, rate in ((self.muon, plan.rate), (self.adam, plan.vector_rate)):
            optimizer.param_groups[0]["lr"] = rate * factor
            optimizer.step()
            optimizer.zero_grad()
        self.seen += len(batch.where)
        self.updates += 1
        return verdicts

    @torch.no_grad()
    def validate(self, library: Library, *, steps: int) -> list[dict[str, float]]:
        """Agreement on the held-out texts for each roll-out step, the tokens being those of the text."""
        sums, members = np.zeros((steps, 4)), library.held_out()
        self.network.eval()
        for some in (members[i : i + 8] for i in range(0, len(members), 8)):
            batch = make_batch(library, some, with_taps=self.with_taps, device=self.rows[0].device)
            p = self.target(batch)
            for number, output in enumerate(self.states(batch, steps)):
                found = judge(output.flatten(0, 1)[batch.where], self.rows, p, train=False)
                sums[number] += np.array([found.overlap, found.greedy, found.cross_entropy, 1.0]) * len(batch.where)
        self.network.train()
        return [dict(zip(("overlap", "greedy", "cross_entropy"), row[:3] / max(row[3], 1.0), strict=True)) for row in sums]

    def run(
        self, library: Library, *, every: float = 150.0, validate_steps: int | None = None, say: Callable[[str], None] = print
    ) -> None:
        """Train until the plan's minutes are spent; saves and validates about every `every` seconds of training."""
        clock, mark, recent = time.time(), self.spent, []
        validate_steps = validate_steps or self.plan.steps
        for members in self.batches(library):
            if self.fraction >= 1:
                break
            batch = make_batch(library, members, with_taps=self.with_taps, device=self.rows[0].device)
            recent.append(self.step(batch)[0].overlap)
            now = time.time()
            self.spent, clock = self.spent + now - clock, now
            if self.spent - mark > every:
                self._report(library, recent, validate_steps, say)
                mark, recent, clock = self.spent, [], time.time()
        self._report(library, recent, validate_steps, say)

    def _report(self, library: Library, recent: list[float], steps: int, say: Callable[[str], None]) -> None:
        self.save()
        figures = self.validate(library, steps=steps)
        overlap = float(np.mean(recent)) if recent else None
        record = {
            "minutes": self.spent / 60,
            "tokens_seen": self.seen,
            "updates": self.updates,
            "train_overlap": overlap,
            "held_out": figures,
        }
        with self.log.open("a") as out:
            out.write(json.dumps(record) + "\n")
        left = max(0.0, self.plan.minutes - self.spent / 60)
        say(
            f"{self.seen / 1e3:.0f} k tokens, {self.updates} updates; overlap/same argmax on held-out texts, by draft position: "
            + " ".join(f"{f['overlap']:.3f}/{f['greedy']:.3f}" for f in figures)
            + f"; about {left:.0f} min left"
        )

    @property
    def log(self) -> Path:
        return self.folder / "log.jsonl"
