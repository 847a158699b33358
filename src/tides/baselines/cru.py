"""CRU: a Kalman filter in continuous time over a learned latent space."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

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
    squarings: int = 5
    """Doublings behind exp(A Δ): accurate while the norm of A Δ is below 2^squarings / 2 = 16."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_sizes("latent_size", "hidden_size", "bases", "squarings")
        require(self, ("bandwidth",), lambda value: value >= 0, "an integer ≥ 0")
        require(self, ("start_variance", "process_noise"), lambda value: value > 0, "a number > 0")
        if self.latent_size % 2:
            raise ConfigError(f"latent_size: found {self.latent_size}, wanted an even number: two halves")


class Belief(NamedTuple):
    """A Gaussian over z ∈ R^{2M} whose covariance has three diagonals: upper block, lower block and between them."""

    mean: Float[Tensor, "b 2m"]
    upper: Float[Tensor, "b m"]
    lower: Float[Tensor, "b m"]
    side: Float[Tensor, "b m"]


def predict(belief: Belief, transfer: Tensor, noise: Tensor) -> Belief:
    """After a gap: μ⁻ = F μ⁺ and the three diagonals of Σ⁻ = F Σ⁺ Fᵀ + Q."""
    m = belief.upper.shape[-1]
    top, bottom = transfer[..., :m, :], transfer[..., m:, :]
    covered = Belief(belief.mean, belief.upper.unsqueeze(-2), belief.lower.unsqueeze(-2), belief.side.unsqueeze(-2))

    def between(left: Tensor, right: Tensor) -> Tensor:
        """Diagonal of L Σ Rᵀ for rows L, R (b, m, 2m) of F."""
        a, b, c, d = left[..., :m], left[..., m:], right[..., :m], right[..., m:]
        return (a * c * covered.upper + (a * d + b * c) * covered.side + b * d * covered.lower).sum(-1)

    def diagonal(rows: slice, columns: slice) -> Tensor:
        return noise[..., rows, columns].diagonal(dim1=-2, dim2=-1)

    first, second = slice(None, m), slice(m, None)
    return Belief(
        mean=(transfer @ belief.mean.unsqueeze(-1)).squeeze(-1),
        upper=between(top, top) + diagonal(first, first),
        lower=between(bottom, bottom) + diagonal(second, second),
        side=between(top, bottom) + diagonal(first, second),
    )


def update(belief: Belief, y: Tensor, variance: Tensor, seen: Bool[Tensor, "b 1"]) -> Belief:
    """What an observation y ~ N(H z, variance) of the upper half says, with H = [I 0]; nothing where not `seen`."""
    m = y.shape[-1]
    # A gain of zero is the same as no observation.
    precision = (1 / (belief.upper + variance)).masked_fill(~seen, 0)
    upper_gain, lower_gain = belief.upper * precision, belief.side * precision
    surprise = y - belief.mean[..., :m]
    return Belief(
        mean=belief.mean + torch.cat([upper_gain * surprise, lower_gain * surprise], dim=-1),
        upper=(1 - upper_gain) * belief.upper,
        lower=belief.lower - lower_gain * belief.side,
        side=(1 - upper_gain) * belief.side,
    )


class CRU(ForecastModel):
    """dz = A z dt + dβ between observations, Kalman updates at them, for z ∈ R^{2M} with H = [I 0]:

        (y, σ²) = encoder(x),   μ⁻ = e^{AΔ} μ⁺,   Σ⁻ = e^{AΔ} Σ⁺ e^{AΔ}ᵀ + ∫₀^Δ e^{As} Q e^{As}ᵀ ds,
        A = Σ_k softmax(w(μ⁺))_k A_k,   x̂ = decoder(μ⁺)

    Q is diagonal, the blocks of A_k are banded and Σ is kept as three diagonals, so that gains are element-wise.
    Rows in which some channels are missing enter with their flags; rows without an observation leave the belief as
    it is. Gaps above four units of time count as four. Trained by the squared error of x̂ like every other model
    here, so the published variance decoder has no part. Source: Schirmer et al., "Modeling Irregular Time Series
    with Continuous Recurrent Units", ICML 2022 (arXiv 2111.11344); written from its equations.
    """

    config: CRUConfig
    band: Tensor

    def __init__(self, config: CRUConfig) -> None:
        super().__init__(config)
        c, n, h = self.channels, config.latent_size, config.hidden_size
        m = n // 2
        self.encoder = nn.Sequential(nn.Linear(2 * c, h), nn.ReLU(), nn.LayerNorm(h), nn.Linear(h, 2 * m))
        self.decoder = perceptron(n, h, c)
        self.choice = nn.Linear(n, config.bases)
        distance = (torch.arange(m)[:, None] - torch.arange(m)).abs()
        self.register_buffer("band", (distance <= config.bandwidth).float().repeat(2, 2), persistent=False)
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
        m = self.config.latent_size // 2
        zero = self.log_noise.new_zeros(batch, m)
        variance = zero + self.config.start_variance
        return Belief(torch.cat([zero, zero], dim=-1), variance, variance, zero)

    def advanced(self, belief: Belief, gap: Tensor) -> Belief:
        """The belief after a gap (b,), under the dynamics chosen by its mean."""
        weights = self.choice(belief.mean).softmax(-1)
        matrix = torch.einsum("bk,kij->bij", weights, self.basis * self.band)
        noise = self.log_noise.exp().expand(len(gap), -1)
        return predict(belief, *transition(matrix, noise, gap, self.config.squarings))
