"""Tensors as the contiguous NumPy arrays that compiled loops take, copying only what is not contiguous already."""

from typing import Any

import numpy as np
import torch
from torch import Tensor


def rows(x: Tensor) -> Any:
    """(rows, everything else) over the memory of `x`; complex numbers are pairs."""
    if x.is_complex():
        x = torch.view_as_real(x.resolve_conj())
    return x.detach().contiguous().flatten(1).numpy()


def flat(x: Tensor) -> Any:
    """The numbers of a contiguous tensor, one behind the other; a view of NumPy's costs a fraction of torch's."""
    return x.numpy().reshape(-1)


def broadcast_rows(x: Tensor, axes: int) -> Any:
    """`rows` of a tensor whose first `axes` axes have length one again where `expand` made them: nothing is copied."""
    for axis in range(axes):
        if x.stride(axis) == 0:
            x = x.narrow(axis, 0, 1)
    return rows(x)


def nothing(like: Any) -> Any:
    """An array without rows that stands for an absent argument."""
    return np.empty((0, 0), dtype=like.dtype)
