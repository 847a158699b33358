"""Autocast is switched off where states are computed."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def full_precision(x: Tensor) -> AbstractContextManager[Any]:
    """A context without half precision: a recurrence would add up rounding errors over all steps.

    Encoder and heads still run in the precision that `torch.autocast` chooses.
    """
    # Meta tensors have no values to round, and torch has no autocast for them.
    if x.is_meta or not torch.is_autocast_enabled(x.device.type):
        return nullcontext()
    return torch.autocast(x.device.type, enabled=False)
