"""The input mix v_k = B_k u_k and the output mix y_k = Re(C_k s_k), without ever building B_k or C_k.

A low-rank head gives B_k[p, h] = Σ_i 𝓑[p, h, i] z̃_i with z̃ = [W_down u_k + c; 1] and 𝓑 = [W_up, B_0], so

    v_p = Σ_i z̃_i Σ_h 𝓑[p, h, i] u_h          y_h = Re Σ_i z̃_i Σ_p 𝓒[h, p, i] s_p

cost O(r P H) per step. The complex RMSNorm over the state axis needs only the mean square of each column h,
a quadratic form in z̃: mean_p |B_k[p, h]|² = z̃ᵀ G_h z̃ with G_h = 𝓑_hᵀ 𝓑_h / P. Complex numbers in parameters are
pairs of reals on an axis of size 2, as in the paper's heads (reshape to (P, H, 2)).

Numerics: the quadratic form squares the condition number, so it is evaluated in float64 whatever the inputs are.
"""

from typing import NamedTuple

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from tides.functional.norm import rms_norm


class StaticMix(NamedTuple):
    """B_k = B_0 (p, h, 2), or C_k = C_0 stored with the state axis first as well."""

    base: Float[Tensor, "p h 2"]


class LowRankMix(NamedTuple):
    """B_k = W_up (W_down u_k + c) + B_0; without `down` the head is full rank: B_k = W_up u_k + B_0."""

    base: Float[Tensor, "p h 2"]
    up: Float[Tensor, "p h 2 r"]
    down: Float[Tensor, "r h"] | None
    down_bias: Float[Tensor, "r"] | None
    norm: Float[Tensor, "p"] | None


class DiagonalMix(NamedTuple):
    """B_k = diag(b_k) B_0 (C_k = C_0 diag(c_k)) with b_k = W u_k + bias ∈ C^P, normalised over p if `norm` is given."""

    base: Float[Tensor, "p h 2"]
    weight: Float[Tensor, "p 2 h"]
    bias: Float[Tensor, "p 2"]
    norm: Float[Tensor, "p"] | None


Mix = StaticMix | LowRankMix | DiagonalMix


def mix_in(u: Float[Tensor, "*b l h"], mix: Mix, eps: float = 1e-6) -> Complex[Tensor, "*b l p"]:
    """v_k = B_k u_k, the drive of every mode."""
    if isinstance(mix, LowRankMix):
        code, factors = mix_code(u, mix), mix_factors(mix)
        if mix.norm is not None:
            u = u * inverse_rms(code, factors, eps).to(u.dtype)
        p, h, _, i = factors.shape
        partial = u @ factors.permute(1, 0, 2, 3).reshape(h, p * 2 * i)  # (*b, l, p·2·i)
        drive = torch.einsum("...pci,...i->...pc", partial.unflatten(-1, (p, 2, i)), code)
        drive = torch.view_as_complex(drive.contiguous())
        return drive if mix.norm is None else drive * mix.norm
    drive = torch.view_as_complex(torch.einsum("...h,phc->...pc", u, mix.base).contiguous())
    return drive * _modulation(u, mix, eps) if isinstance(mix, DiagonalMix) else drive


def mix_out(
    s: Complex[Tensor, "*b l p"], u: Float[Tensor, "*b l h"], mix: Mix, eps: float = 1e-6
) -> Float[Tensor, "*b l h"]:
    """Re(C_k s_k), where C_k is projected from u_k."""
    if isinstance(mix, LowRankMix):
        code, factors = mix_code(u, mix), mix_factors(mix)
        if mix.norm is not None:
            s = s * mix.norm
        p, h, _, i = factors.shape
        # Re(C s) = C_re s_re − C_im s_im: conjugating s turns it into one real product over (p, 2).
        pairs = torch.view_as_real(s.conj().resolve_conj()).flatten(-2)  # (*b, l, p·2)
        partial = pairs @ factors.permute(0, 2, 1, 3).reshape(p * 2, h * i)
        y = torch.einsum("...hi,...i->...h", partial.unflatten(-1, (h, i)), code)
        return y if mix.norm is None else y * inverse_rms(code, factors, eps).to(y.dtype)
    if isinstance(mix, DiagonalMix):
        s = s * _modulation(u, mix, eps)
    p, h, _ = mix.base.shape
    pairs = torch.view_as_real(s.conj().resolve_conj()).flatten(-2)
    return pairs @ mix.base.permute(0, 2, 1).reshape(p * 2, h)


def mix_code(u: Tensor, mix: LowRankMix) -> Tensor:
    """z̃ = [W_down u + c; 1], or [u; 1] for a full-rank head."""
    code = u
    if mix.down is not None:
        code = u @ mix.down.mT if mix.down_bias is None else u @ mix.down.mT + mix.down_bias
    return torch.cat([code, torch.ones_like(code[..., :1])], dim=-1)


def mix_factors(mix: LowRankMix) -> Tensor:
    """𝓑 = [W_up, B_0] (p, h, 2, r+1)."""
    return torch.cat([mix.up, mix.base.unsqueeze(-1)], dim=-1)


def inverse_rms(code: Tensor, factors: Tensor, eps: float) -> Tensor:
    """1/√(mean_p |B_k[p, h]|² + eps) for every column h, in float64."""
    code, factors = code.double(), factors.double()
    gram = torch.einsum("phci,phcj->ihj", factors, factors) / factors.shape[0]
    i, h, j = gram.shape
    partial = (code @ gram.reshape(i, h * j)).unflatten(-1, (h, j))
    return torch.rsqrt(torch.einsum("...hj,...j->...h", partial, code) + eps)


def _modulation(u: Tensor, mix: DiagonalMix, eps: float) -> Tensor:
    modulation = torch.einsum("...h,pch->...pc", u, mix.weight) + mix.bias
    modulation = torch.view_as_complex(modulation.contiguous())
    return modulation if mix.norm is None else rms_norm(modulation, mix.norm, eps)
