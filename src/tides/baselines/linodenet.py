"""LinODEnet: a linear differential equation in a learned latent space, corrected by a filter at observations."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tides.baselines.exponential import propagators, steps
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


class Prepared(nn.Module, ABC):
    """A network that meets every event of a series. What depends on weights alone is computed once, and handed out
    once per event by `unbind`: the gradients of all events are then added in one operation instead of one each.
    """

    @abstractmethod
    def weights(self) -> tuple[Tensor, ...]:
        """What `run` needs."""

    @abstractmethod
    def run(self, weights: tuple[Tensor, ...], x: Tensor, *more: Tensor) -> Tensor:
        """The network on x."""

    def per_event(self, events: int) -> list[tuple[Tensor, ...]]:
        each = [weight.expand(events, *weight.shape).unbind(0) for weight in self.weights()]
        return list(zip(*each, strict=True))

    def forward(self, x: Tensor, *more: Tensor) -> Tensor:
        return self.run(self.weights(), x, *more)


class ResidualNetwork(Prepared):
    """x ← x + ε (W ReLU)²(x), block by block, with ε = 0 at the start."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(2 * depth))
        self.gates = nn.Parameter(torch.zeros(depth))

    def weights(self) -> tuple[Tensor, ...]:
        found: list[Tensor] = []
        for index, layer in enumerate(self.layers):
            weight, bias = cast(nn.Linear, layer).weight.mT, cast(nn.Linear, layer).bias
            gate = self.gates[index // 2] if index % 2 else 1.0
            found += [weight * gate, bias * gate]
        return tuple(found)

    def run(self, weights: tuple[Tensor, ...], x: Tensor, *more: Tensor) -> Tensor:
        for block in range(0, len(weights), 4):
            inner, inner_bias, outer, outer_bias = weights[block : block + 4]
            x = x + ((x.relu() @ inner + inner_bias).relu() @ outer + outer_bias)
        return x


class Filter(Prepared):
    """What an observation y does to the forecast x̂, by one linear and then two nonlinear cells:

        x̂ ← x̂ − (I + ε B) m (I + ε A) m (x̂ − y),   x̂ ← x̂ − ε (W ReLU)²(B m A m (x̂ − y))

    without biases, so that nothing observed (m = 0) changes nothing. ε = 0 at the start: observed entries become y.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        # Two matrices of the linear cell, four of each nonlinear one.
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(10))
        self.gates = nn.Parameter(torch.zeros(4))

    def weights(self) -> tuple[Tensor, ...]:
        matrices = [cast(nn.Linear, layer).weight.mT for layer in self.layers]
        identity = torch.eye(matrices[0].shape[-1], dtype=matrices[0].dtype, device=matrices[0].device)
        gated = [identity + gate * matrix for gate, matrix in zip(self.gates[:2], matrices[:2], strict=True)]
        for cell, gate in ((2, self.gates[2]), (6, self.gates[3])):
            gated += [*matrices[cell : cell + 3], gate * matrices[cell + 3]]
        return tuple(gated)

    def run(self, weights: tuple[Tensor, ...], x: Tensor, *more: Tensor) -> Tensor:
        y, mask = more
        x = x - (mask * ((mask * (x - y)) @ weights[0])) @ weights[1]
        for cell in (2, 6):
            inner, outer, first, second = weights[cell : cell + 4]
            z = (mask * ((mask * (x - y)) @ inner)) @ outer
            x = x - (z.relu() @ first).relu() @ second
        return x


class LinODEnet(ForecastModel):
    """At every event, observation or query, in temporal order:

        ẑ = exp(γ A Δ) ẑ⁺,   x̂ = dec(ẑ),   x̂⁺ = filter(x̂, y),   ẑ⁺ = enc([x̂⁺, w])

    and x̂⁺ is the forecast. `Filter` leaves x̂ as it is when nothing is observed, but enc need not undo dec, so which
    times are asked together matters, as published. A starts skew-symmetric, γ at 0; the start ẑ⁺ and the filling w are
    learned. All gaps share a few matrices (`exponential.Propagators`), and those above four units of time count as
    four. Source: Scholz et al., "Latent Linear ODEs with Neural Kalman Filtering for Irregular Time Series
    Forecasting", 2023.
    """

    config: LinODEnetConfig

    def __init__(self, config: LinODEnetConfig) -> None:
        super().__init__(config)
        h, n = config.hidden_size, config.latent_size
        gaussian = torch.randn(n, n) / math.sqrt(n)
        self.dynamics = nn.Parameter((gaussian - gaussian.T) / math.sqrt(2))
        self.speed = nn.Parameter(torch.zeros(()))
        self.start, self.filling = nn.Parameter(torch.randn(n)), nn.Parameter(torch.randn(n - h))
        self.encoder, self.decoder = ResidualNetwork(n, config.depth), ResidualNetwork(n, config.depth)
        self.filter = Filter(h)

    def answer(self, question: Question) -> Tensor:
        events = self.events(question)
        b, c = events.values.shape[0], self.channels
        unseen = (0, self.config.hidden_size - c)
        y, mask = F.pad(events.values, unseen), F.pad(events.observed.to(events.values.dtype), unseen)
        flow = propagators(self.speed * self.dynamics)
        digits, powers = steps(events.gaps)
        filling = self.filling.expand(b, -1)
        networks = zip(*(part.per_event(y.shape[1]) for part in (self.decoder, self.filter, self.encoder)), strict=True)
        state, forecasts = self.start.expand(b, -1), []
        for k, (decoder, filtering, encoder) in enumerate(networks):
            state = flow.advance(state, digits[:, k], powers[:, k])
            prior = self.decoder.run(decoder, state)[:, : self.config.hidden_size]
            estimate = self.filter.run(filtering, prior, y[:, k], mask[:, k])
            forecasts.append(estimate[:, :c])
            state = self.encoder.run(encoder, torch.cat([estimate, filling], dim=-1))
        return events.line.answers(torch.stack(forecasts, dim=1))
