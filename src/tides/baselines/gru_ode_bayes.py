"""GRU-ODE-Bayes: the continuous limit of a gated recurrent unit, with Bayesian jumps at observations."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tides.baselines.bayesian_jump import Advance, JumpConfig, JumpForecaster
from tides.baselines.runge_kutta import runge_kutta


@dataclass(frozen=True, kw_only=True)
class GRUODEBayesConfig(JumpConfig):
    """Published settings; the solver is ours."""

    substeps: int = 2
    """Runge-Kutta steps of fourth order per gap. The field's rates are about one per unit of time, so few do."""
    query_substeps: int = 8
    """The same from the last observation to a query, which is usually further."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_sizes("substeps", "query_substeps")


class GRUField(nn.Module):
    """dh/dt = (1 − z)(g − h),   r, z = σ(W h),   g = tanh(W (r h)); |h| ≤ 1 is never left."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gates, self.candidate = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, h: Tensor) -> Tensor:
        # 1 − σ(W h) is σ(−W h), and the sign belongs to the weights.
        reset, move = torch.sigmoid(self.gates(h)).chunk(2, dim=-1)
        result: Tensor = move * (torch.tanh(self.candidate(reset * h)) - h)
        return result


class GRUODEBayes(JumpForecaster):
    """A state that follows `GRUField` between observations and jumps at them (see `bayesian_jump`).

    The field has no explicit time, so every gap is its own initial value problem, solved by a fixed number of
    Runge-Kutta steps of its own length: event times are exact and all series advance together, where the published
    runs take Euler steps of 0.0006 on [0, 1]. The rates of the field cannot exceed one per unit of time: a smaller
    `time_scale` makes faster systems reachable. Source: De Brouwer et al., "GRU-ODE-Bayes: Continuous modeling of
    sporadically-observed time series", NeurIPS 2019 (arXiv 1905.12374).
    """

    config: GRUODEBayesConfig

    def __init__(self, config: GRUODEBayesConfig) -> None:
        super().__init__(config)
        self.field = GRUField(config.hidden_size)

    def advances(self) -> tuple[Advance, Advance]:
        return (
            lambda h, gap: self.solve(h, gap, self.config.substeps),
            lambda h, elapsed: self.solve(h, elapsed, self.config.query_substeps),
        )

    def solve(self, h: Tensor, gap: Tensor, substeps: int) -> Tensor:
        """State (…, h) after `gap` (…, 1)."""
        return runge_kutta(self.field, h, gap, substeps)
