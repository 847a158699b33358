"""Neural Flows: the solution of a differential equation as a network F(h, Δ), with F(h, 0) = h and no solver."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tides.baselines.bayesian_jump import Advance, JumpConfig, JumpForecaster
from tides.baselines.perceptron import perceptron
from tides.baselines.spectral import SpectralLinear


@dataclass(frozen=True, kw_only=True)
class NeuralFlowConfig(JumpConfig):
    """Published settings of the jump; the sizes of the flow were tuned per dataset and are ours."""

    flow: Literal["resnet", "gru", "coupling"] = "resnet"
    depth: int = 2
    """Flows, one after the other."""
    flow_size: int = 50
    """Hidden units inside a flow (of `resnet` and `coupling`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_sizes("hidden_size", "depth", "flow_size")


class Flow(nn.Module, ABC):
    """An invertible map of states for every gap, the identity at gap 0."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.ones(width))

    def phi(self, gap: Tensor) -> Tensor:
        """φ(Δ) = tanh(α Δ): zero at zero and below one."""
        return torch.tanh(self.rate * gap)

    @abstractmethod
    def prepare(self) -> Advance:
        """F, with everything that does not depend on states computed once."""


class ResNetFlow(Flow):
    """F(h, Δ) = h + φ(Δ) g([h, Δ]) with a contraction g."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__(width)
        self.inner, self.outer = SpectralLinear(width + 1, hidden), SpectralLinear(hidden, width)

    def prepare(self) -> Advance:
        inner, outer = self.inner.scaled_weight(), self.outer.scaled_weight()

        def advance(h: Tensor, gap: Tensor) -> Tensor:
            hidden = torch.tanh(F.linear(torch.cat([h, gap], dim=-1), inner, self.inner.bias))
            return h + self.phi(gap) * F.linear(hidden, outer, self.outer.bias)

        return advance


class GRUFlow(Flow):
    """F(h, Δ) = h + φ(Δ) z (c − h),   z = 0.4 σ(f_z[h, Δ]),   r = 0.8 σ(f_r[h, Δ]),   c = tanh(f_c[r h, Δ])

    with contractions f; invertible on |h| ≤ 1, where it stays.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__(width)
        self.update, self.reset, self.candidate = (SpectralLinear(width + 1, width) for _ in range(3))

    def prepare(self) -> Advance:
        weights = [layer.scaled_weight() for layer in (self.update, self.reset, self.candidate)]

        def advance(h: Tensor, gap: Tensor) -> Tensor:
            both = torch.cat([h, gap], dim=-1)
            update = 0.4 * torch.sigmoid(F.linear(both, weights[0], self.update.bias))
            reset = 0.8 * torch.sigmoid(F.linear(both, weights[1], self.reset.bias))
            candidate = torch.tanh(F.linear(torch.cat([reset * h, gap], dim=-1), weights[2], self.candidate.bias))
            return h + self.phi(gap) * update * (candidate - h)

        return advance


class CouplingFlow(Flow):
    """One half moves as the other says, then the other as the one: x ← exp(s φ(Δ)) x + t φ(Δ), s, t = net([·, Δ]);
    |s| < 1."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__(width)
        self.split = width // 2
        rest = width - self.split
        self.second_from_first = perceptron(self.split + 1, hidden, 2 * rest, activation=nn.Tanh)
        self.first_from_second = perceptron(rest + 1, hidden, 2 * self.split, activation=nn.Tanh)

    def prepare(self) -> Advance:
        def advance(h: Tensor, gap: Tensor) -> Tensor:
            first, second = h[..., : self.split], h[..., self.split :]
            phi = self.phi(gap)
            second = self._move(second, self.second_from_first, first, gap, phi[..., self.split :])
            first = self._move(first, self.first_from_second, second, gap, phi[..., : self.split])
            return torch.cat([first, second], dim=-1)

        return advance

    def _move(self, x: Tensor, net: nn.Module, other: Tensor, gap: Tensor, phi: Tensor) -> Tensor:
        scale, shift = net(torch.cat([other, gap], dim=-1)).chunk(2, dim=-1)
        result: Tensor = torch.exp(torch.tanh(scale) * phi) * x + shift * phi
        return result


_FLOWS: dict[str, type[ResNetFlow] | type[GRUFlow] | type[CouplingFlow]] = {
    "resnet": ResNetFlow,
    "gru": GRUFlow,
    "coupling": CouplingFlow,
}


class NeuralFlow(JumpForecaster):
    """A state that moves by learned flows between observations and jumps at them (see `bayesian_jump`).

    Source: Biloš et al., "Neural Flows: Efficient Alternative to Neural ODEs", NeurIPS 2021 (arXiv 2110.13040).
    """

    config: NeuralFlowConfig

    def __init__(self, config: NeuralFlowConfig) -> None:
        super().__init__(config)
        kind = _FLOWS[config.flow]
        self.flows = nn.ModuleList(kind(config.hidden_size, config.flow_size) for _ in range(config.depth))

    def advances(self) -> tuple[Advance, Advance]:
        flows = [flow.prepare() for flow in self.flows if isinstance(flow, Flow)]

        def whole(h: Tensor, gap: Tensor) -> Tensor:
            for flow in flows:
                h = flow(h, gap)
            return h

        return whole, whole
