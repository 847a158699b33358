"""Matrix exponentials without branches on values: fixed work, so that models can be stacked and captured.

`torch.matrix_exp` chooses its degree by looking at norms, which waits for the device and fits into no CUDA graph.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

_DEGREE = 7
# Gaps are written in base 16 with two digits, the finer one worth 1/64; a series covers what remains.
_BASE, _LEVELS = 16, 2
_FINEST = 1 / 64
LONGEST = _BASE**_LEVELS * _FINEST - _FINEST


def taylor_exponential(matrix: Float[Tensor, "*b n n"]) -> Float[Tensor, "*b n n"]:
    """exp(A) of a matrix of norm below one half, by seven terms of its series (2e-7)."""
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    result = identity.expand_as(matrix)
    for k in range(_DEGREE, 0, -1):
        result = torch.add(identity, matrix @ result, alpha=1 / k)
    return result


class Steps(NamedTuple):
    """Gaps as `Propagators` want them."""

    digits: Tensor
    """(..., levels) in 0 … 15."""
    powers: Tensor
    """(..., degree): rest, rest², … of what is below the finest digit."""


def steps(gaps: Float[Tensor, "..."]) -> Steps:
    """The digits of gaps, and the powers of what remains; longer gaps count as `LONGEST`."""
    whole = (gaps / _FINEST).clamp(0, LONGEST / _FINEST)
    count = whole.floor()
    digits = torch.stack([(count * float(_BASE) ** -k).floor() % _BASE for k in range(_LEVELS)], dim=-1)
    rest = (whole - count) * _FINEST
    return Steps(digits.long(), torch.stack([rest**k for k in range(1, _DEGREE + 1)], dim=-1))


class Propagators(NamedTuple):
    """exp(A Δ) s of one matrix for any gaps, as a few products with matrices that all gaps share.

    Every state is multiplied by all options of a digit at once, and the right one is picked: more arithmetic and far
    fewer operations than a matrix for every gap.
    """

    tables: Float[Tensor, "levels n 16n"]
    """exp(A · d · 16ᵏ/64)ᵀ side by side for the digits d."""
    series: Float[Tensor, "n 7n"]
    """(Aᵏ/k!)ᵀ side by side."""

    def advance(self, state: Float[Tensor, "b n"], digits: Tensor, powers: Tensor) -> Float[Tensor, "b n"]:
        """exp(A Δ) s with the `Steps` (b, levels), (b, degree) of Δ."""
        b, n = state.shape
        for level in range(_LEVELS):
            options = (state @ self.tables[level]).reshape(b, _BASE, n)
            state = options.gather(1, digits[:, level].view(b, 1, 1).expand(b, 1, n)).squeeze(1)
        terms = (state @ self.series).reshape(b, _DEGREE, n)
        return state + (powers.unsqueeze(1) @ terms).squeeze(1)


def propagators(matrix: Float[Tensor, "n n"]) -> Propagators:
    """Tables by repeated multiplication, once for all gaps of a batch."""
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    step = taylor_exponential(matrix * _FINEST)
    tables = []
    for _ in range(_LEVELS):
        powers = [identity.expand_as(step), step]
        while len(powers) < _BASE:
            # E² … E¹⁵ from products of earlier ones, each at the smallest depth.
            half = len(powers) // 2
            powers.append(powers[half] @ powers[len(powers) - half])
        tables.append(torch.cat([power.mT for power in powers], dim=1))
        step = powers[_BASE // 2] @ powers[_BASE // 2]
    series = [matrix]
    for k in range(2, _DEGREE + 1):
        series.append(series[-1] @ matrix / k)
    return Propagators(torch.stack(tables), torch.cat([term.mT for term in series], dim=1))


def transition(
    matrix: Float[Tensor, "*b n n"], noise: Float[Tensor, " n"], gap: Float[Tensor, "*b"], squarings: int
) -> tuple[Float[Tensor, "*b n n"], Float[Tensor, "*b n n"]]:
    """F = exp(A Δ) and Q = ∫₀^Δ exp(A s) diag(noise) exp(A s)ᵀ ds, the moments of dz = A z dt + dβ after a gap.

    Both come from the series of one block matrix (Van Loan) at Δ/2ˢ and are doubled s times: F ← F F, Q ← Q + F Q Fᵀ,
    so that exp(−A Δ), which the block exponential holds and which explodes, is formed for the short step only.
    """
    n = matrix.shape[-1]
    drive = torch.diag(noise).expand_as(matrix)
    block = torch.cat([torch.cat([matrix, drive], dim=-1), torch.cat([drive * 0, -matrix.mT], dim=-1)], dim=-2)
    short = taylor_exponential(block * (gap[..., None, None] * 0.5**squarings))
    transfer = short[..., :n, :n]
    covariance = short[..., :n, n:] @ transfer.mT
    for _ in range(squarings):
        covariance = covariance + transfer @ covariance @ transfer.mT
        transfer = transfer @ transfer
    return transfer, covariance
