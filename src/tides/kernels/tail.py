"""The block's tail in torch, which keeps only its input: the rest is computed again in the backward pass."""

from typing import Any

import torch
from torch import Tensor

from tides.functional.tail import TailWeights
from tides.kernels.batching import merge_leading_axis
from tides.kernels.derivatives import differentiable_once

# GELU and its slope are below 1e-17 from here on; exactly as small as they are, they would make subnormal gradients,
# with which matrix products are many times slower on a CPU.
_LOWEST = -9.0

# Rows of a block: its temporaries stay in a core's cache, or fill a GPU.
_ROWS = {"cpu": 2048, "cuda": 1 << 18}


def gated_tail(x: Tensor, y: Tensor, weights: TailWeights) -> Tensor:
    """`functional.gated_tail`."""
    rows = y.reshape(1, -1, y.shape[-1])
    added: Tensor = tail_op(rows, *(tensor[None] for tensor in weights))
    return x + added.view(y.shape)


class _Weights:
    """One model's weights as 2-D matrices; both inner maps are one, in the order of `F.glu`: values, then gates."""

    def __init__(self, value: Tensor, value_bias: Tensor, gate: Tensor, gate_bias: Tensor, out: Tensor) -> None:
        self.inner, self.inner_bias = torch.cat([value, gate]), torch.cat([value_bias, gate_bias])
        self.out = out

    def activate(self, y: Tensor, buffers: "_Buffers") -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """y as GELU takes it, GELU(y), the inner linear map of it, and its gated half, in the buffers' memory."""
        bounded, activated, linear, gated = buffers.first(y.shape[0])
        torch.clamp_min(y, _LOWEST, out=bounded)
        torch.ops.aten.gelu.out(bounded, out=activated)
        torch.addmm(self.inner_bias, activated, self.inner.t(), out=linear)
        torch.ops.aten.glu.out(linear, -1, out=gated)
        return bounded, activated, linear, gated


class _Buffers:
    """Temporaries of a block of rows, allocated once: they stay in a core's cache."""

    def __init__(self, y: Tensor, width: int) -> None:
        self.rows = min(_ROWS.get(y.device.type, 1 << 14), y.shape[1])
        sizes = (y.shape[2], 2 * width, width)
        self._sets = [[y.new_empty(self.rows, n) for n in each] for each in ((y.shape[2], *sizes), sizes)]

    def first(self, n: int) -> list[Tensor]:
        return [x[:n] for x in self._sets[0]]

    def second(self, n: int) -> list[Tensor]:
        return [x[:n] for x in self._sets[1]]

    def blocks(self, total: int) -> list[slice]:
        return [slice(start, start + self.rows) for start in range(0, total, self.rows)]


@torch.library.custom_op("tides::tail_torch", mutates_args=())
def tail_op(
    y: Tensor,
    value: Tensor,
    value_bias: Tensor,
    gate: Tensor,
    gate_bias: Tensor,
    out: Tensor,
    out_bias: Tensor,
) -> Tensor:
    """GLU(GELU(y)) for y (m, n, h) and weights with the model axis m first."""
    y, result = y.detach().contiguous(), torch.empty_like(y, memory_format=torch.contiguous_format)
    buffers = _Buffers(y, value.shape[1])
    with torch.no_grad():
        for m, weights in enumerate(map(_Weights, value, value_bias, gate, gate_bias, out)):
            for rows in buffers.blocks(y.shape[1]):
                *_, gated = weights.activate(y[m, rows], buffers)
                torch.addmm(out_bias[m], gated, weights.out.t(), out=result[m, rows])
    return result


@torch.library.custom_op("tides::tail_torch_backward", mutates_args=())
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
    gradient, y = gradient.detach().contiguous(), y.detach().contiguous()
    dy, buffers, width = torch.empty_like(y), _Buffers(y, value.shape[1]), value.shape[1]
    d_inner = value.new_zeros(value.shape[0], 2 * width, value.shape[2])
    d_bias, d_out = value.new_zeros(value.shape[0], 2 * width), torch.zeros_like(out)
    with torch.no_grad():
        for m, weights in enumerate(map(_Weights, value, value_bias, gate, gate_bias, out)):
            for rows in buffers.blocks(y.shape[1]):
                g, piece = gradient[m, rows], y[m, rows]
                bounded, activated, linear, gated = weights.activate(piece, buffers)
                d_activated, d_linear, d_gated = buffers.second(piece.shape[0])
                d_out[m].addmm_(g.t(), gated)
                torch.mm(g, weights.out, out=d_gated)
                torch.ops.aten.glu_backward.grad_input(d_gated, linear, -1, grad_input=d_linear)
                d_inner[m].addmm_(d_linear.t(), activated)
                d_bias[m] += d_linear.sum(0)
                torch.mm(d_linear, weights.inner, out=d_activated)
                torch.ops.aten.gelu_backward.grad_input(d_activated, bounded, grad_input=dy[m, rows])
    # Clones, because parts of one tensor would share their memory.
    d_value, d_gate = (part.clone(memory_format=torch.contiguous_format) for part in d_inner.split(width, dim=1))
    d_value_bias, d_gate_bias = (part.clone(memory_format=torch.contiguous_format) for part in d_bias.split(width, 1))
    return dy, d_value, d_value_bias, d_gate, d_gate_bias, d_out, gradient.sum(1)


@tail_op.register_fake
def _(y, value, value_bias, gate, gate_bias, out, out_bias):  # type: ignore[no-untyped-def]
    return torch.empty_like(y)


@tail_backward.register_fake
def _(gradient, y, value, value_bias, gate, gate_bias, out):  # type: ignore[no-untyped-def]
    leaves = (y, value, value_bias, gate, gate_bias, out)
    return (*(torch.empty_like(leaf) for leaf in leaves), gradient.new_empty(gradient.shape[0], gradient.shape[2]))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:-1])


@differentiable_once
def _gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
    result: tuple[Tensor, ...] = tail_backward(gradient.contiguous(), *ctx.saved_tensors)
    return result


tail_op.register_autograd(_gradients, setup_context=_setup)
for _op in (tail_op, tail_backward):
    torch.library.register_vmap(_op, merge_leading_axis(_op))
