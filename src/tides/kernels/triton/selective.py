"""The selective scan as one operator: no array with all states of all channels lives longer than a backward pass."""

from typing import Any

import torch
import triton
from torch import Tensor

from tides.kernels.derivatives import differentiable_once
from tides.kernels.triton.selective_kernels import selective_backward, selective_forward

# States of a program. One warp each, so that sums need no barrier.
_TILE = 512


def selective_scan(u: Tensor, delta: Tensor, drive: Tensor, readout: Tensor, decay: Tensor) -> Tensor:
    """y_k = s_k C_k with s_k = exp(δ_k A) ⊙ s_{k−1} + δ_k u_k B_kᵀ from zero.

    u, δ (b, l, e); B = `drive`, C = `readout` (b, l, n); A = `decay` (e, n); y (b, l, e).
    """
    y: Tensor = selective_forward_op(*(x.to(u.dtype).contiguous() for x in (u, delta, drive, readout, decay)))
    return y


@torch.library.custom_op("tides::selective_scan", mutates_args=())
def selective_forward_op(u: Tensor, delta: Tensor, drive: Tensor, readout: Tensor, decay: Tensor) -> Tensor:
    y = torch.empty_like(u)
    _run_forward(u, delta, drive, readout, decay, y, None)
    return y


@torch.library.custom_op("tides::selective_scan_backward", mutates_args=())
def selective_backward_op(
    gradient: Tensor, u: Tensor, delta: Tensor, drive: Tensor, readout: Tensor, decay: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    (b, l, e), n = u.shape, decay.shape[-1]
    # Made again instead of kept: four bytes for every state at every step are gigabytes over all layers of a model.
    states = torch.empty(b, l, e, n, device=u.device)
    du, ddelta = torch.empty_like(u), torch.empty_like(delta)
    _run_forward(u, delta, drive, readout, decay, du, states)
    grid, blocks, sizes = _tiles(b, e, n)
    ddrive, dreadout = (torch.empty(b, blocks, l, n, device=u.device) for _ in range(2))
    ddecay = torch.empty(b, e, n, device=u.device)
    selective_backward[grid](
        gradient, u, delta, drive, readout, decay, states, du, ddelta, ddrive, dreadout, ddecay,
        l, e, n, blocks, **sizes, num_warps=1,
    )  # fmt: skip
    return du, ddelta, ddrive.sum(1), dreadout.sum(1), ddecay.sum(0)


def _run_forward(
    u: Tensor, delta: Tensor, drive: Tensor, readout: Tensor, decay: Tensor, y: Tensor, states: Tensor | None
) -> None:
    (b, l, e), n = u.shape, decay.shape[-1]
    grid, blocks, sizes = _tiles(b, e, n)
    keep = states is not None
    selective_forward[grid](
        u, delta, drive, readout, decay, y, states if keep else y, l, e, n, blocks, KEEP=keep, **sizes, num_warps=1
    )


def _tiles(b: int, e: int, n: int) -> tuple[tuple[int], int, dict[str, int]]:
    """The grid, its programs per series, and the sides of a tile, powers of two."""
    states = triton.next_power_of_2(n)
    channels = min(max(1, _TILE // states), triton.next_power_of_2(e))
    blocks = -(-e // channels)
    return (b * blocks,), blocks, {"BE": channels, "BN": states}


@selective_forward_op.register_fake
def _(u, delta, drive, readout, decay):  # type: ignore[no-untyped-def]
    return torch.empty_like(u)


@selective_backward_op.register_fake
def _(gradient, u, delta, drive, readout, decay):  # type: ignore[no-untyped-def]
    return tuple(torch.empty_like(x) for x in (u, delta, drive, readout, decay))


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


@differentiable_once
def _gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
    found: tuple[Tensor, ...] = selective_backward_op(gradient.contiguous(), *ctx.saved_tensors)
    return found


selective_forward_op.register_autograd(_gradients, setup_context=_setup)
