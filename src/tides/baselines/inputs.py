"""The door of a classifier: checked and scaled values, extra channels, and the times inside a series."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from tides.baselines.config import ClassificationConfig
from tides.errors import ConfigError
from tides.functional.gaps import values_can_be_checked
from tides.nn.calibration import Calibration
from tides.nn.checks import check_gaps, check_observed, check_signal, check_valid


class Series(NamedTuple):
    """A prepared batch. Values are 0 where nothing was observed and in padding; gaps are 0 in padding."""

    x: Tensor
    """(b, l, width): time channel if asked for, scaled values, flags if asked for."""
    values: Tensor
    """(b, l, d): the scaled values alone."""
    gaps: Tensor
    """(b, l) in units of the time scale."""
    observed: Tensor
    """(b, l, d) bool, false in padding."""
    valid: Tensor
    """(b, l) bool."""
    padded: bool = True
    """False where every step of the batch is known to be valid."""

    @property
    def elapsed(self) -> Tensor:
        """(b, l): time since the first step in units of the time scale; padding repeats the last valid one."""
        return elapsed(self.gaps)


class Inputs(nn.Module):
    """Calibration buffers and what a config asks to be put beside the values."""

    def __init__(self, config: ClassificationConfig) -> None:
        super().__init__()
        self.config = config
        self.calibration = Calibration(config)

    def forward(self, x: Tensor, gaps: Tensor | float, observed: Tensor | None, valid: Tensor | None) -> Series:
        config = self.config
        x = check_signal(x, config.input_size, self.calibration.shift)
        valid = check_valid(valid, x)
        gaps = self.calibration.scaled_gaps(check_gaps(gaps, x, valid))
        x, observed = check_observed(observed, x, valid)
        present = torch.ones_like(gaps, dtype=torch.bool) if valid is None else valid
        seen = present.unsqueeze(-1).expand_as(x)
        if observed is not None:
            self._check_mask_channels(observed, present)
            seen = seen & observed
        values = self.calibration.scaled_values(x).masked_fill(~seen, 0)
        channels = [values]
        if config.mask_channels is True:
            channels.append(seen.to(x.dtype))
        if config.time_channel != "none":
            channels.insert(0, self._time(gaps, present).unsqueeze(-1))
        return Series(torch.cat(channels, dim=-1), values, gaps, seen, present, padded=valid is not None)

    def _time(self, gaps: Tensor, valid: Tensor) -> Tensor:
        match self.config.time_channel:
            case "index":
                return index_share(valid, gaps.dtype)
            case "elapsed":
                return elapsed_share(gaps)
            case _:
                return gaps

    def _check_mask_channels(self, observed: Tensor, valid: Tensor) -> None:
        if self.config.mask_channels != "auto" or not values_can_be_checked(observed):
            return
        if not bool((observed | ~valid.unsqueeze(-1)).all()):
            raise ConfigError(
                "mask_channels: 'auto' was built without mask channels, but `observed` has missing values; "
                "build with mask_channels=True (or False to read missing values as zeros)"
            )


def index_share(valid: Tensor, dtype: torch.dtype) -> Tensor:
    """k/n for step k = 0, 1, … of a series of n valid steps (b, l)."""
    steps = torch.arange(valid.shape[-1], device=valid.device, dtype=dtype)
    return (steps / valid.sum(-1, keepdim=True).clamp_min(1)).masked_fill(~valid, 0)


def elapsed_share(gaps: Tensor) -> Tensor:
    """Time since the first observation as a share of all gaps, in [0, 1); on a regular grid it is `index_share`.

    Padding, whose gaps are 0, repeats the last valid time.
    """
    total = gaps.sum(-1, keepdim=True)
    return elapsed(gaps) / total.masked_fill(total <= 0, 1)


def elapsed(gaps: Tensor) -> Tensor:
    """Time since the first step (…, l); however long the first gap is, it costs the others no digits."""
    return torch.cat([torch.zeros_like(gaps[..., :1]), gaps[..., 1:]], dim=-1).cumsum(-1)
