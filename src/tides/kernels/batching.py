"""One vmap rule for every kernel: their tensors all lead with an axis of independent problems, so a new axis merges."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tides.errors import ShapeError


def stack_leading_axis(value: Tensor | None, axis: int | None, size: int) -> Tensor | None:
    """`value` with vmap's axis in front, repeated where it has none."""
    if value is None:
        return None
    return value.unsqueeze(0).expand(size, *value.shape) if axis is None else value.movedim(axis, 0)


def merge_leading_axis(op: Callable[..., Any]) -> Callable[..., Any]:
    """The vmap rule of `op`, whose tensor arguments and results all have the problem axis first."""

    def rule(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
        size = info.batch_size

        def merged(value: Any, axis: int | None) -> Any:
            if not isinstance(value, Tensor):
                return value
            if not (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool):
                raise ShapeError("cu_seqlens: packed sequences cannot be stacked by vmap; pad them instead")
            return stack_leading_axis(value, axis, size).flatten(0, 1)  # type: ignore[union-attr]

        result = op(*(merged(value, axis) for value, axis in zip(args, in_dims, strict=True)))
        if isinstance(result, Tensor):
            return result.unflatten(0, (size, -1)), 0
        return tuple(part.unflatten(0, (size, -1)) for part in result), (0,) * len(result)

    return rule
