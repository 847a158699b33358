"""A backend's `evolve` as a torch operator: fake results for compilers, gradients, and a rule for vmap.

Every backend brings a forward and a backward function over tensors that lead with an axis of independent problems;
what makes operators of them is the same for all.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tides.functional.discretise import Discretisation
from tides.functional.evolve import Hold
from tides.kernels.batching import merge_leading_axis
from tides.kernels.derivatives import differentiable_once

Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def evolve_operator(
    backend: str, forward: Callable[..., Tensor], backward: Callable[..., Gradients]
) -> Callable[..., Tensor]:
    """`functional.evolve` by the operator tides::evolve_<backend>.

    `forward(decay, frequency, gaps, scale, drive, s0, cu_seqlens, discretisation, hold, reverse)` gives the states;
    `backward(gradient, s, …the same…)` the gradients of the first six (that of a missing s0 is empty). Decay and
    frequency are (b, l, p) or (b, 1, p), gaps (b, l, p) or (b, l, 1), scale is (b, 1, p).
    """

    @torch.library.custom_op(f"tides::evolve_{backend}", mutates_args=())
    def operator(
        decay: Tensor,
        frequency: Tensor,
        gaps: Tensor,
        scale: Tensor,
        drive: Tensor,
        s0: Tensor | None,
        cu_seqlens: Tensor | None,
        discretisation: str,
        hold: str,
        reverse: bool,
    ) -> Tensor:
        return forward(decay, frequency, gaps, scale, drive, s0, cu_seqlens, discretisation, hold, reverse)

    @torch.library.custom_op(f"tides::evolve_{backend}_backward", mutates_args=())
    def operator_backward(
        gradient: Tensor,
        s: Tensor,
        decay: Tensor,
        frequency: Tensor,
        gaps: Tensor,
        scale: Tensor,
        drive: Tensor,
        s0: Tensor | None,
        cu_seqlens: Tensor | None,
        discretisation: str,
        hold: str,
        reverse: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        inputs = (decay, frequency, gaps, scale, drive, s0, cu_seqlens)
        return backward(gradient, s, *inputs, discretisation, hold, reverse)

    @operator.register_fake
    def _(decay: Tensor, frequency: Tensor, gaps: Tensor, scale: Tensor, drive: Tensor, *_: Any) -> Tensor:
        return torch.empty_like(drive, memory_format=torch.contiguous_format)

    @operator_backward.register_fake
    def _(gradient: Tensor, s: Tensor, *inputs: Any) -> Gradients:
        *leaves, s0 = inputs[:6]
        empty = (torch.empty_like(leaf, memory_format=torch.contiguous_format) for leaf in leaves)
        return (*empty, s.new_empty(s.shape[0], 0) if s0 is None else torch.empty_like(s0))  # type: ignore[return-value]

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.discretisation, ctx.hold, ctx.reverse = inputs
        ctx.save_for_backward(output, *tensors)

    @differentiable_once
    def differentiate(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        s, *tensors = ctx.saved_tensors
        found = operator_backward(gradient, s, *tensors, ctx.discretisation, ctx.hold, ctx.reverse)
        return (*found[:5], None if tensors[5] is None else found[5], None, None, None, None)

    operator.register_autograd(differentiate, setup_context=keep)
    for each in (operator, operator_backward):
        torch.library.register_vmap(each, merge_leading_axis(each))

    def evolve(
        decay: Tensor,
        frequency: Tensor,
        gaps: Tensor,
        scale: Tensor,
        drive: Tensor,
        s0: Tensor | None = None,
        *,
        discretisation: Discretisation = "zoh",
        hold: Hold = "following",
        reverse: bool = False,
        cu_seqlens: Tensor | None = None,
    ) -> Tensor:
        b, _, p = drive.shape
        frequency = frequency.expand(b, 1, p) if frequency.ndim == 1 else frequency
        scale = scale.expand(b, 1, p)
        s: Tensor = operator(decay, frequency, gaps, scale, drive, s0, cu_seqlens, discretisation, hold, reverse)
        return s

    return evolve
