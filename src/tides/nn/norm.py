"""Normalisation in front of each SSM, without learned scale or shift (paper, appendix A)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from tides.errors import DataError
from tides.functional.gaps import values_can_be_checked
from tides.kernels.statistics import RunningNorm, row_statistics

_ONE_STEP = "norm: one valid step has no variance; train with at least two steps per batch"


class Statistics(NamedTuple):
    """Mean and variance of each channel used to normalise a batch."""

    mean: Tensor
    var: Tensor


Gather = Callable[[Tensor], Tensor]
"""From this process's row (k) to the rows (n, k) of all n processes; differentiable."""


class MaskedBatchNorm(nn.Module):
    """BatchNorm over the valid steps of batch and time: padding never enters the statistics.

    Running variance is unbiased with the number of valid steps; evaluation uses the running statistics, so that a
    stream is normalised as a batch is. Within `joint_statistics` the batch is that of all processes together.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.gather: Gather | None = None
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def statistics(self, x: Tensor, valid: Tensor | None = None) -> Statistics:
        """Those of this batch in training (which updates the running ones), the running ones in evaluation."""
        if not self.training:
            return Statistics(self.running_mean, self.running_var)
        count, mean, var = _moments(x, valid)
        if self.gather is not None:
            count, mean, var = _join(self.gather, count, mean, var)
        if (isinstance(count, int) or values_can_be_checked(x)) and count < 2:
            raise DataError(_ONE_STEP)
        with torch.no_grad():
            unbiased = var * count / (count - 1)
            # The sums that `lerp_` would form, which vmap has no rule for.
            self.running_mean.add_(mean - self.running_mean, alpha=self.momentum)
            self.running_var.add_(unbiased - self.running_var, alpha=self.momentum)
        return Statistics(mean, var)

    def running(self, x: Tensor, valid: Tensor | None) -> RunningNorm:
        """The running statistics, for an operator that computes those of the batch `x` itself."""
        if self.training:
            rows = x.shape[:-1].numel()
            if rows < 2 or (valid is not None and values_can_be_checked(x) and valid.sum() < 2):
                raise DataError(_ONE_STEP)
        return RunningNorm(self.running_mean, self.running_var, self.eps, self.momentum, self.training)

    def normalise(self, x: Tensor, statistics: Statistics | None = None) -> Tensor:
        """`x` with the given statistics (queries never enter their own), or with the running ones."""
        scale, shift = self.affine(statistics or Statistics(self.running_mean, self.running_var))
        # In this form autograd keeps `x` alone, which the block keeps anyway.
        return torch.addcmul(shift, x, scale)

    def forward(self, x: Tensor, statistics: Statistics | None = None) -> Tensor:
        """`normalise`, as a call that triggers hooks."""
        return self.normalise(x, statistics)

    def affine(self, statistics: Statistics) -> tuple[Tensor, Tensor]:
        """(scale, shift) with which x ⊙ scale + shift is normalised."""
        scale = torch.rsqrt(statistics.var + self.eps)
        return scale, -statistics.mean * scale


def _moments(x: Tensor, valid: Tensor | None) -> tuple[Tensor | int, Tensor, Tensor]:
    """Number of valid steps, mean and biased variance of every channel over them."""
    if valid is None:
        return x[..., 0].numel(), *row_statistics(x)
    axes = tuple(range(x.ndim - 1))
    weight = valid.unsqueeze(-1).to(x.dtype)
    count = valid.sum()
    mean = (x * weight).sum(axes) / count
    return count, mean, ((x - mean).square() * weight).sum(axes) / count


def _join(gather: Gather, count: Tensor | int, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Moments of all processes' steps from those of each, all in one exchange.

    With shares w_i = n_i/n the mean is μ = Σ w_i μ_i, and the variance Σ w_i (σ_i² + (μ_i − μ)²) that within the parts
    and that between them: no difference of large numbers.
    """
    number = torch.as_tensor(count, device=mean.device).reshape(1)
    precise = torch.promote_types(mean.dtype, torch.float32)
    rows = gather(torch.cat([part.to(precise) for part in (number, mean, var)]))  # (n, 1 + 2h)
    counts, means, variances = rows.split([1, mean.numel(), mean.numel()], dim=-1)
    total = counts.detach().sum()
    shares = counts.detach() / total
    joint = (shares * means).sum(0)
    spread = (shares * (variances + (means - joint).square())).sum(0)
    return total, joint.to(mean.dtype), spread.to(mean.dtype)


@contextmanager
def joint_statistics(model: nn.Module, gather: Gather) -> Iterator[None]:
    """A context in which the model's batch norms normalise with the valid steps of all processes."""
    norms = [module for module in model.modules() if isinstance(module, MaskedBatchNorm)]
    for norm in norms:
        norm.gather = gather
    try:
        yield
    finally:
        for norm in norms:
            norm.gather = None


class RowNorm(nn.Module):
    """LayerNorm or RMSNorm of every row by itself: nothing is shared between steps, series or batches."""

    def __init__(self, kind: Literal["layer", "rms"], eps: float = 1e-5) -> None:
        super().__init__()
        self.kind, self.eps = kind, eps

    def statistics(self, x: Tensor, valid: Tensor | None = None) -> None:
        """None: a row needs no statistics but its own."""

    def normalise(self, x: Tensor, statistics: Statistics | None = None) -> Tensor:
        centred = x - x.mean(-1, keepdim=True) if self.kind == "layer" else x
        return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + self.eps)

    def forward(self, x: Tensor, statistics: Statistics | None = None) -> Tensor:
        """`normalise`, as a call that triggers hooks."""
        return self.normalise(x, statistics)


def make_norm(kind: Literal["batch", "layer", "rms"], width: int) -> MaskedBatchNorm | RowNorm:
    return MaskedBatchNorm(width) if kind == "batch" else RowNorm(kind)
