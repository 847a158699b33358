"""Mamba (Gu & Dao 2023, arXiv 2312.00752), in the frame and with the settings of Walker et al. 2024."""

import math
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from tides.baselines.s6 import S6Config, SelectiveScan
from tides.baselines.stack import Mixer, StackClassifier


@dataclass(frozen=True, kw_only=True)
class MambaConfig(S6Config):
    """Sizes of a Mamba; inner width expand · hidden_size, steps from ⌈hidden_size/16⌉ numbers."""

    conv: int = 4
    """Width of the causal convolution."""
    expand: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_sizes("conv", "expand")


class MambaMixer(Mixer):
    """Causal convolution, selective scan and gate between two projections:

    [v, z] = W_in u,   v ← SiLU(conv(v)),   y = W_out(scan(v) ⊙ SiLU(z))
    """

    def __init__(self, config: MambaConfig) -> None:
        super().__init__()
        h, e = config.hidden_size, config.expand * config.hidden_size
        self.inward = nn.Linear(h, 2 * e, bias=False)
        self.conv = nn.Conv1d(e, e, config.conv, groups=e, padding=config.conv - 1)
        self.scan = SelectiveScan(e, config.state_size, math.ceil(h / 16))
        self.out = nn.Linear(e, h, bias=False)

    def forward(self, u: Tensor, steps: Tensor) -> Tensor:
        v, gate = self.inward(u).chunk(2, dim=-1)
        # Padding on both sides, of which the right one is cut off: no output sees its future.
        v = self.conv(v.transpose(1, 2))[..., : u.shape[1]].transpose(1, 2)
        y: Tensor = self.out(self.scan(F.silu(v), steps) * F.silu(gate))
        return y


class Mamba(StackClassifier):
    """Mamba mixers between LayerNorm and GLU, mean over time. Weight decay collapses it; train without."""

    def __init__(self, config: MambaConfig) -> None:
        super().__init__(config, lambda: MambaMixer(config), norm="layer")
