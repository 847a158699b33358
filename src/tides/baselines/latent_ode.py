"""Latent ODE: a recurrent encoder backwards in time, and a neural differential equation forwards."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from tides.baselines.forecasting import ForecastConfig, ForecastModel, Question
from tides.baselines.gru import GRUCell
from tides.baselines.perceptron import perceptron
from tides.baselines.runge_kutta import runge_kutta
from tides.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class LatentODEConfig(ForecastConfig):
    """Sizes of the published order (latents of 20, fields of 50 to 100 units)."""

    latent_size: int = 20
    hidden_size: int = 40
    """State of the encoder."""
    field_size: int = 50
    """Units of either field."""
    method: Literal["rk4", "dopri5"] = "rk4"
    """Steps of a fixed number, or adaptive ones by torchdiffeq, which looks at values: such models do not stack."""
    steps: int = 20
    """Steps of `rk4` from the start to a query."""
    gap_steps: int = 2
    """Steps of `rk4` over a gap of the encoder."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_sizes("latent_size", "hidden_size", "field_size", "steps", "gap_steps")


class LatentODE(ForecastModel):
    """z₀ from the observations, backwards in time; then z(t) = z₀ + ∫ f(z), ŷ(t) = W z(t):

        h ← ODESolve(f_enc, h, −Δ),   h ← GRU([x, m], h) at every row with an observation,   z₀ = MLP(h)

    Neither field depends on time, so every gap and every query is its own problem on [0, 1] with the field
    multiplied by the elapsed time: series and queries with different times are solved together, without a union of
    all time points. The published model is variational; here z₀ is its mean and training is by squared error.
    Source: Rubanova et al., "Latent ODEs for Irregularly-Sampled Time Series", NeurIPS 2019 (arXiv 1907.03907).
    """

    config: LatentODEConfig

    def __init__(self, config: LatentODEConfig) -> None:
        super().__init__(config)
        self.stackable = config.method != "dopri5"
        c, h, z, f = self.channels, config.hidden_size, config.latent_size, config.field_size
        self.encoder_field = perceptron(h, f, h, activation=nn.Tanh)
        self.cell = GRUCell(2 * c, h)
        self.to_latent = perceptron(h, f, z, activation=nn.Tanh)
        self.field: nn.Module = perceptron(z, f, f, z, activation=nn.Tanh)
        self.readout = nn.Linear(z, c)

    def answer(self, question: Question) -> Tensor:
        begin = self.begin(question)
        elapsed = (question.query_times - begin).clamp_min(0).masked_fill(~question.query_valid, 0)
        result: Tensor = self.readout(self.trajectory(self.encode(question, begin), elapsed))
        return result

    def encode(self, question: Question, begin: Tensor) -> Tensor:
        """z₀ (b, z) at the times `begin` (b, 1)."""
        dtype = question.values.dtype
        rows = self.cell.from_input(torch.cat([question.values, question.observed.to(dtype)], dim=-1))
        gaps = torch.cat([begin, question.times], dim=1).diff(dim=1).masked_fill(~question.valid, 0).to(dtype)
        seen = question.observed.any(dim=-1, keepdim=True)
        h = rows.new_zeros(rows.shape[0], self.config.hidden_size)
        for k in reversed(range(rows.shape[1])):
            h = torch.where(seen[:, k], self.cell.step(rows[:, k], h), h)
            h = self._solve(self.encoder_field, h, -gaps[:, k : k + 1], self.config.gap_steps)
        latent: Tensor = self.to_latent(h)
        return latent

    def trajectory(self, start: Tensor, elapsed: Tensor) -> Tensor:
        """z (b, q, z) from z₀ (b, z) after the times `elapsed` (b, q)."""
        each = start.unsqueeze(1).expand(-1, elapsed.shape[1], -1)
        return self._solve(self.field, each, elapsed.to(start.dtype).unsqueeze(-1), self.config.steps)

    def _solve(self, field: nn.Module, state: Tensor, elapsed: Tensor, steps: int) -> Tensor:
        if self.config.method == "rk4":
            return runge_kutta(field, state, elapsed, steps)
        try:
            from torchdiffeq import odeint
        except ImportError as error:
            raise ConfigError(
                "method: 'dopri5' needs torchdiffeq; pip install 'tides-ssm[baselines]' or use 'rk4'"
            ) from error
        interval = torch.tensor([0.0, 1.0], dtype=state.dtype, device=state.device)
        end: Tensor = odeint(lambda _, z: elapsed * field(z), state, interval, method=self.config.method)[-1]
        return end
