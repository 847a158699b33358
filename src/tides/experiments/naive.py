"""The naive side of the speed benchmark: TIDES as its equations read, with every matrix built and kept.

B_k and C_k exist as complex (b, l, p, h) tensors, each with its norm, ZOH is the textbook (exp(λδ) − 1)/λ and the
recurrence is an associative scan by recursive odd/even splitting; autograd saves whatever it wants. This is how the
authors' release computes, written here from the equations. It exists to be measured, never to be used: in float32
its ZOH cancels for small steps. Parameters are those of `SequenceClassifier`, so it loads the same weights.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from tides.errors import ConfigError
from tides.functional.heads import decay_rates
from tides.functional.mixes import LowRankMix
from tides.functional.ssm import SSMState
from tides.nn import SequenceClassifier, TIDESConfig
from tides.nn.block import Block
from tides.nn.ssm import SSM


class NaiveClassifier(SequenceClassifier):
    """`SequenceClassifier` whose layers materialise B_k and C_k; same parameters under the same names."""

    def __init__(self, config: TIDESConfig, classes: int) -> None:
        super().__init__(config, classes)
        for block in self.backbone.blocks:
            assert isinstance(block, Block)
            block.ssm = NaiveSSM(config)


class NaiveSSM(SSM):
    """One selective layer with the release's semantics (`compat="release"`), low-rank heads and ZOH."""

    def __init__(self, config: TIDESConfig) -> None:
        super().__init__(config)
        wanted = {"variant": "tides", "discretisation": "zoh", "hold": "preceding", "conjugate": False}
        for name, value in wanted.items():
            if getattr(config, name) != value:
                raise ConfigError(f"{name}: found {getattr(config, name)!r}, the naive model is written for {value!r}")
        if not isinstance(config.rank, int) or (config.bidirectional and config.reverse != "release"):
            raise ConfigError("rank, reverse: the naive model needs an integer rank and the release's backward pass")

    def forward(
        self, u: Tensor, gaps: Tensor, *, valid: Tensor | None = None, state: SSMState | None = None
    ) -> tuple[Tensor, SSMState]:
        if valid is not None or state is not None:
            raise ConfigError("valid, state: the naive model takes whole sequences of one length")
        weights, eps = self.weights(), self.spec.eps
        assert isinstance(weights.drive, LowRankMix)
        assert isinstance(weights.readout, LowRankMix)
        assert isinstance(weights.step, Tensor)
        decay = decay_rates(u, weights.decay, self.spec.reparam, self.spec.clip, eps)
        lam = torch.complex(decay, weights.frequency.bias.expand_as(decay))  # (b, l, p)
        delta = gaps.unsqueeze(-1) * torch.exp(weights.step)
        lam_bar = torch.exp(lam * delta)
        b_mat = _column_norm(_materialise(u, weights.drive), weights.drive.norm, eps)  # (b, l, p, h)
        b_bar = ((lam_bar - 1) / lam).unsqueeze(-1) * b_mat
        drive = (b_bar * u.unsqueeze(-2)).sum(-1)
        s = recursive_scan(lam_bar, drive)
        if self.spec.bidirectional:
            s = torch.cat([s, recursive_scan(lam_bar.flip(1), drive.flip(1)).flip(1)], dim=-1)
        c_mat = _column_norm(_materialise(u, weights.readout), weights.readout.norm, eps).mT  # (b, l, h, p)
        y = (c_mat * s.unsqueeze(-2)).sum(-1).real + weights.skip * u
        p = lam.shape[-1]
        return y, SSMState(s[:, -1, :p], lam[:, -1], torch.zeros_like(lam[:, -1]))


def _materialise(u: Tensor, mix: LowRankMix) -> Tensor:
    """W_up (W_down u_k + c) + base as one complex matrix (p, h) per step."""
    assert mix.down is not None
    p, h, _, rank = mix.up.shape
    code = F.linear(u, mix.down, mix.down_bias)
    flat = F.linear(code, mix.up.reshape(p * h * 2, rank), mix.base.reshape(-1))
    return torch.view_as_complex(flat.unflatten(-1, (p, h, 2)))


def _column_norm(matrix: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """Complex RMSNorm over the state axis, for every column h."""
    if weight is None:
        return matrix
    mean_square = matrix.abs().square().mean(-2, keepdim=True)
    return matrix * torch.rsqrt(mean_square + eps) * weight.unsqueeze(-1)


def recursive_scan(a: Tensor, b: Tensor) -> Tensor:
    """All states of s_k = a_k s_{k−1} + b_k along axis 1, by an associative scan."""
    return _prefixes(a, b)[1]


def _prefixes(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Prefixes of (a, b) under (a₁, b₁)·(a₂, b₂) = (a₂a₁, a₂b₁ + b₂): neighbours first, then the odd half."""
    length = a.shape[1]
    if length == 1:
        return a, b
    pairs = _combine(a[:, : length - 1 : 2], b[:, : length - 1 : 2], a[:, 1::2], b[:, 1::2])
    odd = _prefixes(*pairs)
    if length == 2:
        return torch.cat([a[:, :1], odd[0]], dim=1), torch.cat([b[:, :1], odd[1]], dim=1)
    left = odd if length % 2 else (odd[0][:, :-1], odd[1][:, :-1])
    later = _combine(*left, a[:, 2::2], b[:, 2::2])
    even = torch.cat([a[:, :1], later[0]], dim=1), torch.cat([b[:, :1], later[1]], dim=1)
    return _interleave(even[0], odd[0]), _interleave(even[1], odd[1])


def _combine(a1: Tensor, b1: Tensor, a2: Tensor, b2: Tensor) -> tuple[Tensor, Tensor]:
    return a2 * a1, a2 * b1 + b2


def _interleave(even: Tensor, odd: Tensor) -> Tensor:
    """even₀, odd₀, even₁, odd₁, …; `even` may be longer by one."""
    n = odd.shape[1]
    woven = torch.stack([even[:, :n], odd], dim=2).flatten(1, 2)
    return woven if even.shape[1] == n else torch.cat([woven, even[:, n:]], dim=1)
