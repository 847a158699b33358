"""The block's tail in torch with nothing kept but its input: the rest is made again in the backward pass."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tides.functional.tail import TailWeights
from tides.kernels.batching import merge_leading_axis

# Rows of a block: its temporaries stay in a core's cache, or fill a GPU.
_ROWS = {"cpu": 1024, "cuda": 1 << 18}


def gated_tail(x: Tensor, y: Tensor, weights: TailWeights) -> Tensor:
    """`functional.gated_tail`."""
    rows = y.reshape(1, -1, y.shape[-1])
    added: Tensor = tail_op(rows, *(tensor[None] for tensor in weights))
    return x + added.view(y.shape)


def _blocks(y: Tensor) -> list[slice]:
    size = _ROWS.get(y.device.type, 1 << 14)
    return [slice(start, start + size) for start in range(0, y.shape[1], size)]


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)


def _joined(value: Tensor, gate: Tensor) -> Tensor:
    """Both linear maps as one, in the order of `F.glu`: values first, gates behind."""
    return torch.cat([value, gate], dim=1)


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
    inner, inner_bias = _joined(value, gate), _joined(value_bias, gate_bias)
    result = torch.empty_like(y)
    for rows in _blocks(y):
        linear = _linear(F.gelu(y[:, rows]), inner, inner_bias)
        result[:, rows] = _linear(F.glu(linear), out, out_bias)
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
    inner, inner_bias = _joined(value, gate), _joined(value_bias, gate_bias)
    dy, width = torch.empty_like(y), value.shape[1]
    d_inner, d_bias, d_out = torch.zeros_like(inner), torch.zeros_like(inner_bias), torch.zeros_like(out)
    for rows in _blocks(y):
        g, piece = gradient[:, rows], y[:, rows]
        activated = F.gelu(piece)
        linear = _linear(activated, inner, inner_bias)
        d_out += g.mT @ F.glu(linear)
        d_linear = torch.ops.aten.glu_backward(g @ out, linear, -1)
        d_inner += d_linear.mT @ activated
        d_bias += d_linear.sum(1)
        dy[:, rows] = torch.ops.aten.gelu_backward(d_linear @ inner, piece)
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


def _gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
    result: tuple[Tensor, ...] = tail_backward(gradient.contiguous(), *ctx.saved_tensors)
    return result


tail_op.register_autograd(_gradients, setup_context=_setup)
for _op in (tail_op, tail_backward):
    torch.library.register_vmap(_op, merge_leading_axis(_op))
