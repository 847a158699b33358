"""1/√(mean_p |B_k[p, h]|² + eps) for every column h: the complex RMSNorm of a projected B_k or C_k.

The mean square is ‖R_h z̃‖² with 𝓑_h = √P Q_h R_h, a QR factorisation in float64. The quadratic form z̃ᵀ(R_hᵀ R_h)z̃
would square the condition number; this one keeps float32 accurate where B_k is small because its parts cancel.
Gradients, with w_k = ds_k R_h z̃_k and ds_k that of the mean square: dz̃ = 2 Σ_h R_hᵀ w, d𝓑_h = (2/√P) Q_h Σ_k w z̃ᵀ.
"""

import math

import torch
from torch import Tensor


class ColumnRoots:
    """The factors of one mix, ready to be applied to blocks of codes (m, n, i)."""

    def __init__(self, factors: Tensor) -> None:
        m, p, h, _, i = factors.shape
        self.shape, self.dtype = (m, p, h, i), factors.dtype
        columns = factors.double().permute(0, 2, 1, 3, 4).reshape(m, h, 2 * p, i) / math.sqrt(p)
        self.basis, root = torch.linalg.qr(columns)  # (m, h, 2p, k), (m, h, k, i)
        self.rank = root.shape[-2]
        # (m, i, k·h): one product with the codes gives R_h z̃ for all columns, with h innermost.
        self.root = root.permute(0, 3, 2, 1).reshape(m, i, self.rank * h).to(factors.dtype)
        self._collected: Tensor | None = None

    def pressed(self, code: Tensor) -> Tensor:
        """R_h z̃ (m, n, k, h)."""
        return (code @ self.root).unflatten(-1, (self.rank, self.shape[2]))

    @staticmethod
    def inverse_rms(pressed: Tensor, eps: float) -> Tensor:
        """(m, n, h)."""
        return torch.linalg.vecdot(pressed, pressed, dim=-2).add_(eps).rsqrt_()

    def backward(self, d_square: Tensor, pressed: Tensor, code: Tensor) -> Tensor:
        """Gradient of the code, given that of the mean square; `pressed` is overwritten."""
        weighted = pressed.mul_(d_square.unsqueeze(-2)).flatten(-2)
        change = (code.mT @ weighted).double()
        self._collected = change if self._collected is None else self._collected + change
        return 2 * (weighted @ self.root.mT)

    def d_factors(self) -> Tensor:
        """What `backward` collected, as the gradient of the factors (m, p, h, 2, i)."""
        m, p, h, i = self.shape
        if self._collected is None:
            return torch.zeros(m, p, h, 2, i, dtype=self.dtype, device=self.root.device)
        product = self._collected.view(m, i, self.rank, h).permute(0, 3, 2, 1)  # (m, h, k, i)
        spread = (self.basis @ product).unflatten(2, (p, 2)) * (2 / math.sqrt(p))  # (m, h, p, 2, i)
        return spread.permute(0, 2, 1, 3, 4).to(self.dtype)
