"""Re λ = ρ(RMSNorm(θ)) in one pass that keeps θ alone."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tides.functional import heads
from tides.functional.heads import ModeHead
from tides.functional.reparam import Reparam
from tides.kernels.batching import merge_leading_axis
from tides.kernels.cpu.elementary import exp_and_expm1
from tides.kernels.cpu.mix_loops import summing
from tides.kernels.cpu.threads import run_jobs, spans

REPARAMS = {"standard": 0, "exp": 1, "stable": 2, "softplus": 3}


def decay_rates(u: Tensor, head: ModeHead, reparam: Reparam, clip: float | None, eps: float) -> Tensor:
    """`functional.heads.decay_rates`; a static head is one row for all steps already."""
    if head.weight is None:
        return heads.decay_rates(u, head, reparam, clip, eps)
    for block in head.blocks:
        u = heads.glu_residual(u, block)
    theta = F.linear(u, head.weight, head.bias)
    norm = None if head.norm is None else head.norm[None]
    rows = theta.reshape(1, -1, theta.shape[-1])
    decay: Tensor = rates_op(rows, norm, REPARAMS[reparam], math.inf if clip is None else -clip, eps)
    return decay.view(theta.shape)


@summing
def _inverse_rms(theta, t, eps):  # type: ignore[no-untyped-def]
    square = theta.dtype.type(0)
    for p in range(theta.shape[1]):
        square += theta[t, p] * theta[t, p]
    return theta.dtype.type(1) / math.sqrt(square / theta.shape[1] + eps)


@summing
def _forward(theta, weight, normed, kind, limit, eps, out):  # type: ignore[no-untyped-def]
    real = theta.dtype.type
    half, one, threshold, bound = real(0.5), real(1), real(40), real(limit)
    for t in range(theta.shape[0]):
        scale = real(_inverse_rms(theta, t, eps)) if normed else one
        for p in range(theta.shape[1]):
            x = theta[t, p] * scale * weight[p]
            if kind == 1:
                x = -exp_and_expm1(x)[0]
            elif kind == 2:
                x = -one / (x * x + half)
            elif kind == 3:
                x = -x if x > threshold else -real(math.log1p(math.exp(x)))
            out[t, p] = bound if x > bound else x


@summing
def _backward(gradient, theta, weight, normed, kind, limit, eps, d_theta, d_weight, row):  # type: ignore[no-untyped-def]
    """`row` is scratch for the gradient of the normalised θ."""
    real = theta.dtype.type
    half, one, two, bound, zero = real(0.5), real(1), real(2), real(limit), real(0)
    for t in range(theta.shape[0]):
        scale = real(_inverse_rms(theta, t, eps)) if normed else one
        for p in range(theta.shape[1]):
            x, slope = theta[t, p] * scale * weight[p], one
            value = x
            if kind == 1:
                value = -exp_and_expm1(x)[0]
                slope = value
            elif kind == 2:
                value = -one / (x * x + half)
                slope = two * x * value * value
            elif kind == 3:
                value = -x if x > real(40) else -real(math.log1p(math.exp(x)))
                slope = -one / (one + exp_and_expm1(-x)[0])
            row[p] = zero if value > bound else gradient[t, p] * slope
        if not normed:
            for p in range(theta.shape[1]):
                d_theta[t, p] = row[p]
            continue
        along = zero
        for p in range(theta.shape[1]):
            x = theta[t, p] * scale
            d_weight[p] += row[p] * x
            row[p] *= weight[p]
            along += row[p] * x
        along /= theta.shape[1]
        for p in range(theta.shape[1]):
            d_theta[t, p] = scale * (row[p] - along * theta[t, p] * scale)


def _weights(theta: Tensor, norm: Tensor | None) -> Tensor:
    return theta.new_ones(theta.shape[0], theta.shape[2]) if norm is None else norm.detach().contiguous()


@torch.library.custom_op("tides::rates_cpu", mutates_args=(), device_types="cpu")
def rates_op(theta: Tensor, norm: Tensor | None, reparam: int, limit: float, eps: float) -> Tensor:
    """min(ρ(RMSNorm(θ)), limit) for θ (m, n, p) and norm (m, p)."""
    theta, weights = theta.detach().contiguous(), _weights(theta, norm)
    out = torch.empty_like(theta)
    for m in range(theta.shape[0]):
        x, weight, y = theta[m].numpy(), weights[m].numpy(), out[m].numpy()

        def work(span: tuple[int, int], x: Any = x, weight: Any = weight, y: Any = y) -> None:
            _forward(x[slice(*span)], weight, norm is not None, reparam, limit, eps, y[slice(*span)])

        run_jobs(work, spans(theta.shape[1], torch.get_num_threads()))
    return out


@torch.library.custom_op("tides::rates_cpu_backward", mutates_args=(), device_types="cpu")
def rates_backward(
    gradient: Tensor, theta: Tensor, norm: Tensor | None, reparam: int, limit: float, eps: float
) -> tuple[Tensor, Tensor]:
    """Gradients of θ and norm."""
    gradient, theta, weights = gradient.detach().contiguous(), theta.detach().contiguous(), _weights(theta, norm)
    d_theta, row = torch.empty_like(theta), theta.new_empty(theta.shape[2])
    d_weight = torch.zeros(weights.shape, dtype=torch.float64)
    for m in range(theta.shape[0]):
        arrays = (x.numpy() for x in (gradient[m], theta[m], weights[m]))
        settings = (norm is not None, reparam, limit, eps)
        _backward(*arrays, *settings, d_theta[m].numpy(), d_weight[m].numpy(), row.numpy())
    return d_theta, theta.new_empty(theta.shape[0], 0) if norm is None else d_weight.to(theta.dtype)


@rates_op.register_fake
def _(theta, norm, reparam, limit, eps):  # type: ignore[no-untyped-def]
    return torch.empty_like(theta, memory_format=torch.contiguous_format)


@rates_backward.register_fake
def _(gradient, theta, norm, reparam, limit, eps):  # type: ignore[no-untyped-def]
    d_norm = theta.new_empty(theta.shape[0], 0) if norm is None else torch.empty_like(norm)
    return torch.empty_like(theta, memory_format=torch.contiguous_format), d_norm


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    theta, norm, *ctx.settings = inputs
    ctx.save_for_backward(theta, norm)


def _differentiate(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    theta, norm = ctx.saved_tensors
    d_theta, d_norm = rates_backward(gradient, theta, norm, *ctx.settings)
    return d_theta, None if norm is None else d_norm, None, None, None


rates_op.register_autograd(_differentiate, setup_context=_keep)
for _op in (rates_op, rates_backward):
    torch.library.register_vmap(_op, merge_leading_axis(_op))
