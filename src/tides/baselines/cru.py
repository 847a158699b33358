"""CRU: a Kalman filter in continuous time over a learned latent space."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from tides.baselines.affine import Affine
from tides.baselines.exponential import LONGEST, transition
from tides.baselines.forecasting import ForecastConfig, ForecastModel, Question
from tides.baselines.perceptron import perceptron
from tides.errors import ConfigError
from tides.fields import require

# Keeps variances away from zero, where an observation would fix a state for ever.
_SMALLEST = 1e-6


@dataclass(frozen=True, kw_only=True)
class CRUConfig(ForecastConfig):
    """Published settings: latent size 20, 50 hidden units, 15 basis matrices, bandwidth 3."""

    latent_size: int = 20
    """2M: an observed half and a memory half."""
    hidden_size: int = 50
    """Units of encoder and decoder."""
    bases: int = 15
    bandwidth: int = 3
    """Diagonals on either side of the main one in each of the four blocks of a basis matrix."""
    start_variance: float = 10.0
    process_noise: float = 0.1
    """Diffusion at the start of training."""
    squarings: int = 4
    """Doublings behind exp(A Δ): accurate while the norm of A Δ is below 2^squarings / 2 = 8."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_sizes("latent_size", "hidden_size", "bases", "squarings")
        require(self, ("bandwidth",), lambda value: value >= 0, "an integer ≥ 0")
        require(self, ("start_variance", "process_noise"), lambda value: value > 0, "a number > 0")
        if self.latent_size % 2:
            raise ConfigError(f"latent_size: found {self.latent_size}, wanted an even number: two halves")


class Belief(NamedTuple):
    """A Gaussian over z ∈ R^{2M}. Each of the four blocks of the covariance is diagonal."""

    mean: Float[Tensor, "b 2m"]
    covariance: Float[Tensor, "b 2m 2m"]


def predict(belief: Belief, transfer: Tensor, noise: Tensor, diagonals: Tensor) -> Belief:
    """After a gap: μ⁻ = F μ⁺ and the four `diagonals` (ones there, zeros elsewhere) of Σ⁻ = F Σ⁺ Fᵀ + Q."""
    return Belief(
        mean=(transfer @ belief.mean.unsqueeze(-1)).squeeze(-1),
        covariance=(transfer @ belief.covariance @ transfer.mT + noise) * diagonals,
    )


def update(belief: Belief, y: Tensor, variance: Tensor, seen: Bool[Tensor, "b 1"]) -> Belief:
    """What an observation y ~ N(H z, variance) of the upper half says, with H = [I 0]; nothing where not `seen`.

    H Σ Hᵀ is diagonal, so its inverse is too, and the update keeps the diagonals.
    """
    m = y.shape[-1]
    upper = belief.covariance[..., :m, :m].diagonal(dim1=-2, dim2=-1)
    # A precision of zero is the same as no observation.
    precision = (1 / (upper + variance)).masked_fill(~seen, 0)
    gain = belief.covariance[..., :m] * precision.unsqueeze(-2)  # (b, 2m, m)
    surprise = (y - belief.mean[..., :m]).unsqueeze(-1)
    return Belief(
        mean=belief.mean + (gain @ surprise).squeeze(-1),
        covariance=belief.covariance - gain @ belief.covariance[..., :m, :],
    )


class CRU(ForecastModel):
    """dz = A z dt + dβ between observations, Kalman updates at them, for z ∈ R^{2M} with H = [I 0]:

        (y, σ²) = encoder(x),   μ⁻ = e^{AΔ} μ⁺,   Σ⁻ = e^{AΔ} Σ⁺ e^{AΔ}ᵀ + ∫₀^Δ e^{As} Q e^{As}ᵀ ds,
        A = Σ_k softmax(w(μ⁺))_k A_k,   x̂ = decoder(μ⁺)

    Q is diagonal, the blocks of A_k are banded, and of Σ only the diagonals of its blocks are kept.
    Rows in which some channels are missing enter with their flags; rows without an observation leave the belief as
    it is, but A is chosen anew at every row, so which times are asked together matters. Gaps above four units of time
    count as four. Trained by the squared error of x̂ like every other model here, so the published variance decoder
    has no part. Source: Schirmer et al., "Modeling Irregular Time Series with Continuous Recurrent Units", ICML 2022
    (arXiv 2111.11344); written from its equations.
    """

    config: CRUConfig
    band: Tensor
    diagonals: Tensor

    def __init__(self, config: CRUConfig) -> None:
        super().__init__(config)
        c, n, h = self.channels, config.latent_size, config.hidden_size
        m = n // 2
        self.encoder = nn.Sequential(nn.Linear(2 * c, h), nn.ReLU(), nn.LayerNorm(h), nn.Linear(h, 2 * m))
        self.decoder = perceptron(n, h, c)
        self.choice = Affine(n, config.bases)
        distance = (torch.arange(m)[:, None] - torch.arange(m)).abs()
        self.register_buffer("band", (distance <= config.bandwidth).float().repeat(2, 2), persistent=False)
        self.register_buffer("diagonals", torch.eye(m).repeat(2, 2), persistent=False)
        # Slow rotations between the halves, each basis with a perturbation of its own.
        rotation = 0.2 * torch.diag(torch.ones(m), m) - 0.2 * torch.diag(torch.ones(m), -m)
        self.basis = nn.Parameter(rotation + 0.3 * torch.randn(config.bases, n, n))
        self.log_noise = nn.Parameter(torch.full((n,), config.process_noise).log())

    def answer(self, question: Question) -> Tensor:
        events = self.events(question)
        encoded = self.encoder(torch.cat([events.values, events.observed.to(events.values.dtype)], dim=-1))
        y, spread = encoded.chunk(2, dim=-1)
        variance = F.elu(spread) + 1 + _SMALLEST
        seen = events.observed.any(dim=-1, keepdim=True)
        gaps = events.gaps.clamp(max=LONGEST)
        belief, means = self.start(y.shape[0]), []
        for k in range(y.shape[1]):
            belief = self.advanced(belief, gaps[:, k])
            belief = update(belief, y[:, k], variance[:, k], seen[:, k])
            means.append(belief.mean)
        result: Tensor = self.decoder(events.line.answers(torch.stack(means, dim=1)))
        return result

    def start(self, batch: int) -> Belief:
        n = self.config.latent_size
        variance = self.config.start_variance * torch.eye(n, dtype=self.basis.dtype, device=self.basis.device)
        return Belief(self.basis.new_zeros(batch, n), variance.expand(batch, n, n))

    def advanced(self, belief: Belief, gap: Tensor) -> Belief:
        """The belief after a gap (b,), under the dynamics chosen by its mean."""
        n = self.config.latent_size
        weights = self.choice(belief.mean).softmax(-1)
        matrix = (weights @ (self.basis * self.band).flatten(1)).reshape(-1, n, n)
        moving = transition(matrix, self.log_noise.exp(), gap, self.config.squarings)
        return predict(belief, *moving, self.diagonals)
