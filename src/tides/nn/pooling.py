"""How the features of all steps become those of a series."""

import torch
from torch import Tensor

from tides.kernels.rows import step_sum
from tides.nn.checks import check_gaps


def pool_steps(features: Tensor, gaps: Tensor | float, valid: Tensor | None, pool: str) -> Tensor:
    """Features (b, l, h) → (b, h): their mean, the last one, or the mean weighted by the gap before each step."""
    if pool == "last":
        return take_last(features, valid)
    if pool == "mean" and valid is None:
        # The sum's gradient is the same for every step and takes no memory; that of `mean` would.
        return step_sum(features) / features.shape[1]
    weight = torch.ones_like(features[..., 0])
    if pool == "time":
        weight = check_gaps(gaps, features, valid)
    elif valid is not None:
        weight = weight * valid
    total = weight.sum(1, keepdim=True)
    pooled = (features * weight.unsqueeze(-1)).sum(1) / torch.where(total > 0, total, torch.ones_like(total))
    # Gaps that are all zero carry no time; the newest step then speaks for the series, as it does in `step`.
    return torch.where(total > 0, pooled, take_last(features, valid))


def divide(total: Tensor, weight: Tensor, otherwise: Tensor) -> Tensor:
    """Weighted means (b, h); rows without weight take what stands in `otherwise`."""
    positive = (weight > 0).unsqueeze(-1)
    return torch.where(positive, total / weight.clamp_min(1e-300).unsqueeze(-1), otherwise)


def take_last(features: Tensor, valid: Tensor | None) -> Tensor:
    """The features of the last valid step."""
    if valid is None:
        return features[:, -1]
    index = (valid.sum(-1) - 1).clamp_min(0)
    return features[torch.arange(features.shape[0], device=features.device), index]
