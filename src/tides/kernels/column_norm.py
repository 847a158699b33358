"""1/√(mean_p |B_k[p, h]|² + eps) for every column h: the complex RMSNorm of a projected B_k or C_k.

The mean square is ‖R_h z̃‖² with 𝓑_h = √P Q_h R_h, a QR factorisation in float64. The quadratic form z̃ᵀ(R_hᵀ R_h)z̃
would square the condition number; this one keeps float32 accurate where B_k is small because its parts cancel.
Gradients, with w_k = ds_k R_h z̃_k and ds_k that of the mean square: dz̃ = 2 Σ_h R_hᵀ w, d𝓑_h = (2/√P) Q_h Σ_k w z̃ᵀ.
"""

import math

import torch
from torch import Tensor


class ColumnRoots:
    """The roots R_h of one mix's factors (m, p, h, 2, i), ready to be applied to codes (m, n, i)."""

    root: Tensor
    """(m, i, k·h): one product with the codes gives R_h z̃ for all columns, with h innermost."""
    rank: int
    """k, the rows of R_h."""

    def __init__(self, factors: Tensor) -> None:
        m, p, h, _, i = factors.shape
        self.shape, self.dtype = (m, p, h, i), factors.dtype
        columns = factors.double().permute(0, 2, 1, 3, 4).reshape(m, h, 2 * p, i) / math.sqrt(p)
        self.basis, root = torch.linalg.qr(columns)  # (m, h, 2p, k), (m, h, k, i)
        self.rank = root.shape[-2]
        self.root = root.permute(0, 3, 2, 1).reshape(m, i, self.rank * h).to(factors.dtype)

    def d_factors(self, products: Tensor) -> Tensor:
        """Gradient of the factors from Σ_k z̃ w (m, i, k·h) in float64."""
        _, p, h, _ = self.shape
        ordered = products.unflatten(-1, (self.rank, h)).permute(0, 3, 2, 1)  # (m, h, k, i)
        spread = (self.basis @ ordered).unflatten(2, (p, 2)) * (2 / math.sqrt(p))  # (m, h, p, 2, i)
        return spread.permute(0, 2, 1, 3, 4).to(self.dtype)
