"""`gated_tail` on the GPU: one launch forwards, one backwards and a sum; only y is kept."""

from typing import Any

import torch
import triton
from torch import Tensor

from tides.functional.tail import TailWeights
from tides.kernels import tail
from tides.kernels.batching import stack_leading_axis
from tides.kernels.derivatives import differentiable_once
from tides.kernels.triton.precision import WIDEST, matrix_precision
from tides.kernels.triton.tail_kernels import tail_backward_kernel, tail_kernel

_ROWS = 64
_PROGRAMS = 528


def gated_tail(x: Tensor, y: Tensor, weights: TailWeights) -> Tensor:
    """`functional.gated_tail`; tiles of wide blocks exceed a program's registers, and matrix products win there."""
    width = y.shape[-1]
    if max(weights.value.shape) > WIDEST:
        return tail.gated_tail(x, y, weights)
    result: Tensor = tail_op(x.reshape(-1, width), y.reshape(-1, width), *weights)
    return result.view(y.shape)


def _flags(width: int, inner: int) -> dict[str, Any]:
    hb, fb = (max(16, triton.next_power_of_2(size)) for size in (width, inner))
    return {"BM": _ROWS, "HB": hb, "FB": fb, "PRECISION": matrix_precision()}


@torch.library.custom_op("tides::tail_triton", mutates_args=())
def tail_op(
    x: Tensor,
    y: Tensor,
    value: Tensor,
    value_bias: Tensor,
    gate: Tensor,
    gate_bias: Tensor,
    out: Tensor,
    out_bias: Tensor,
) -> Tensor:
    rows, width = y.shape
    inner = value.shape[0]
    result = torch.empty(rows, width, device=y.device)
    tensors = (x, y, value, value_bias, gate, gate_bias, out, out_bias)
    tail_kernel[(triton.cdiv(rows, _ROWS),)](
        *(tensor.contiguous() for tensor in tensors), result, rows, width, inner, **_flags(width, inner)
    )
    return result


@torch.library.custom_op("tides::tail_triton_backward", mutates_args=())
def tail_backward(
    gradient: Tensor,
    y: Tensor,
    value: Tensor,
    value_bias: Tensor,
    gate: Tensor,
    gate_bias: Tensor,
    out: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of y and of the six weights."""
    rows, width = y.shape
    inner = value.shape[0]
    flags = _flags(width, inner)
    hb, fb = flags["HB"], flags["FB"]
    tiles = triton.cdiv(triton.cdiv(rows, _ROWS), _PROGRAMS)
    programs = triton.cdiv(rows, _ROWS * tiles)
    dy = torch.empty(rows, width, device=y.device)
    matrices = torch.empty(3, programs, fb * hb, device=y.device)
    biases = torch.empty(programs, 2 * fb + hb, device=y.device)
    tensors = (gradient, y, value, value_bias, gate, gate_bias, out)
    tail_backward_kernel[(programs,)](
        *(tensor.contiguous() for tensor in tensors), dy, *matrices, biases, rows, width, inner, tiles, **flags
    )
    matrices, biases = matrices.sum(1), biases.sum(0)
    d_value, d_gate = (matrices[k].view(fb, hb)[:inner, :width].clone() for k in (0, 1))
    d_out = matrices[2].view(hb, fb)[:width, :inner].clone()
    d_value_bias, d_gate_bias = biases[:inner].clone(), biases[fb : fb + inner].clone()
    return dy, d_value, d_value_bias, d_gate, d_gate_bias, d_out, biases[2 * fb : 2 * fb + width].clone()


@tail_op.register_fake
def _(x, y, value, value_bias, gate, gate_bias, out, out_bias):  # type: ignore[no-untyped-def]
    return torch.empty_like(y, memory_format=torch.contiguous_format)


@tail_backward.register_fake
def _(gradient, y, value, value_bias, gate, gate_bias, out):  # type: ignore[no-untyped-def]
    leaves = (y, value, value_bias, gate, gate_bias, out)
    contiguous = torch.contiguous_format
    return (*(torch.empty_like(leaf, memory_format=contiguous) for leaf in leaves), gradient.new_empty(y.shape[1]))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[1:-1])


@differentiable_once
def _gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
    return (gradient, *tail_backward(gradient, *ctx.saved_tensors))


tail_op.register_autograd(_gradients, setup_context=_setup)


@tail_op.register_vmap
def _(info, in_dims, *arguments):  # type: ignore[no-untyped-def]
    """Stacked models have their own weights: matrix products with a leading axis of models."""
    x, *others = (
        stack_leading_axis(value, axis, info.batch_size) for value, axis in zip(arguments, in_dims, strict=True)
    )
    return x + tail.tail_op(*others), 0
