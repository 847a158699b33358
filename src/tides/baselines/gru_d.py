"""GRU-D (Che et al. 2018, arXiv 1606.01865): a GRU whose inputs and state decay while nothing is observed."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from tides.baselines.classifier import Classifier
from tides.baselines.config import ClassificationConfig
from tides.baselines.inputs import Series
from tides.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class GRUDConfig(ClassificationConfig):
    """Sizes of a GRU-D. It reads observation flags by itself, so that `mask_channels` says nothing about its input."""

    hidden_size: int = 64
    dropout: float = 0.0
    """Before the head."""
    mask_channels: bool | Literal["auto"] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_sizes("hidden_size")
        self.require_shares("dropout")
        if self.time_channel != "none" or self.mask_channels is not True:
            raise ConfigError(
                "time_channel, mask_channels: GRU-D has its own use of time and flags, wanted 'none' and True"
            )


class GRUD(Classifier):
    """With m the flags of a step, δ each channel's time since it was last observed and x′ its last value:

        γ_x = exp(−max(0, w ⊙ δ + b)),   x̂ = m ⊙ x + (1 − m) ⊙ (γ_x ⊙ x′ + (1 − γ_x) ⊙ x̄)
        γ_h = exp(−max(0, W δ + b)),     h ← GRU([x̂, m], γ_h ⊙ h),   logits = W h(end) + b

    The training mean x̄ is 0 here, because values are scaled with training statistics before. Times are in units of the
    time scale. Sequential in time.
    """

    def __init__(self, config: GRUDConfig) -> None:
        super().__init__(config)
        d, h = config.input_size, config.hidden_size
        self.input_rate, self.input_shift = nn.Parameter(torch.zeros(d)), nn.Parameter(torch.zeros(d))
        self.state_decay = nn.Linear(d, h)
        self.cell = nn.GRUCell(2 * d, h)
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(h, config.classes)
        # Rates start above zero, where their gradient is not.
        nn.init.uniform_(self.input_rate, 0.0, 0.1)
        nn.init.uniform_(self.input_shift, 0.0, 0.1)

    def logits(self, series: Series) -> Tensor:
        values, since = last_values(series)
        flags = series.observed.to(values.dtype)
        decay = torch.exp(-torch.relu(self.input_rate * since + self.input_shift))
        inputs = torch.cat([flags * series.values + (1 - flags) * decay * values, flags], dim=-1)
        forget = torch.exp(-torch.relu(self.state_decay(since)))
        h = torch.zeros_like(forget[:, 0])
        for x, gamma, real in zip(inputs.unbind(1), forget.unbind(1), series.valid.unbind(1), strict=True):
            h = torch.where(real.unsqueeze(-1), self.cell(x, gamma * h), h)
        answer: Tensor = self.head(self.dropout(h))
        return answer


def last_values(series: Series) -> tuple[Tensor, Tensor]:
    """Before every step: each channel's last observed value (0 if none) and the time since, both (b, l, d).

    A channel that was never observed counts from the beginning of the series.
    """
    l = series.values.shape[1]
    index = torch.arange(l, device=series.values.device)[None, :, None].expand_as(series.values)
    newest = index.masked_fill(~series.observed, -1).cummax(1).values
    before = torch.cat([torch.full_like(newest[:, :1], -1), newest[:, :-1]], dim=1)
    known = before >= 0
    rows = before.clamp_min(0)
    values = series.values.gather(1, rows).masked_fill(~known, 0)
    elapsed = series.elapsed.unsqueeze(-1).expand_as(series.values)
    return values, elapsed - elapsed.gather(1, rows).masked_fill(~known, 0)
