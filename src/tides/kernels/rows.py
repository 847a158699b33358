"""Maps and sums over the rows of a batch: what surrounds the blocks of a model.

On a GPU, torch copies a bias, multiplies and adds in passes of their own, and sums over many rows with a part of the
processors; long series of few channels spend as much time there as in a block's smaller kernels.
"""

from torch import Tensor
from torch.nn import functional as F

from tides.kernels.dispatch import rows_operators


def row_map(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x Wᵀ + b for x (…, d)."""
    h, d = weight.shape
    operators = rows_operators(x)
    if operators is None or d > operators.WIDEST[0] or h > operators.WIDEST[1] or x.numel() < d * operators.LEAST:
        return F.linear(x, weight, bias)
    mapped: Tensor = operators.RowMap.apply(x, weight, bias)
    return mapped


def step_sum(x: Tensor) -> Tensor:
    """Σ over the steps of x (b, l, h)."""
    operators = rows_operators(x)
    if operators is None or x.shape[2] > operators.WIDEST[1] or x.shape[0] * x.shape[1] < operators.LEAST:
        return x.sum(1)
    total: Tensor = operators.StepSum.apply(x)
    return total
