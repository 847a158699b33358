"""The vmap rule of kernels whose weights differ from model to model."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def one_by_one(op: Callable[..., Any]) -> Callable[..., Any]:
    """Stacked models have their own weights, so each is its own launch."""

    def rule(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
        def pick(value: Any, axis: int | None, k: int) -> Any:
            return value if axis is None or not isinstance(value, Tensor) else value.select(axis, k)

        each = [
            op(*(pick(value, axis, k) for value, axis in zip(args, in_dims, strict=True)))
            for k in range(info.batch_size)
        ]
        if isinstance(each[0], Tensor):
            return torch.stack(each), 0
        return tuple(torch.stack(parts) for parts in zip(*each, strict=True)), (0,) * len(each[0])

    return rule
