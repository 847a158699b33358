"""Neural RDE (Morrill et al. 2021, arXiv 2009.08295), with the settings of Walker et al. 2024."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tides.baselines.cde import CDEConfig, Field, heun
from tides.baselines.classifier import Classifier
from tides.baselines.inputs import Series
from tides.baselines.path import make_path
from tides.baselines.signature import log_signature, log_signature_size
from tides.fields import require


@dataclass(frozen=True, kw_only=True)
class NRDEConfig(CDEConfig):
    """Sizes of an NRDE and its windows. Level 2 has d + d(d−1)/2 numbers per window, which makes wide data dear."""

    level: int = 2
    window: int = 4
    """Points per window."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_sizes("window")
        require(self, ("level",), lambda value: value in (1, 2), "1 or 2")

    @property
    def control_size(self) -> int:
        return log_signature_size(self.width, self.level)


class NRDE(Classifier):
    """A neural CDE that moves from window to window, driven by log-signatures instead of increments:

        dh/ds = F(h) · logsig(window i),   s ∈ [i, i+1]

    F(h) = W tanh(MLP(h)) is a matrix (hidden, size of the log-signature). The path begins at the origin, and each
    window begins with the last point of the one before; one Heun step per window.
    """

    def __init__(self, config: NRDEConfig) -> None:
        super().__init__(config)
        self.settings = config
        h, width = config.hidden_size, config.field_width
        self.start = nn.Linear(config.width, h)
        self.field = Field(h, width, config.field_depth - 1, width) if config.field_depth > 1 else None
        self.matrix = nn.Linear(width if config.field_depth > 1 else h, h * config.control_size)
        self.head = nn.Linear(h, config.classes)

    def logits(self, series: Series) -> Tensor:
        points, _ = make_path(series, self.settings)
        controls = window_log_signatures(points, self.settings.window, self.settings.level)
        h = heun(self.start(points[:, 0]), self._slope, ((one, one) for one in controls.unbind(1)))
        answer: Tensor = self.head(h)
        return answer

    def _slope(self, h: Tensor, control: Tensor) -> Tensor:
        features = h if self.field is None else self.field(h)
        matrix = self.matrix(features).view(len(h), h.shape[-1], control.shape[-1])
        result: Tensor = (matrix @ control.unsqueeze(-1)).squeeze(-1)
        return result


def window_log_signatures(points: Tensor, window: int, level: int) -> Tensor:
    """(b, windows, size): log-signatures of consecutive windows of a path (b, l, d) that begins at the origin.

    The last window ends with the path.
    """
    l = points.shape[1]
    based = F.pad(points, (0, 0, 1, 0))
    missing = -l % window
    if missing:
        based = torch.cat([based, based[:, -1:].expand(-1, missing, -1)], dim=1)
    pieces = based.unfold(1, window + 1, window).transpose(-1, -2)  # (b, windows, window + 1, d)
    return log_signature(pieces, level)
