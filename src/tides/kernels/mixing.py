"""How a low-rank mix reaches the kernels: tensors with a leading problem axis m, and the matrices K they multiply with.

`factors` (m, p, h, 2, i) is 𝓑 = [W_up, B_0], `code` (m, n, i) is z̃ for every step, `norm` (m, p) the norm's weight.
"""

import torch
from torch import Tensor

from tides.functional.mixes import LowRankMix, mix_code, mix_factors


def mix_arguments(x: Tensor, u: Tensor, mix: LowRankMix) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """(x, code, factors, norm) as one problem whose steps are all rows; x has the leading axes of u."""
    rows = x.reshape(1, -1, *x.shape[u.ndim - 1 :])
    code = mix_code(u, mix)
    norm = None if mix.norm is None else mix.norm[None]
    return rows, code.reshape(1, -1, code.shape[-1]), mix_factors(mix)[None], norm


def _weighted(factors: Tensor, norm: Tensor | None) -> Tensor:
    return factors if norm is None else factors * norm[:, :, None, None, None]


def drive_kernel(factors: Tensor, norm: Tensor | None) -> Tensor:
    """K (m, i·h, p·2) of the drive."""
    m, p, h, _, i = factors.shape
    return _weighted(factors, norm).permute(0, 4, 2, 1, 3).reshape(m, i * h, p * 2)


def readout_kernel(factors: Tensor, norm: Tensor | None) -> Tensor:
    """K (m, i·p·2, h) of the readout, with the minus sign of Re(C s) = C_re s_re − C_im s_im."""
    m, p, h, _, i = factors.shape
    kernel = _weighted(factors, norm).permute(0, 4, 1, 3, 2).clone(memory_format=torch.contiguous_format)
    kernel[:, :, :, 1].neg_()
    return kernel.view(m, i * p * 2, h)


def d_drive_kernel(d_kernel: Tensor, factors: Tensor) -> Tensor:
    """Gradient of the weighted factors from that of the drive's K."""
    m, p, h, _, i = factors.shape
    return d_kernel.view(m, i, h, p, 2).permute(0, 3, 2, 4, 1)


def d_readout_kernel(d_kernel: Tensor, factors: Tensor) -> Tensor:
    """The same for the readout's K, whose memory it changes."""
    m, p, h, _, i = factors.shape
    signed = d_kernel.view(m, i, p, 2, h)
    signed[:, :, :, 1].neg_()
    return signed.permute(0, 2, 4, 3, 1)


def unweighted(
    d_weighted: Tensor, factors: Tensor, norm: Tensor | None, d_norms: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Gradients of factors and norm from that of their product and, `d_norms`, from the column norm."""
    if norm is None or d_norms is None:
        return d_weighted.contiguous(), factors.new_zeros(factors.shape[0], 0)
    d_factors = d_weighted * norm[:, :, None, None, None] + d_norms
    return d_factors.contiguous(), (d_weighted * factors).sum((2, 3, 4))
