"""Autocast ends where states begin."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def full_precision(x: Tensor) -> AbstractContextManager[Any]:
    """Inside, nothing is rounded to half precision: a recurrence adds up what rounding leaves at every step.

    Encoder and heads still run in the precision that `torch.autocast` chooses.
    """
    # Shapes without numbers are rounded by nobody, and torch has no autocast for them.
    if x.is_meta or not torch.is_autocast_enabled(x.device.type):
        return nullcontext()
    return torch.autocast(x.device.type, enabled=False)
