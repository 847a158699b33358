"""The block's tail in torch with nothing kept but its input: the rest is made again in the backward pass."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tides.functional.tail import TailWeights
from tides.kernels.batching import merge_leading_axis

# Rows of a block: its temporaries stay in a core's cache, or fill a GPU.
_ROWS = {"cpu": 2048, "cuda": 1 << 18}


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
    result = torch.empty_like(y)
    for rows in _blocks(y):
        activated = F.gelu(y[:, rows])
        gated = _linear(activated, value, value_bias) * torch.sigmoid(_linear(activated, gate, gate_bias))
        result[:, rows] = _linear(gated, out, out_bias)
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
    dy = torch.empty_like(y)
    d_value, d_gate, d_out = torch.zeros_like(value), torch.zeros_like(gate), torch.zeros_like(out)
    d_value_bias, d_gate_bias = torch.zeros_like(value_bias), torch.zeros_like(gate_bias)
    for rows in _blocks(y):
        g, piece = gradient[:, rows], y[:, rows]
        activated = F.gelu(piece)
        linear = _linear(activated, value, value_bias)
        gating = torch.sigmoid(_linear(activated, gate, gate_bias))
        d_gated = g @ out
        d_out += g.mT @ (linear * gating)
        d_linear = d_gated * gating
        d_gating = d_gated * linear * gating * (1 - gating)
        d_value += d_linear.mT @ activated
        d_gate += d_gating.mT @ activated
        d_value_bias += d_linear.sum(1)
        d_gate_bias += d_gating.sum(1)
        slope = 0.5 * (1 + torch.erf(piece * math.sqrt(0.5)))
        slope += piece * torch.exp(-0.5 * piece.square()) * (1 / math.sqrt(2 * math.pi))
        dy[:, rows] = (d_linear @ value + d_gating @ gate) * slope
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
