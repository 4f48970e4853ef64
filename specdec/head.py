"""The attached head: one decoder layer that drafts from the target's own hidden states (EAGLE family).

A *slot* s reads the token at s and a feature of position s − 1, and answers with a feature whose projection on the draft
vocabulary is q for position s + 1. For committed positions the feature is fused from a few of the target's layers (EAGLE-3, Li
et al. 2025, arXiv 2503.01840); behind them the head feeds on its own answers, and training rolls out the same way. The rows of
the reduced output vocabulary (FR-Spec, arXiv 2502.14856) and the token embedding are the target's own and are not stored with
the head.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class HeadShape:
    """Sizes of a head; `taps` are the target's layers (from 1) that it reads, the last one before the target's final norm."""

    width: int = 576
    heads: int = 9
    groups: int = 3
    inner: int = 1536
    taps: tuple[int, ...] = (3, 14, 24, 30)
    theta: float = 100_000.0


def unit(hidden: torch.Tensor) -> torch.Tensor:
    """Rows [..., d] scaled to root mean square 1."""
    return hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + 1e-6)


def rotary_angles(positions: torch.Tensor, *, size: int, theta: float) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin [T, size] of the rotary embedding at positions [T]."""
    inverse = 1.0 / (theta ** (torch.arange(0, size, 2, device=positions.device).float() / size))
    angle = positions.float()[:, None] * inverse
    return torch.cat([angle.cos()] * 2, -1), torch.cat([angle.sin()] * 2, -1)


def rotate(x: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Rotary embedding of x [..., size]; angles: cos and sin, of a shape that goes with it."""
    half = x.shape[-1] // 2
    return x * angles[0] + torch.cat([-x[..., half:], x[..., :half]], -1) * angles[1]


class AttachedHead(nn.Module):
    """Fuse, join with the token, one decoder layer. All inputs and outputs are features; the draft vocabulary sits outside."""

    def __init__(self, shape: HeadShape):
        super().__init__()
        self.shape = shape
        width, size = shape.width, shape.width // shape.heads
        self.size = size
        self.drop = 0.0  # share of the values behind attention and inside the layer that training leaves out at random
        self.fuse = nn.Linear(len(shape.taps) * width, width, bias=False)
        self.join_feature = nn.Linear(width, width, bias=False)
        self.join_token = nn.Linear(width, width, bias=False)
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * shape.groups * size, bias=False)
        self.mix = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, shape.inner, bias=False)
        self.up = nn.Linear(width, shape.inner, bias=False)
        self.down = nn.Linear(shape.inner, width, bias=False)
        self.feature_gain = nn.Parameter(torch.ones(width))
        self.token_gain = nn.Parameter(torch.ones(width))
        self.attention_gain = nn.Parameter(torch.ones(width))
        self.inner_gain = nn.Parameter(torch.ones(width))
        self.final_gain = nn.Parameter(torch.ones(width))

    def fused(self, taps: torch.Tensor) -> torch.Tensor:
        """taps [..., F, d], unit rows -> feature [..., d]."""
        return self.fuse(taps.flatten(-2))

    def joined(self, feature: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
        """feature [..., d] of the position before, token [..., d] embedding -> residual stream [..., d]."""
        return self.join_feature(unit(feature) * self.feature_gain) + self.join_token(unit(token) * self.token_gain)

    def angles(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin [T, head size] of the rotary embedding."""
        return rotary_angles(positions, size=self.size, theta=self.shape.theta)

    def project(self, stream: torch.Tensor, angles) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """stream [B, T, d] -> query [B, heads, T, size], key and value [B, groups, T, size]."""
        rows, length, _ = stream.shape
        normed = unit(stream) * self.attention_gain
        query = self.query(normed).view(rows, length, self.shape.heads, self.size).transpose(1, 2)
        key, value = self.key_value(normed).view(rows, length, 2, self.shape.groups, self.size).permute(2, 0, 3, 1, 4)
        return rotate(query, angles), rotate(key, angles), value

    def finish(self, stream: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
        """stream and attended values [B, T, d] -> feature [B, T, d]."""
        stream = stream + self._dropped(self.mix(mixed))
        normed = unit(stream) * self.inner_gain
        return stream + self.down(self._dropped(F.silu(self.gate(normed)) * self.up(normed)))

    def _dropped(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, self.drop, self.training) if self.drop else x

    def state(self, feature: torch.Tensor) -> torch.Tensor:
        """feature [..., d] -> what is multiplied with the rows of the draft vocabulary."""
        return unit(feature) * self.final_gain

    def roll_out(
        self, taps: torch.Tensor, tokens: torch.Tensor, *, common_taps: torch.Tensor, common_tokens: torch.Tensor, steps: int
    ) -> list[torch.Tensor]:
        """Training: all texts, all slots, `steps` drafts deep.

        common_taps [P, F, d] and common_tokens [P, d] belong to the beginning that all texts share; tokens [B, T, d] are the
        embeddings of the positions behind it, taps [B, T, F, d] their features. Step k at slot s reads the own feature of step
        k − 1 at s − 1 and attends to true slots up to s − k + 1 and to its own roll-out behind them. Returns `steps` features
        [B, T, d] for slots P…P+T−1; at step k the first k − 1 of them are void.
        """
        rows, length, shared = tokens.shape[0], tokens.shape[1], len(common_tokens)
        angles = self.angles(torch.arange(shared + length, device=tokens.device))
        here = (angles[0][shared:], angles[1][shared:])
        begun = self.joined(self.fused(common_taps[:-1]), common_tokens[1:])[None]
        _, key_begun, value_begun = self.project(begun, (angles[0][1:shared], angles[1][1:shared]))
        feature = self.fused(torch.cat([common_taps[-1:].expand(rows, 1, -1, -1), taps[:, :-1]], 1))
        keys, values, masks, answers = [key_begun.expand(rows, -1, -1, -1)], [value_begun.expand(rows, -1, -1, -1)], [], []
        token_part = self.join_token(unit(tokens) * self.token_gain)
        everything = torch.ones(length, length, dtype=torch.bool, device=tokens.device)
        for step in range(1, steps + 1):
            stream = self.join_feature(unit(feature) * self.feature_gain) + token_part
            query, key, value = self.project(stream, here)
            keys.append(key)
            values.append(value)
            masks = [torch.ones(length, shared - 1, dtype=torch.bool, device=tokens.device), everything.tril(1 - step)]
            masks += [
                torch.eye(length, dtype=torch.bool, device=tokens.device).roll(own - step, 1).tril(0)
                for own in range(2, step + 1)
            ]
            mixed = F.scaled_dot_product_attention(
                query, torch.cat(keys, 2), torch.cat(values, 2), attn_mask=torch.cat(masks, 1), enable_gqa=True
            )
            answer = self.finish(stream, mixed.transpose(1, 2).flatten(2))
            answers.append(answer)
            feature = torch.cat([answer[:, :1], answer[:, :-1]], 1)
        return answers
