"""HiPPO-LegS starting values for the diagonal state matrix (paper §3 and S5's initialisation)."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Complex
from torch import Tensor

from tides.errors import ConfigError


class Hippo(NamedTuple):
    """Eigenvalues λ (p) of the normal part of HiPPO-LegS and its eigenvectors V (n, p); complex128."""

    lam: Complex[Tensor, "p"]
    eigenvectors: Complex[Tensor, "n p"]


def hippo_legs(size: int) -> Hippo:
    """The normal part S = A + p pᵀ of HiPPO-LegS, diagonalised: Re λ = −½, Im λ and V from eigh(−i(S + ½I)).

    A_nk = −√(2n+1)√(2k+1) for n > k, −(n+1) for n = k, 0 above; p_n = √(n + ½).
    """
    n = np.arange(size)
    root = np.sqrt(2 * n + 1)
    legs = np.tril(-np.outer(root, root), -1) - np.diag(n + 1.0)
    rank_one = np.sqrt(n + 0.5)
    skew = legs + np.outer(rank_one, rank_one) + 0.5 * np.eye(size)
    frequency, vectors = np.linalg.eigh(-1j * skew)
    return Hippo(torch.from_numpy(-0.5 + 1j * frequency), torch.from_numpy(vectors))


def hippo_blocks(state_size: int, groups: int = 1, *, half: bool = False) -> Hippo:
    """`groups` HiPPO blocks of size P/groups side by side on the diagonal.

    With `half` only the first half of every block's eigenvalues is kept, one of each conjugate pair (S5's
    conjugate-symmetric form): λ has P/2 entries and V is (P, P/2).
    """
    if groups < 1 or state_size % groups:
        raise ConfigError(f"groups: found {groups}, wanted a divisor of state_size = {state_size}")
    size = state_size // groups
    if half and size % 2:
        raise ConfigError(f"conjugate: blocks of size {size} cannot be halved; state_size/groups must be even")
    block = hippo_legs(size)
    kept = size // 2 if half else size
    lam = block.lam[:kept].repeat(groups)
    return Hippo(lam, torch.block_diag(*[block.eigenvectors[:, :kept]] * groups))
