"""LinOSS (Rusch & Rus 2025, arXiv 2410.03943) and D-LinOSS (Boyer et al. 2025, arXiv 2505.12171)."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from tides.baselines.config import StackConfig
from tides.baselines.pair_scan import Matrix, Pair, convolve, impulse_response, pair_scan
from tides.baselines.stack import Mixer, StackClassifier
from tides.errors import ConfigError

# The shortest step in divisions: an exact zero would make gradients of unused branches infinite.
_SHORTEST = 1e-6


@dataclass(frozen=True, kw_only=True)
class LinOSSConfig(StackConfig):
    """Sizes of a LinOSS and how its oscillators are integrated."""

    state_size: int = 64
    """Oscillators."""
    scheme: Literal["im", "imex", "damped"] = "im"
    dropout: float = 0.05
    radius_min: float = 0.9
    radius_max: float = 1.0
    """Ring in which the eigenvalues of a damped layer start."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_sizes("state_size")
        self.require_ring("radius_min", "radius_max")
        if self.steps == "physical" and self.scheme != "im":
            raise ConfigError(
                f"steps: 'physical' needs scheme 'im', found {self.scheme!r}: steps of different lengths make the "
                "explicit schemes unstable, even where each of them is stable"
            )


class LinOSSMixer(Mixer):
    """Forced harmonic oscillators y'' = −A y − G y' + B u (G = 0 unless damped) with velocity z = y':

        im      S = 1/(1 + δ²A):  M = [[S, −δAS], [δS, S]],                 f = δ (M₁₁, M₂₁) Bu
        imex    M = [[1, −δA], [δ, 1 − δ²A]],                               f = (δ, δ²) Bu
        damped  S = 1/(1 + δG):   M = [[S, −δAS], [δS, 1 − δ²AS]],          f = (δS, δ²S) Bu
        (z, y)_k = M_k (z, y)_{k−1} + f_k,    out_k = Re(C y_k) + D ⊙ u_k

    A = ReLU(Â), δ_k = g_k σ(step), g = 1 as published, or (`im` only) the gap before step k. `im` loses energy in
    every step, however long; `imex` needs δ²A ≤ 4 and `damped` (G − δA)² ≤ 4A: A is held inside these bounds.
    """

    def __init__(self, config: LinOSSConfig) -> None:
        super().__init__()
        h, m = config.hidden_size, config.state_size
        self.scheme = config.scheme
        self.raw_step = nn.Parameter(torch.rand(m))
        self.stiffness = nn.Parameter(torch.rand(m))
        self.drive = nn.Parameter((2 * torch.rand(m, h, 2) - 1) / math.sqrt(h))
        self.readout = nn.Parameter((2 * torch.rand(h, m, 2) - 1) / math.sqrt(m))
        self.skip = nn.Parameter(torch.randn(h))
        if config.scheme == "damped":
            self.damping = nn.Parameter(torch.zeros(m))
            self._start_in_ring(config.radius_min, config.radius_max)

    @torch.no_grad()
    def _start_in_ring(self, low: float, high: float) -> None:
        """Eigenvalues r e^{±iθ}: det M = r² gives G, trace M = 2r cos θ gives A."""
        m = len(self.raw_step)
        delta = torch.sigmoid(self.raw_step)
        squared = low**2 + (high**2 - low**2) * torch.rand(m)
        angle = math.pi * torch.rand(m)
        self.damping.copy_((1 / squared - 1) / delta)
        self.stiffness.copy_((squared + 1 - 2 * squared.sqrt() * angle.cos()) / (delta.square() * squared))

    def forward(self, u: Tensor, steps: Tensor) -> Tensor:
        complex_u = torch.complex(u, torch.zeros_like(u))
        drive, readout = torch.view_as_complex(self.drive), torch.view_as_complex(self.readout)
        matrix, first, second = self.transition(steps.unsqueeze(-1) * torch.sigmoid(self.raw_step))
        if steps.numel() == 1:
            # One matrix for all steps: a convolution, which needs few launches however long the series is.
            one = Matrix(*(x.view(-1) for x in matrix))
            response = impulse_response(one, Pair(first.view(-1), second.view(-1)), u.shape[1]).second  # (m, l)
            y = convolve(response, drive @ complex_u.mT)  # (b, m, l)
            return (readout @ y).real.mT + self.skip * u
        driven = complex_u @ drive.T
        y = pair_scan(matrix, Pair(first * driven, second * driven)).second
        return (y @ readout.T).real + self.skip * u

    def transition(self, delta: Tensor) -> tuple[Matrix, Tensor, Tensor]:
        """M_k and the two factors of B u_k for steps `delta`."""
        stiffness = torch.relu(self.stiffness)
        if self.scheme == "im":
            s = 1 / (1 + delta.square() * stiffness)
            return Matrix(s, -delta * stiffness * s, delta * s, s), delta * s, delta.square() * s
        damping = torch.relu(self.damping) if self.scheme == "damped" else torch.zeros_like(stiffness)
        root, step = torch.sqrt(1 + delta * damping), delta.clamp_min(_SHORTEST)
        # For G = 0 these bounds are 0 and 4/δ².
        low, high = (damping / (root + 1)).square(), ((root + 1) / step).square()
        bounded = torch.minimum(torch.maximum(stiffness, low), high)
        s = 1 / (1 + delta * damping)
        matrix = Matrix(s, -delta * bounded * s, delta * s, 1 - delta.square() * bounded * s)
        return matrix, delta * s, delta.square() * s


class LinOSS(StackClassifier):
    """Oscillators between BatchNorm and GLU, mean over time."""

    def __init__(self, config: LinOSSConfig) -> None:
        super().__init__(config, lambda: LinOSSMixer(config))
