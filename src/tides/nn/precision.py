"""Autocast ends where states begin."""

import torch
from torch import Tensor


def full_precision(x: Tensor) -> torch.autocast:
    """Inside, nothing is rounded to half precision: a recurrence adds up what rounding leaves at every step.

    Encoder and heads still run in the precision that `torch.autocast` chooses.
    """
    return torch.autocast(x.device.type, enabled=False)
