"""Re λ = ρ(RMSNorm(θ)) in one pass that keeps θ alone."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from tides.functional import heads
from tides.functional.heads import ModeHead
from tides.functional.reparam import Reparam
from tides.kernels.batching import merge_leading_axis
from tides.kernels.cpu.elementary import exp_and_expm1
from tides.kernels.cpu.intervals import compiled
from tides.kernels.cpu.mix_loops import summing
from tides.kernels.cpu.threads import run_jobs, spans
from tides.kernels.derivatives import differentiable_once

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
def _normalised(theta, weight, normed, eps, out, scales):  # type: ignore[no-untyped-def]
    """out = θ · scale · weight with the inverse rms of each row in `scales`."""
    real = theta.dtype.type
    width = theta.shape[1]
    for t in range(theta.shape[0]):
        scale = real(1)
        if normed:
            square = real(0)
            for p in range(width):
                square += theta[t, p] * theta[t, p]
            scale = real(1.0 / math.sqrt(square / width + eps))
        scales[t] = scale
        for p in range(width):
            out[t, p] = theta[t, p] * scale * weight[p]


@compiled
def reparameterised(x, kind, limit):  # type: ignore[no-untyped-def]
    """x ← min(ρ(x), limit). One loop per map: a choice inside would keep the compiler from vectorising."""
    real = x.dtype.type
    half, one, bound = real(0.5), real(1), real(limit)
    if kind == 1:
        for j in range(x.size):
            x[j] = -exp_and_expm1(x[j])[0]
    elif kind == 2:
        for j in range(x.size):
            x[j] = -one / (x[j] * x[j] + half)
    elif kind == 3:
        for j in range(x.size):
            x[j] = -x[j] if x[j] > 40 else -math.log1p(math.exp(x[j]))
    for j in range(x.size):
        x[j] = bound if x[j] > bound else x[j]


@compiled
def slopes(x, kind, limit, gradient):  # type: ignore[no-untyped-def]
    """x ← gradient · ρ'(x), nothing where the limit holds."""
    real = x.dtype.type
    half, one, two, zero, bound = real(0.5), real(1), real(2), real(0), real(limit)
    if kind == 0:
        for j in range(x.size):
            x[j] = zero if x[j] > bound else gradient[j]
    elif kind == 1:
        for j in range(x.size):
            value = -exp_and_expm1(x[j])[0]
            x[j] = zero if value > bound else gradient[j] * value
    elif kind == 2:
        for j in range(x.size):
            value = -one / (x[j] * x[j] + half)
            x[j] = zero if value > bound else gradient[j] * two * x[j] * value * value
    else:
        for j in range(x.size):
            value = -x[j] if x[j] > 40 else -math.log1p(math.exp(x[j]))
            x[j] = zero if value > bound else -gradient[j] / (one + math.exp(-x[j]))


@summing
def _norm_backward(theta, weight, scales, d_theta, d_weight):  # type: ignore[no-untyped-def]
    """d_theta arrives as the gradient of the normalised θ."""
    width = theta.shape[1]
    for t in range(theta.shape[0]):
        scale, along = scales[t], theta.dtype.type(0)
        for p in range(width):
            d_weight[p] += d_theta[t, p] * theta[t, p] * scale
        for p in range(width):
            d_theta[t, p] *= weight[p]
            along += d_theta[t, p] * theta[t, p]
        along *= scale * scale / width
        for p in range(width):
            d_theta[t, p] = scale * (d_theta[t, p] - along * theta[t, p])


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
            part = y[slice(*span)]
            scales = np.empty(len(part), dtype=part.dtype)
            _normalised(x[slice(*span)], weight, norm is not None, eps, part, scales)
            reparameterised(part.reshape(-1), reparam, limit)

        run_jobs(work, spans(theta.shape[1], torch.get_num_threads()))
    return out


@torch.library.custom_op("tides::rates_cpu_backward", mutates_args=(), device_types="cpu")
def rates_backward(
    gradient: Tensor, theta: Tensor, norm: Tensor | None, reparam: int, limit: float, eps: float
) -> tuple[Tensor, Tensor]:
    """Gradients of θ and norm."""
    gradient, theta, weights = gradient.detach().contiguous(), theta.detach().contiguous(), _weights(theta, norm)
    d_theta, scales = torch.empty_like(theta), theta.new_empty(theta.shape[1]).numpy()
    d_weight = torch.zeros(weights.shape, dtype=torch.float64)
    for m in range(theta.shape[0]):
        g, x, weight, dx = (tensor[m].numpy() for tensor in (gradient, theta, weights, d_theta))
        _normalised(x, weight, norm is not None, eps, dx, scales)
        slopes(dx.reshape(-1), reparam, limit, g.reshape(-1))
        if norm is not None:
            _norm_backward(x, weight, scales, dx, d_weight[m].numpy())
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


@differentiable_once
def _differentiate(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    theta, norm = ctx.saved_tensors
    d_theta, d_norm = rates_backward(gradient, theta, norm, *ctx.settings)
    return d_theta, None if norm is None else d_norm, None, None, None


rates_op.register_autograd(_differentiate, setup_context=_keep)
for _op in (rates_op, rates_backward):
    torch.library.register_vmap(_op, merge_leading_axis(_op))
