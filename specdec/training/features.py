"""What the target thinks about its own texts: hidden states of a few layers, the last of which makes its distribution as well.

One pass of the target over the texts is the dearest part of training a drafter, so it is done once and kept on disk as memory
maps; training may start on what is there. The constant beginning of every text (the system prompt) is computed and stored once.

Files in the folder of one text file (N positions behind the common beginning, F taps, d width):
    features.f16 [N, F, d]  hidden states behind the tapped layers, each row scaled to root mean square 1
    meta.pt                 features of the common beginning, how many texts are done (in the order of `order`)
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from specdec.head import rotate, unit
from specdec.training.corpus import Corpus

TAPS = (3, 14, 24, 30)
"""Layers of the embedded target (counted from 1) whose output the head reads; the last one is the input of the final norm."""


class TargetPass:
    """The target's layers over a batch of texts that share a beginning; a plain Llama forward without a framework around it."""

    def __init__(self, model: Any, beginning: list[int], taps: tuple[int, ...] = TAPS):
        self.model, self.taps, config = model, taps, model.config
        self.heads, self.groups = config.num_attention_heads, config.num_key_value_heads
        self.size = config.hidden_size // self.heads
        theta = config.rope_parameters["rope_theta"]
        self.inverse = 1.0 / (theta ** (torch.arange(0, self.size, 2).float() / self.size))
        # Stored transposed and joined: x @ Wᵀ with Wᵀ contiguous is up to 1.6 times as fast as F.linear for such batches.
        self.layers = [self._transposed(layer) for layer in model.model.layers]
        self.past: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.offset = 0
        self.beginning_features, self.past = self._run(torch.tensor([beginning], device=model.device), keep=True)
        self.offset = len(beginning)

    @staticmethod
    def _transposed(layer) -> tuple[torch.Tensor, ...]:
        attention, mlp = layer.self_attn, layer.mlp
        joined = torch.cat([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight])
        return tuple(
            w.detach().T.contiguous()
            for w in (joined, attention.o_proj.weight, mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight)
        )

    @torch.inference_mode()
    def _run(self, ids: torch.Tensor, *, keep: bool) -> tuple[torch.Tensor, list]:
        rows, length = ids.shape
        angle = torch.arange(self.offset, self.offset + length, device=ids.device).float()[:, None] * self.inverse.to(ids.device)
        angles = torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)
        mask = torch.ones(length, self.offset + length, dtype=torch.bool, device=ids.device).tril(self.offset)

        hidden, kept, taps = self.model.model.embed_tokens(ids), [], []
        for index, (layer, (joined, mix, gate, up, down)) in enumerate(zip(self.model.model.layers, self.layers, strict=True)):
            all_heads = (layer.input_layernorm(hidden) @ joined).view(rows, length, -1, self.size).transpose(1, 2)
            query, key, value = all_heads.split([self.heads, self.groups, self.groups], 1)
            query, key = rotate(query, angles), rotate(key, angles)
            if keep:
                kept.append((key, value))
            if self.past:
                key = torch.cat([self.past[index][0].expand(rows, -1, -1, -1), key], 2)
                value = torch.cat([self.past[index][1].expand(rows, -1, -1, -1), value], 2)
            mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)
            hidden = hidden + mixed.transpose(1, 2).reshape(rows, length, -1) @ mix
            normed = layer.post_attention_layernorm(hidden)
            hidden = hidden + F.silu(normed @ gate, inplace=True).mul_(normed @ up) @ down
            if index + 1 in self.taps:
                taps.append(unit(hidden))
        return torch.stack(taps, 2), kept

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        """ids [B, T] behind the common beginning -> features [B, T, F, d], unit rows."""
        return self._run(ids, keep=False)[0]


class FeatureStore:
    """The memory maps of one text file; opens what is there, or makes it. `order`: the texts in random order, as they are
    worked off.
    """

    def __init__(self, folder: Path, corpus: Corpus, *, width: int, taps: tuple[int, ...] = TAPS):
        self.folder, self.corpus, self.taps, self.width = Path(folder), corpus, taps, width
        self.folder.mkdir(parents=True, exist_ok=True)
        self.common = corpus.common_beginning()
        self.offset = np.concatenate([[0], np.cumsum(np.diff(corpus.start) - self.common)])
        count = int(self.offset[-1])
        self.features = self._map("features.f16", np.float16, (count, len(taps), width))
        meta = self.folder / "meta.pt"
        order = torch.from_numpy(np.random.default_rng(0).permutation(len(corpus)))
        self.meta: dict[str, Any] = {"done": 0, "beginning": None, "order": order}
        if meta.exists() and len((found := torch.load(meta, weights_only=True))["order"]) == len(corpus):
            self.meta = found  # else it is of texts that were never written

    @property
    def order(self) -> np.ndarray:
        return self.meta["order"].numpy()

    @property
    def done(self) -> int:
        """Texts whose features are there."""
        return int(self.meta["done"])

    def _map(self, name: str, kind: type, shape: tuple[int, ...]) -> np.memmap:
        path = self.folder / name
        fits = path.exists() and path.stat().st_size == int(np.prod(shape)) * np.dtype(kind).itemsize
        return np.memmap(path, dtype=kind, mode="r+" if fits else "w+", shape=shape)

    def save(self) -> None:
        partial = self.folder / "meta.pt.partial"
        torch.save(self.meta, partial)
        partial.replace(self.folder / "meta.pt")


