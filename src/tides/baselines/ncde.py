"""Neural CDE (Kidger et al. 2020, arXiv 2005.08926), with the settings of Walker et al. 2024."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from tides.baselines.cde import CDEConfig, Field, heun
from tides.baselines.classifier import Classifier
from tides.baselines.inputs import Series
from tides.baselines.path import make_path
from tides.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class NCDEConfig(CDEConfig):
    """Sizes of an NCDE and its solver: one Heun step per observation as published, or a method of torchdiffeq."""

    solver: Literal["heun", "rk4", "dopri5"] = "heun"


class NCDE(Classifier):
    """A hidden state driven by the observed path X:

        h(0) = W₀ X(0) + b₀,   dh = f(h) dX,   logits = W h(end) + b

    f is an MLP with ReLU and a final tanh, whose output is a matrix (hidden, channels). X is the cubic Hermite spline
    through the points whose slope at a point is the difference to the point before, so that no later point matters.
    Points are one unit apart: durations enter through the time channel. Sequential in time, hence slow.
    """

    def __init__(self, config: NCDEConfig) -> None:
        super().__init__(config)
        self.settings = config
        self.start = nn.Linear(config.width, config.hidden_size)
        self.field = Field(
            config.hidden_size, config.field_width, config.field_depth, config.hidden_size * config.width
        )
        self.head = nn.Linear(config.hidden_size, config.classes)

    def logits(self, series: Series) -> Tensor:
        points, _ = make_path(series, self.settings)
        h = self.start(points[:, 0])
        if points.shape[1] > 1:
            solve = self._heun if self.settings.solver == "heun" else self._library
            h = solve(h, points, series.valid)
        answer: Tensor = self.head(h)
        return answer

    def matrix(self, t: Tensor | float, h: Tensor) -> Tensor:
        """f(h), (b, hidden, width); it does not depend on t, which solvers pass."""
        result: Tensor = self.field(h).view(len(h), h.shape[-1], -1)
        return result

    def _drive(self, h: Tensor, slope: Tensor) -> Tensor:
        return (self.matrix(0.0, h) @ slope.unsqueeze(-1)).squeeze(-1)

    def _heun(self, h: Tensor, points: Tensor, valid: Tensor) -> Tensor:
        # Heun's method looks at the spline at the points alone, where its slope is the difference to the point before.
        after = points.diff(dim=1)
        before = torch.cat([after[:, :1], after[:, :-1]], dim=1)
        # Nothing moves behind the end of a series.
        before = before * valid[:, 1:].unsqueeze(-1)
        pairs = zip(before.unbind(1), after.unbind(1), strict=True)
        return heun(h, self._drive, pairs)

    def _library(self, h: Tensor, points: Tensor, valid: Tensor) -> Tensor:
        """Other solvers; the adaptive one chooses its steps for the whole batch, to a tolerance of 1e-6."""
        try:
            import torchcde
        except ImportError as error:
            raise ConfigError(
                f"solver: {self.settings.solver!r} needs torchcde; install tides-ssm[baselines] or use 'heun'"
            ) from error
        path = torchcde.CubicSpline(torchcde.hermite_cubic_coefficients_with_backward_differences(points))
        rule = {"options": {"step_size": 1.0}} if self.settings.solver == "rk4" else {"rtol": 1e-6, "atol": 1e-8}
        states: Tensor = torchcde.cdeint(
            X=path, func=self.matrix, z0=h, t=path.grid_points, adjoint=False, method=self.settings.solver, **rule
        )
        # Behind the end of a series the spline swings once more, so each is read at its own last point.
        last = (valid.sum(-1) - 1).clamp_min(0)
        return states[torch.arange(len(h), device=h.device), last]
