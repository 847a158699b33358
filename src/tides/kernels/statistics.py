"""Mean and variance of every channel over all rows, keeping nothing but the rows.

torch's own `var_mean` over leading axes runs one number at a time on a CPU; two passes of plain sums are ten times
faster there and as accurate, because the second one is centred.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from tides.kernels.batching import merge_leading_axis


class RunningNorm(NamedTuple):
    """Running statistics of a batch norm: in training they follow those of the batch, else they are what it uses."""

    mean: Tensor
    var: Tensor
    eps: float
    momentum: float
    training: bool


def row_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (h) and biased variance (h) of x (…, h)."""
    mean, var = statistics_op(x.reshape(1, -1, x.shape[-1]))
    return mean.squeeze(0), var.squeeze(0)


@torch.library.custom_op("tides::row_statistics", mutates_args=())
def statistics_op(x: Tensor) -> tuple[Tensor, Tensor]:
    """(m, n, h) → mean (m, h), variance (m, h)."""
    if x.device.type != "cpu":
        var, mean = torch.var_mean(x, 1, correction=0)
        return mean, var
    mean = x.mean(1)
    return mean, (x - mean.unsqueeze(1)).square_().mean(1)


@statistics_op.register_fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape[0], x.shape[2]), x.new_empty(x.shape[0], x.shape[2])


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(inputs[0], output[0])


def _backward(ctx: Any, d_mean: Tensor, d_var: Tensor) -> Tensor:
    """dx = (dμ + 2 dσ² (x − μ))/n."""
    x, mean = ctx.saved_tensors
    slope = d_var * (2 / x.shape[1])
    return torch.addcmul((d_mean / x.shape[1] - mean * slope).unsqueeze(1), x, slope.unsqueeze(1))


statistics_op.register_autograd(_backward, setup_context=_setup)
torch.library.register_vmap(statistics_op, merge_leading_axis(statistics_op))
