"""Matrix exponentials without branches on values: fixed work, so that models can be stacked and captured.

`torch.matrix_exp` chooses its degree by looking at norms, which waits for the device and fits into no CUDA graph.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

_DEGREE = 7
_ACTION_DEGREE = 4
_LEVELS = 5
# Gaps are written in base 4 with the finest digit worth 1/256.
_FINEST = 4.0 ** (1 - _LEVELS)
LONGEST = 4.0 - _FINEST


def taylor_exponential(matrix: Float[Tensor, "*b n n"]) -> Float[Tensor, "*b n n"]:
    """exp(A) of a matrix of norm below one half, by seven terms of its series (2e-7)."""
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    result = identity.expand_as(matrix)
    for k in range(_DEGREE, 0, -1):
        result = torch.add(identity, matrix @ result, alpha=1 / k)
    return result


class Propagators(NamedTuple):
    """exp(A Δ) of one matrix for any gaps: table[k, d] = exp(A · d · 4ᵏ/256) for the digits d = 0 … 3."""

    matrix: Float[Tensor, "n n"]
    table: Float[Tensor, "levels 4 n n"]

    def digits(self, gaps: Float[Tensor, "..."]) -> tuple[Tensor, Tensor]:
        """Digits (..., levels) of the gaps and what remains below the finest; longer gaps count as `LONGEST`."""
        whole = (gaps / _FINEST).clamp(0, LONGEST / _FINEST)
        count = whole.floor()
        digits = torch.stack([(count * 0.25**k).floor() % 4 for k in range(_LEVELS)], dim=-1)
        return digits.long(), (whole - count) * _FINEST

    def advance(self, state: Float[Tensor, "b n"], digits: Tensor, rest: Tensor) -> Float[Tensor, "b n"]:
        """exp(A Δ) s with Δ given by `digits` (b, levels) and `rest` (b,)."""
        n = state.shape[-1]
        for level in range(_LEVELS):
            options = torch.einsum("bj,dij->bdi", state, self.table[level])
            chosen = digits[:, level].view(-1, 1, 1).expand(-1, 1, n)
            state = options.gather(1, chosen).squeeze(1)
        term = state
        for k in range(1, _ACTION_DEGREE + 1):
            term = term @ self.matrix.mT * (rest / k).unsqueeze(-1)
            state = state + term
        return state


def propagators(matrix: Float[Tensor, "n n"]) -> Propagators:
    """The table by repeated squaring, once for all gaps of a batch."""
    step = taylor_exponential(matrix * _FINEST)
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    levels = []
    for _ in range(_LEVELS):
        double = step @ step
        levels.append(torch.stack([identity.expand_as(step), step, double, double @ step]))
        step = double @ double
    return Propagators(matrix, torch.stack(levels))


def transition(
    matrix: Float[Tensor, "*b n n"], noise: Float[Tensor, "*b n"], gap: Float[Tensor, "*b"], squarings: int
) -> tuple[Float[Tensor, "*b n n"], Float[Tensor, "*b n n"]]:
    """F = exp(A Δ) and Q = ∫₀^Δ exp(A s) diag(noise) exp(A s)ᵀ ds, the moments of dz = A z dt + dβ after a gap.

    Both start from their series at Δ/2ˢ and are doubled s times: F ← F F, Q ← Q + F Q Fᵀ. Unlike the block
    exponential of Van Loan this never forms exp(−A Δ), and Q stays positive.
    """
    short = gap[..., None, None] * 0.5**squarings
    scaled = matrix * short
    transfer = taylor_exponential(scaled)
    start = torch.diag_embed(noise) * short
    covariance = start
    for k in range(_DEGREE, 1, -1):
        half = scaled @ covariance
        covariance = torch.add(start, half + half.mT, alpha=1 / k)
    for _ in range(squarings):
        covariance = covariance + transfer @ covariance @ transfer.mT
        transfer = transfer @ transfer
    return transfer, covariance
