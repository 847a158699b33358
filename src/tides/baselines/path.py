"""The path behind a series: what CDE and signature models read instead of separate observations.

Between observations of a channel the path is straight, before the first and after the last it is constant, and a
channel never observed stays at 0. Flags become the share of steps at which the channel was observed so far (the
observational intensity of Kidger et al. 2020), because a path must tell how often it was looked at, not whether.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from tides.baselines.config import ClassificationConfig
from tides.baselines.inputs import Series


class Path(NamedTuple):
    """Points (b, l, width) at moments (b, l) in [0, 1]; padding repeats the last valid point and moment."""

    points: Tensor
    moments: Tensor


def make_path(series: Series, config: ClassificationConfig) -> Path:
    """Time channel if asked for, filled values, intensities if asked for."""
    elapsed = series.elapsed
    total = elapsed[:, -1:]
    last = (series.valid.sum(-1, keepdim=True) - 1).clamp_min(0)
    count = torch.arange(elapsed.shape[1], device=elapsed.device).minimum(last).to(elapsed.dtype)
    # Without any elapsed time the steps themselves count.
    moments = torch.where(total > 0, elapsed / total.masked_fill(total <= 0, 1), count / last.clamp_min(1))
    channels = [fill(series.values, series.observed, moments)]
    if config.mask_channels is True:
        channels.append(series.observed.to(moments.dtype).cumsum(1) / (last + 1).unsqueeze(-1))
    if config.time_channel == "index":
        channels.insert(0, (count / (last + 1)).unsqueeze(-1))
    elif config.time_channel == "elapsed":
        channels.insert(0, moments.unsqueeze(-1))
    elif config.time_channel == "gap":
        channels.insert(0, elapsed.unsqueeze(-1))
    return Path(torch.cat(channels, dim=-1), moments)


def fill(values: Tensor, observed: Tensor, moments: Tensor) -> Tensor:
    """Values (b, l, d) with missing entries on the straight line between their channel's neighbours in time."""
    l = values.shape[1]
    index = torch.arange(l, device=values.device)[None, :, None].expand_as(values)
    before = index.masked_fill(~observed, -1).cummax(1).values
    after = index.masked_fill(~observed, l).flip(1).cummin(1).values.flip(1)
    seen = (before >= 0) | (after < l)
    left = torch.where(before >= 0, before, after).clamp(0, l - 1)
    right = torch.where(after < l, after, before).clamp(0, l - 1)
    wide = moments.unsqueeze(-1).expand_as(values)
    start, stop = wide.gather(1, left), wide.gather(1, right)
    span = stop - start
    share = ((wide - start) / span.masked_fill(span <= 0, 1)).masked_fill(span <= 0, 0)
    filled = torch.lerp(values.gather(1, left), values.gather(1, right), share)
    return filled.masked_fill(~seen, 0)
