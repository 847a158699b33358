"""Root-mean-square normalisation of a projector's output (paper §3, "Projector normalization")."""

import torch
from jaxtyping import Float, Inexact
from torch import Tensor


def rms_norm(x: Inexact[Tensor, "*b p"], weight: Float[Tensor, "p"], eps: float = 1e-6) -> Inexact[Tensor, "*b p"]:
    """x / √(mean_p |x_p|² + eps) · w_p, for real or complex x."""
    square = x.real.square() + x.imag.square() if x.is_complex() else x.square()
    return x * torch.rsqrt(square.mean(-1, keepdim=True) + eps) * weight