def taps_for(layers: int) -> tuple[int, ...]:
    """A low, two middle and the last layer of a target with so many layers: (3, 14, 24, 30) of 30."""
    return tuple(sorted({max(1, layers // 10), max(1, round(layers * 0.47)), max(1, round(layers * 0.8)), layers}))


def token_counts(corpora: list[Corpus], size: int) -> np.ndarray:
    """How often each token [size] stands in the answers."""
    counts = np.zeros(size)
    for corpus in corpora:
        for index in range(len(corpus)):
            np.add.at(counts, corpus.text(index)[corpus.prompt[index] :], 1.0)
    return counts


def choose_vocabulary(counts: np.ndarray, mean_p: np.ndarray, *, size: int, always: list[int]) -> np.ndarray:
    """The tokens worth drafting, ascending: by counts in all texts and by the target's mean probability in a part of them.

    Counts of half a million tokens are noise below rank 8,000; the mean of the full distributions is smooth there.
    """
    score = counts / max(1.0, counts.sum()) + mean_p / max(1e-9, mean_p.sum())
    score[always] = np.inf
    return np.sort(np.argsort(-score, kind="stable")[:size])


@torch.inference_mode()
def mean_distribution(model: Any, corpus: Corpus, *, texts: int = 160) -> np.ndarray:
    """Mean of the target's next-token distributions [V] over the answers of a random part of the texts."""
    run = TargetPass(model, corpus.text(0)[: corpus.common_beginning()].tolist())
    total = torch.zeros(len(model.lm_head.weight), dtype=torch.float64)
    chosen = np.random.default_rng(1).permutation(len(corpus))[:texts]
    for index in chosen:
        states = run(torch.from_numpy(corpus.text(index)[run.offset :])[None].to(model.device))[
            0, corpus.prompt[index] - run.offset - 1 :, -1
        ]
        total += F.linear(states * model.model.norm.weight, model.lm_head.weight).softmax(-1).sum(0).double().cpu()
    return (total / total.sum()).numpy()


@torch.inference_mode()
def extract(
    model: Any,
    store: FeatureStore,
    *,
    group: int = 32,
    batch: int = 4,
    enough: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Fill the store, group by group; stops between groups when `enough()`, goes on where it stopped."""
    corpus, common = store.corpus, store.common
    if store.done >= len(corpus):
        return
    run = TargetPass(model, corpus.text(0)[:common].tolist(), store.taps)
    store.meta["beginning"] = run.beginning_features[0].half().cpu()
    while store.done < len(corpus) and not enough():
        members = store.order[store.done : store.done + group]
        members = members[np.argsort([corpus.start[i + 1] - corpus.start[i] for i in members])]
        for some in (members[i : i + batch] for i in range(0, len(members), batch)):
            texts = [corpus.text(i)[common:] for i in some]
            ids = torch.zeros(len(some), max(map(len, texts)), dtype=torch.long)
            for row, text in enumerate(texts):
                ids[row, : len(text)] = torch.from_numpy(text)
            features = run(ids.to(model.device))
            for row, (index, text) in enumerate(zip(some, texts, strict=True)):
                at = int(store.offset[index])
                store.features[at : at + len(text)] = features[row, : len(text)].half().cpu().numpy()
        store.meta["done"] = store.done + len(members)
        store.save()
        progress(store.done, len(corpus))


def take_over(store: FeatureStore, kept: list[np.ndarray], beginning: torch.Tensor) -> None:
    """Fill an empty store with what was kept while its texts were sampled: features of whole texts; beginning [P, F, d] are those
    of what all texts share.
    """
    store.meta["beginning"] = beginning[: store.common].half().cpu()
    for index, features in enumerate(kept):
        store.features[int(store.offset[index]) : int(store.offset[index + 1])] = features[store.common :]
    store.meta["done"] = len(kept)
    store.save()


class Library:
    """All feature stores together; a text is known by one number, store · 10⁶ + index.

    The first `held_out` texts of the first store, in its random order, are never trained on: they draw the learning curve. The
    figures of the card come from other prompts, see `evaluate`.
    """

    def __init__(self, stores: list[FeatureStore], *, held_out: int = 48):
        if any(store.common != stores[0].common for store in stores):
            raise ValueError("the text files begin differently: their prompts were made with different templates")
        self.stores, self._held = stores, min(held_out, stores[0].done // 4)

    def available(self) -> np.ndarray:
        """Numbers of the texts that can be trained on."""
        parts = [
            store.order[self._held if number == 0 else 0 : store.done] + number * 1_000_000
            for number, store in enumerate(self.stores)
        ]
        return np.concatenate(parts)

    def held_out(self) -> np.ndarray:
        return self.stores[0].order[: self._held].copy()

    def find(self, number: int) -> tuple[FeatureStore, int]:
        """The store and the index in it of a text."""
        return self.stores[number // 1_000_000], int(number % 1_000_000)

    def length(self, number: int) -> int:
        store, index = self.find(number)
        return int(store.corpus.start[index + 1] - store.corpus.start[index])
