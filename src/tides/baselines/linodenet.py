"""LinODEnet: a linear differential equation in a learned latent space, corrected by a filter at observations."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tides.baselines.exponential import propagators
from tides.baselines.forecasting import ForecastConfig, ForecastModel, Question
from tides.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class LinODEnetConfig(ForecastConfig):
    """Published settings for Physiome-ODE."""

    hidden_size: int = 128
    """Channels of the filter: the data's own, and others that are never observed."""
    latent_size: int = 128
    depth: int = 5
    """Residual blocks of the encoder and of the decoder."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_sizes("hidden_size", "latent_size", "depth")
        if not self.input_size <= self.hidden_size <= self.latent_size:
            raise ConfigError(
                f"hidden_size: found {self.hidden_size}, wanted input_size = {self.input_size} ≤ hidden_size ≤ "
                f"latent_size = {self.latent_size}"
            )


class ResidualBlock(nn.Module):
    """x + ε (W ReLU)²(x) with ε = 0 at the start."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(width, width), nn.Linear(width, width)
        self.gate = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = x + self.gate * self.outer(self.inner(x.relu()).relu())
        return result


class LinearCell(nn.Module):
    """x̂ − z, z = (I + ε_B B) m (I + ε_A A) m (x̂ − y): with ε = 0, at the start, observed entries become y."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner, self.outer = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.inner_gate, self.outer_gate = (nn.Parameter(torch.zeros(())) for _ in range(2))

    def forward(self, prior: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        z = mask * (prior - y)
        z = mask * (z + self.inner_gate * self.inner(z))
        result: Tensor = prior - (z + self.outer_gate * self.outer(z))
        return result


class NonlinearCell(nn.Module):
    """x̂ − ε (W ReLU)²(B m A m (x̂ − y)) without biases, ε = 0 at the start."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner, self.outer, self.first, self.second = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate = nn.Parameter(torch.zeros(()))

    def forward(self, prior: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        z = self.outer(mask * self.inner(mask * (prior - y)))
        result: Tensor = prior - self.gate * self.second(self.first(z.relu()).relu())
        return result


class LinODEnet(ForecastModel):
    """At every event, observation or query, in temporal order:

        ẑ = exp(γ A Δ) ẑ⁺,   x̂ = dec(ẑ),   x̂⁺ = filter(x̂, y),   ẑ⁺ = enc([x̂⁺, w])

    and x̂⁺ is the forecast. The filter is one linear and two nonlinear cells, all of which leave x̂ as it is when
    nothing is observed. A starts skew-symmetric, γ at 0; the start ẑ⁺ and the filling w are learned. Exponentials
    share one table per call (`exponential.Propagators`); gaps above four units of time count as four.
    Source: Scholz et al., "Latent Linear ODEs with Neural Kalman Filtering for Irregular Time Series Forecasting",
    2023.
    """

    config: LinODEnetConfig

    def __init__(self, config: LinODEnetConfig) -> None:
        super().__init__(config)
        h, n = config.hidden_size, config.latent_size
        gaussian = torch.randn(n, n) / math.sqrt(n)
        self.dynamics = nn.Parameter((gaussian - gaussian.T) / math.sqrt(2))
        self.speed = nn.Parameter(torch.zeros(()))
        self.start, self.filling = nn.Parameter(torch.randn(n)), nn.Parameter(torch.randn(n - h))
        self.encoder, self.decoder = (nn.Sequential(*(ResidualBlock(n) for _ in range(config.depth))) for _ in range(2))
        self.cells = nn.ModuleList([LinearCell(h), NonlinearCell(h), NonlinearCell(h)])

    def answer(self, question: Question) -> Tensor:
        events = self.events(question)
        b, c = events.values.shape[0], self.channels
        unseen = (0, self.config.hidden_size - c)
        y, mask = F.pad(events.values, unseen), F.pad(events.observed.to(events.values.dtype), unseen)
        flow = propagators(self.speed * self.dynamics)
        digits, rest = flow.digits(events.gaps)
        filling = self.filling.expand(b, -1)
        state, forecasts = self.start.expand(b, -1), []
        for k in range(y.shape[1]):
            state = flow.advance(state, digits[:, k], rest[:, k])
            estimate = self.filtered(self.decoder(state)[:, : self.config.hidden_size], y[:, k], mask[:, k])
            forecasts.append(estimate[:, :c])
            state = self.encoder(torch.cat([estimate, filling], dim=-1))
        return events.line.answers(torch.stack(forecasts, dim=1))

    def filtered(self, prior: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        """x̂ (b, h) corrected by the entries of y that `mask` marks with 1."""
        for cell in self.cells:
            prior = cell(prior, y, mask)
        return prior
