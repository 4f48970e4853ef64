"""Muon: momentum whose update of a matrix is made orthogonal, in float32.

Source: Jordan et al. 2024, "Muon: an optimizer for hidden layers"; the coefficients are those of Polar Express (Amsel et al.
2025, arXiv 2505.16932). All factors are polynomials of one Gram matrix and commute, so the iteration runs on that small square
matrix and touches the full one only twice; for our 576 × 1536 matrices this is a third cheaper.
"""

from __future__ import annotations

import torch

COEFFICIENTS = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
)


def orthogonalise(matrix: torch.Tensor) -> torch.Tensor:
    """The nearest matrix with singular values close to 1 (roughly 0.4–1.6, which is all that an update needs); [m, n] -> [m,
    n], float32.
    """
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    wide = wide / (wide.norm() * 1.01 + 1e-7)
    gram = wide @ wide.T
    total: torch.Tensor | None = None
    for step, (a, b, c) in enumerate(COEFFICIENTS):
        factor = torch.addmm(gram, gram, gram, beta=b, alpha=c)
        factor.diagonal().add_(a)
        total = factor if total is None else factor @ total
        if step + 1 < len(COEFFICIENTS):
            gram = factor @ (factor @ gram)
            gram = (gram + gram.T) * 0.5
    result = total @ wide
    return result if matrix.shape[0] <= matrix.shape[1] else result.T


class Muon(torch.optim.Optimizer):
    """Matrices (two or more dimensions) only; give vectors to AdamW. `lr` is the step in units of the spectral norm."""

    def __init__(self, params, lr: float = 0.03, momentum: float = 0.95):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                buffer = self.state[weight].setdefault("momentum", torch.zeros_like(weight))
                buffer.lerp_(weight.grad, 1 - group["momentum"])
                update = orthogonalise(torch.lerp(weight.grad, buffer, group["momentum"]))
                weight.add_(update, alpha=-group["lr"] * max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5)
