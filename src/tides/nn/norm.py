"""Normalisation in front of each SSM, without learned scale or shift (paper, appendix A)."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from tides.errors import DataError
from tides.functional.gaps import values_can_be_checked
from tides.kernels.statistics import row_statistics


class Statistics(NamedTuple):
    """Mean and variance of each channel with which a batch was normalised."""

    mean: Tensor
    var: Tensor


class MaskedBatchNorm(nn.Module):
    """BatchNorm over the valid steps of batch and time: padding never enters the statistics.

    Running variance is unbiased with the number of valid steps; evaluation uses the running statistics, so that a
    stream is normalised as a batch is.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def statistics(self, x: Tensor, valid: Tensor | None = None) -> Statistics:
        """Of this batch in training (updating the running ones), the running ones in evaluation."""
        if not self.training:
            return Statistics(self.running_mean, self.running_var)
        axes = tuple(range(x.ndim - 1))
        if valid is None:
            count: Tensor | int = x[..., 0].numel()
            mean, var = row_statistics(x)
        else:
            weight = valid.unsqueeze(-1).to(x.dtype)
            count = valid.sum()
            mean = (x * weight).sum(axes) / count
            var = ((x - mean).square() * weight).sum(axes) / count
        if (isinstance(count, int) or values_can_be_checked(x)) and count < 2:
            raise DataError("norm: one valid step has no variance; train with at least two steps per batch")
        with torch.no_grad():
            unbiased = var * count / (count - 1)
            # The sums that `lerp_` would form, which vmap has no rule for.
            self.running_mean.add_(mean - self.running_mean, alpha=self.momentum)
            self.running_var.add_(unbiased - self.running_var, alpha=self.momentum)
        return Statistics(mean, var)

    def normalise(self, x: Tensor, statistics: Statistics | None = None) -> Tensor:
        """`x` with the given statistics (queries never enter their own), or with the running ones."""
        scale, shift = self.affine(statistics or Statistics(self.running_mean, self.running_var))
        # In this form autograd keeps `x` alone, which the block keeps anyway.
        return torch.addcmul(shift, x, scale)

    def affine(self, statistics: Statistics) -> tuple[Tensor, Tensor]:
        """(scale, shift) with which x ⊙ scale + shift is normalised."""
        scale = torch.rsqrt(statistics.var + self.eps)
        return scale, -statistics.mean * scale


class RowNorm(nn.Module):
    """LayerNorm or RMSNorm of every row by itself: nothing is shared between steps, series or batches."""

    def __init__(self, kind: Literal["layer", "rms"], eps: float = 1e-5) -> None:
        super().__init__()
        self.kind, self.eps = kind, eps

    def statistics(self, x: Tensor, valid: Tensor | None = None) -> None:
        """A row needs none but its own."""

    def normalise(self, x: Tensor, statistics: Statistics | None = None) -> Tensor:
        centred = x - x.mean(-1, keepdim=True) if self.kind == "layer" else x
        return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + self.eps)


def make_norm(kind: Literal["batch", "layer", "rms"], width: int) -> MaskedBatchNorm | RowNorm:
    return MaskedBatchNorm(width) if kind == "batch" else RowNorm(kind)
