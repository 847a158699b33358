"""LRU (Orvieto et al. 2023, arXiv 2303.06349), in the frame and with the settings of Walker et al. 2024."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tides import kernels
from tides.baselines.config import StackConfig
from tides.baselines.stack import Mixer, StackClassifier


@dataclass(frozen=True, kw_only=True)
class LRUConfig(StackConfig):
    """Sizes of an LRU; the ring in which |λ| starts is the whole disc, as in the comparison."""

    state_size: int = 64
    radius_min: float = 0.0
    radius_max: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_sizes("state_size")
        self.require_ring("radius_min", "radius_max")


class LRUMixer(Mixer):
    """A diagonal complex recurrence that is stable by construction:

        λ = exp(−exp(ν) + i exp(θ)),   s_k = λ^{g_k} s_{k−1} + γ ⊙ B u_k,   y_k = Re(C s_k) + D ⊙ u_k

    with g = 1 as published, or the gap before step k. γ starts at √(1 − |λ|²), so that states start with the variance
    of the input, and is learned as log γ. |λ|² starts uniform in [r_min², r_max²] and the angle in [0, 2π).
    """

    def __init__(self, config: LRUConfig) -> None:
        super().__init__()
        h, p = config.hidden_size, config.state_size
        inner, outer = config.radius_min**2, config.radius_max**2
        squared = inner + (outer - inner) * torch.rand(p)
        # Radii of exactly 0 and 1 have no logarithms.
        modulus = squared.clamp(1e-8, 1 - 1e-6).sqrt()
        self.log_decay = nn.Parameter((-modulus.log()).log())
        self.log_angle = nn.Parameter((2 * math.pi * torch.rand(p)).clamp_min(1e-8).log())
        self.log_gain = nn.Parameter(0.5 * torch.log1p(-modulus.square()))
        self.drive = nn.Parameter(torch.randn(p, h, 2) / math.sqrt(2 * h))
        self.readout = nn.Parameter(torch.randn(h, p, 2) / math.sqrt(p))
        self.skip = nn.Parameter(torch.randn(h))

    def forward(self, u: Tensor, steps: Tensor) -> Tensor:
        rate = torch.complex(-self.log_decay.exp(), self.log_angle.exp())
        lam_bar = torch.exp(steps.unsqueeze(-1) * rate)  # (b, l, p) or (1, 1, p)
        drive = u.to(lam_bar.dtype) @ torch.view_as_complex(self.drive).T * self.log_gain.exp()
        s, _ = kernels.linear_scan(lam_bar.expand_as(drive), drive)
        return (s @ torch.view_as_complex(self.readout).T).real + self.skip * u


class LRU(StackClassifier):
    """Linear recurrent units between BatchNorm and GLU, mean over time."""

    def __init__(self, config: LRUConfig) -> None:
        super().__init__(config, lambda: LRUMixer(config))
