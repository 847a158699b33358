"""S6, the selective scan of Mamba (Gu & Dao 2023, arXiv 2312.00752) alone, in the frame of Walker et al. 2024."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tides import kernels
from tides.baselines.config import StackConfig
from tides.baselines.stack import Mixer, StackClassifier

# Numbers of a tensor with all states of all channels above which the scan is made in pieces (half a gigabyte).
_MOST = 2**27


@dataclass(frozen=True, kw_only=True)
class S6Config(StackConfig):
    """Sizes of an S6: `state_size` real states for every channel."""

    state_size: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_sizes("state_size")


class SelectiveScan(Mixer):
    """Input-dependent step, drive and readout; exact decay, Euler input:

        [τ, B, C]_k = W_x u_k,   δ_k = g_k softplus(W_δ τ_k + b_δ),   A = −exp(A_log)
        s_k = exp(δ_k A) ⊙ s_{k−1} + δ_k u_k B_kᵀ,   y_k = s_k C_k + D ⊙ u_k

    with s of shape (channels, states) and g = 1 as published, or the gap before step k. A starts at −(1, …, n) in
    every channel, softplus(b_δ) log-uniform in [0.001, 0.1], D at one.
    """

    def __init__(self, channels: int, states: int, step_rank: int) -> None:
        super().__init__()
        self.states, self.step_rank = states, step_rank
        self.select = nn.Linear(channels, step_rank + 2 * states, bias=False)
        self.step = nn.Linear(step_rank, channels)
        start = torch.exp(math.log(1e-3) + math.log(100) * torch.rand(channels))
        with torch.no_grad():
            self.step.weight.uniform_(-(step_rank**-0.5), step_rank**-0.5)
            # softplus(bias) = start
            self.step.bias.copy_(start + torch.log(-torch.expm1(-start)))
        self.log_decay = nn.Parameter(torch.log(torch.arange(1.0, states + 1)).repeat(channels, 1))
        self.skip = nn.Parameter(torch.ones(channels))

    def forward(self, u: Tensor, steps: Tensor) -> Tensor:
        b, l, e = u.shape
        tau, drive, readout = self.select(u).split([self.step_rank, self.states, self.states], dim=-1)
        delta = F.softplus(self.step(tau)) * steps.unsqueeze(-1)  # (b, l, e)
        decay = -self.log_decay.exp()
        fused = kernels.selective_operator(u)
        if fused is not None:
            return fused(u, delta, drive, readout, decay) + self.skip * u
        pieces = min(e, -(-b * l * e * self.states // _MOST))
        if pieces == 1:
            return _scan(u, delta, drive, readout, decay) + self.skip * u
        # States of some channels at a time, made again in the backward pass: all of them may not fit into memory.
        parts = [
            checkpoint(_scan, x, d, drive, readout, a, use_reentrant=False, preserve_rng_state=False)
            for x, d, a in zip(u.chunk(pieces, -1), delta.chunk(pieces, -1), decay.chunk(pieces), strict=True)
        ]
        return torch.cat(parts, dim=-1) + self.skip * u


def _scan(u: Tensor, delta: Tensor, drive: Tensor, readout: Tensor, decay: Tensor) -> Tensor:
    """s C (b, l, e) for inputs and steps (b, l, e), B and C (b, l, n) and rates (e, n)."""
    (b, l, e), n = u.shape, decay.shape[-1]
    lam_bar = torch.exp(delta.unsqueeze(-1) * decay)  # (b, l, e, n)
    driven = (delta * u).unsqueeze(-1) * drive.unsqueeze(-2)
    s, _ = kernels.linear_scan(lam_bar.reshape(b, l, -1), driven.reshape(b, l, -1))
    y: Tensor = (s.view(b, l, e, n) @ readout.unsqueeze(-1)).squeeze(-1)
    return y


class S6(StackClassifier):
    """Selective scans between LayerNorm and GLU, mean over time; no convolution, gate or projections."""

    def __init__(self, config: S6Config) -> None:
        h = config.hidden_size
        super().__init__(config, lambda: SelectiveScan(h, config.state_size, math.ceil(h / 16)), norm="layer")
