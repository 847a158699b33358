"""Affine maps of stacked models: x Wᵀ + b as one batched product that starts from b.

vmap splits such a map into a product, two multiplications by one and a sum, each a pass over all steps, and each with a
gradient of its own.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from tides.functional.products import row_product


class StackedLinear(TorchFunctionMode):
    """A context in which `torch.nn.functional.linear` with a bias is one product under vmap."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear:
            return _linear(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if bias is None:
        return F.linear(input, weight)
    rows: Tensor = _Affine.apply(input.reshape(-1, input.shape[-1]), weight, bias)  # type: ignore[no-untyped-call]
    return rows.view(*input.shape[:-1], -1)


class _StackedAffine(torch.autograd.Function):
    """x (m, n, h), W (m, o, h), b (m, o)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        return (
            torch.bmm(gradient, weight) if wanted[0] else None,
            row_product(gradient.mT, x) if wanted[1] else None,
            gradient.sum(1) if wanted[2] else None,
        )


class _Affine(torch.autograd.Function):
    """The same map of one of the models."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.addmm(bias, x, weight.mT)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        x, weight = ctx.saved_tensors
        return gradient @ weight, gradient.mT @ x, gradient.sum(0)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *tensors: Tensor) -> tuple[Tensor, int]:
        stacked = [
            tensor.expand(info.batch_size, *tensor.shape) if axis is None else tensor.movedim(axis, 0)
            for tensor, axis in zip(tensors, in_dims, strict=True)
        ]
        return _StackedAffine.apply(*stacked), 0  # type: ignore[no-untyped-call]
