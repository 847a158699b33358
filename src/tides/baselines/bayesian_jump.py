"""Continuous states that jump at observations: what GRU-ODE-Bayes and Neural Flows share."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tides.baselines.affine import Affine
from tides.baselines.forecasting import ForecastConfig, ForecastModel, Question
from tides.baselines.gru import GRUCell

Advance = Callable[[Tensor, Tensor], Tensor]
"""State (…, h) after a gap (…, 1)."""


@dataclass(frozen=True, kw_only=True)
class JumpConfig(ForecastConfig):
    """Published settings of the jump."""

    hidden_size: int = 50
    observation_size: int = 25
    """Hidden units of the observation model p(h)."""
    feature_size: int = 10
    """Features of an observed entry."""
    dropout: float = 0.2
    """Inside the observation model."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_sizes("hidden_size", "observation_size", "feature_size")
        self.require_shares("dropout")


class Jump(nn.Module):
    """The state's own forecast, and what an observation does to the state:

        (μ, log σ²) = p(h),   f_c = ReLU(W_c [x_c, μ_c, log σ²_c, (x_c − μ_c)/σ_c]) where observed, else 0,
        h⁺ = GRU(f, h)

    with weights W_c for every channel. A row without observations leaves h as it is.
    """

    def __init__(self, config: JumpConfig) -> None:
        super().__init__()
        c, h, f = config.input_size, config.hidden_size, config.feature_size
        self.channels = c
        self.observation = nn.Sequential(
            Affine(h, config.observation_size),
            nn.ReLU(),
            nn.Dropout(config.dropout),
            Affine(config.observation_size, 2 * c),
        )
        self.weight, self.bias = nn.Parameter(0.5 * torch.randn(c, 4, f)), nn.Parameter(torch.full((c, f), 0.1))
        self.cell = GRUCell(c * f, h)

    def forecast(self, h: Float[Tensor, "... h"]) -> Float[Tensor, "... c"]:
        """μ."""
        mean: Tensor = self.observation(h)[..., : self.channels]
        return mean

    def forward(self, h: Float[Tensor, "b h"], x: Float[Tensor, "b c"], observed: Bool[Tensor, "b c"]) -> Tensor:
        mean, log_variance = self.observation(h).chunk(2, dim=-1)
        error = (x - mean) * torch.exp(-0.5 * log_variance)
        entries = torch.stack([x, mean, log_variance, error], dim=-1)
        features = (torch.einsum("bci,cif->bcf", entries, self.weight) + self.bias).relu() * observed.unsqueeze(-1)
        return torch.where(observed.any(dim=-1, keepdim=True), self.cell(features.flatten(1), h), h)


class JumpForecaster(ForecastModel):
    """Observations in turn: the state moves over the gap, then jumps. Each query is answered from the state after
    the last observation before it, moved to the query's time, so that asking more changes no answer.

    h₀ is learned; the published h₀ = tanh(MLP(covariates)) has no covariates here and is a constant too. Training
    is by the squared error of μ on the forecast window, not by a likelihood on the observed one.
    """

    config: JumpConfig

    def __init__(self, config: JumpConfig) -> None:
        super().__init__(config)
        self.start = nn.Parameter(torch.zeros(config.hidden_size))
        self.jump = Jump(config)

    @abstractmethod
    def advances(self) -> tuple[Advance, Advance]:
        """How states move in this call: over a gap, and from the last observation to a query."""

    def answer(self, question: Question) -> Tensor:
        dtype, (advance, reach) = question.values.dtype, self.advances()
        b, l = question.times.shape
        times = torch.cat([self.begin(question), question.times], dim=1)
        gaps = times.diff(dim=1).masked_fill(~question.valid, 0).to(dtype).unsqueeze(-1)
        h = self.start.tanh().expand(b, -1)
        states = [h]
        for k in range(l):
            h = self.jump(advance(h, gaps[:, k]), question.values[:, k], question.observed[:, k])
            states.append(h)

        before = (question.times.unsqueeze(1) <= question.query_times.unsqueeze(2)) & question.valid.unsqueeze(1)
        index = before.sum(dim=-1)  # (b, q): rows at or before the query; 0 is the start
        elapsed = (question.query_times - times.gather(1, index)).clamp_min(0).masked_fill(~question.query_valid, 0)
        trace = torch.stack(states, dim=1)
        held = trace.gather(1, index.unsqueeze(-1).expand(*index.shape, trace.shape[-1]))
        return self.jump.forecast(reach(held, elapsed.to(dtype).unsqueeze(-1)))
