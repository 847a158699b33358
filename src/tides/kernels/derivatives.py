"""Functions with gradients of their own, which have no second ones."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from tides.errors import BackendUnavailable


def differentiable_once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """An autograd function's `backward` that refuses to take part in a graph.

    torch's own `once_differentiable` refuses only if the incoming gradient has a graph; otherwise second derivatives by
    the inputs would silently be zero.
    """

    @wraps(backward)
    def run(ctx: Any, *gradients: Any) -> Any:
        if torch.is_grad_enabled():
            raise BackendUnavailable(
                "create_graph: found second derivatives of a fused operator, which has none; run the model inside "
                "tides.kernels.use_backend('reference')"
            )
        return backward(ctx, *gradients)

    return run
