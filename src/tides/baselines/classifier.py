"""`Classifier`: the call contract of `nn.SequenceClassifier` for competing models."""

from abc import ABC, abstractmethod
from typing import Self

from torch import Tensor, nn

from tides.baselines.config import ClassificationConfig
from tides.baselines.inputs import Inputs, Series
from tides.errors import ShapeError


class Classifier(nn.Module, ABC):
    """logits (b, k) = model(x (b, l, d), gaps, observed=…, valid=…); subclasses answer for a prepared `Series`."""

    def __init__(self, config: ClassificationConfig) -> None:
        super().__init__()
        self.config, self.classes = config, config.classes
        self.inputs = Inputs(config)

    def forward(
        self,
        x: Tensor,
        gaps: Tensor | float,
        *,
        observed: Tensor | None = None,
        valid: Tensor | None = None,
        static: Tensor | None = None,
    ) -> Tensor:
        if static is not None:
            raise ShapeError(
                f"static: found shape {tuple(static.shape)}, but {type(self).__name__} takes no covariates"
            )
        return self.logits(self.inputs(x, gaps, observed, valid))

    @abstractmethod
    def logits(self, series: Series) -> Tensor:
        """(b, k) from checked and scaled inputs; what stands in padding must not matter."""

    def calibrate(self, gaps: Tensor, shift: Tensor | None = None, scale: Tensor | None = None) -> Self:
        """Store the training data's scales: gaps for the time scale, shift and scale for the channels."""
        self.inputs.calibration.fit_time(gaps)
        if shift is not None or scale is not None:
            self.inputs.calibration.fit_values(shift, scale)
        return self

    def gaps(self, times: Tensor, valid: Tensor | None = None) -> Tensor:
        """Gaps of these times with the stored first-gap policy."""
        return self.inputs.calibration.gaps(times, valid)

    def count_parameters(self) -> int:
        """Learned numbers."""
        return sum(parameter.numel() for parameter in self.parameters())


def mean_over_time(features: Tensor, valid: Tensor) -> Tensor:
    """Mean (b, h) over the valid steps."""
    weight = valid.unsqueeze(-1).to(features.dtype)
    return (features * weight).sum(1) / weight.sum(1).clamp_min(1)
