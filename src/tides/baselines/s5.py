"""S5 (Smith et al. 2023, arXiv 2208.04933), in the frame and with the settings of Walker et al. 2024."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tides import kernels
from tides.baselines.config import StackConfig
from tides.baselines.stack import Mixer, StackClassifier
from tides.fields import require
from tides.functional import discretise, hippo_blocks


@dataclass(frozen=True, kw_only=True)
class S5Config(StackConfig):
    """Sizes of an S5; `groups` HiPPO blocks stand on the diagonal, of which one of each conjugate pair is kept."""

    state_size: int = 64
    groups: int = 4
    dropout: float = 0.05
    clip: float = 1e-4
    """Re λ ≤ −clip."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_sizes("state_size", "groups")
        pair = 2 * self.groups
        require(self, ("state_size",), lambda value: value % pair == 0, f"a multiple of {pair}, twice the groups")
        require(self, ("clip",), lambda value: value >= 0, "a number ≥ 0")


class S5Mixer(Mixer):
    """A multi-input, multi-output diagonal SSM under zero-order hold, on half of the conjugate pairs:

        λ̄_k = exp(λ δ_k),   s_k = λ̄_k s_{k−1} + λ⁻¹(λ̄_k − 1) B u_k,   y_k = 2 Re(C s_k) + D ⊙ u_k

    with δ_k = g_k exp(log_step), g = 1 as published, or the gap before step k. λ starts as HiPPO-LegS' normal part,
    B = V⁻¹B₀ and C = C₀V with its eigenvectors V; log_step starts uniform in [log 0.001, log 0.1].
    """

    def __init__(self, config: S5Config) -> None:
        super().__init__()
        h, p = config.hidden_size, config.state_size
        self.clip = config.clip
        lam, eigenvectors = hippo_blocks(p, config.groups, half=True)
        eigenvectors = eigenvectors.to(torch.complex64)
        drive = eigenvectors.conj().T @ (torch.randn(p, h) / math.sqrt(h)).to(torch.complex64)
        readout = torch.view_as_complex(torch.randn(h, p, 2) / math.sqrt(2 * p)) @ eigenvectors
        self.decay, self.frequency = nn.Parameter(lam.real.float()), nn.Parameter(lam.imag.float())
        self.drive = nn.Parameter(torch.view_as_real(drive.resolve_conj()).contiguous())  # (p/2, h, 2)
        self.readout = nn.Parameter(torch.view_as_real(readout).contiguous())  # (h, p/2, 2)
        self.skip = nn.Parameter(torch.randn(h))
        low, high = math.log(1e-3), math.log(1e-1)
        self.log_step = nn.Parameter(low + (high - low) * torch.rand(len(lam)))

    def forward(self, u: Tensor, steps: Tensor) -> Tensor:
        lam = torch.complex(self.decay.clamp_max(-self.clip), self.frequency)
        lam_bar, gain = discretise(lam, steps.unsqueeze(-1) * self.log_step.exp())
        drive = gain * (u.to(lam.dtype) @ torch.view_as_complex(self.drive).T)
        s, _ = kernels.linear_scan(lam_bar.expand_as(drive), drive)
        return 2 * (s @ torch.view_as_complex(self.readout).T).real + self.skip * u


class S5(StackClassifier):
    """S5 layers between BatchNorm and GLU, mean over time."""

    def __init__(self, config: S5Config) -> None:
        super().__init__(config, lambda: S5Mixer(config))
