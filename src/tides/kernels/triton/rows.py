"""Maps and sums over the rows of a batch with few channels, a pass each (`row_kernels`)."""

from typing import Any

from torch import Tensor
from torch.autograd.function import _SingleLevelFunction

from tides.kernels.derivatives import differentiable_once
from tides.kernels.triton.block_config import padded
from tides.kernels.triton.direct import launch
from tides.kernels.triton.row_kernels import map_backward_kernel, map_kernel, spread_kernel, total_kernel
from tides.kernels.triton.sum_kernels import sum_kernel

# Input channels of a map, output channels, and rows from which on a pass is worth its launch.
WIDEST = (8, 128)
LEAST = 1 << 16
# Launch shapes measured on an H200: elements of a tile, programs, rows and columns of a tile of their sums.
_TILE = 2048
_PROGRAMS = 1056
_SUM_TILE = (256, 16)


class RowMap(_SingleLevelFunction):
    """x Wᵀ + b for x (…, d)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
        h, d = weight.shape
        out = x.new_empty(*x.shape[:-1], h)
        n, sizes = x.numel() // d, _sizes(h)
        launch(map_kernel, (-(-n // sizes["BM"]),), x, weight, bias, out, n, D=d, **sizes)
        ctx.save_for_backward(x, weight)
        return out

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        h, d = weight.shape
        n, sizes = x.numel() // d, _sizes(h)
        tiles = -(-n // (sizes["BM"] * _PROGRAMS))
        programs = -(-n // (sizes["BM"] * tiles))
        partial = x.new_empty(programs, d + 1, h)
        kernel = map_backward_kernel
        launch(kernel, (programs,), gradient.contiguous(), x, partial, n, tiles, D=d, DB=padded(d), **sizes)
        sums = _sum(partial.view(1, programs, -1)).view(d + 1, h)
        dx = gradient @ weight if ctx.needs_input_grad[0] else None
        return dx, sums[:d].t(), sums[d]


class StepSum(_SingleLevelFunction):
    """Σ over the steps of x (b, l, h)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.contiguous()
        b, l, h = ctx.shape = x.shape
        sizes = _sizes(h)
        tiles = -(-l * b // (sizes["BM"] * _PROGRAMS))
        programs = -(-l // (sizes["BM"] * tiles))
        partial = x.new_empty(b, programs, h)
        launch(total_kernel, (programs, b), x, partial, l, tiles, **sizes)
        return _sum(partial)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        # The same for every step, which takes no memory until someone needs it there.
        return gradient.unsqueeze(1).expand(ctx.shape)


def spread_steps(x: Tensor) -> Tensor:
    """x (b, l, h) in a memory of its own, where all steps of a series are one row in memory."""
    b, l, h = x.shape
    out, sizes = x.new_empty(b, l, h), _sizes(h)
    launch(spread_kernel, (-(-l // sizes["BM"]), b), x[:, 0].contiguous(), out, l, **sizes)
    return out


def _sizes(h: int) -> dict[str, int]:
    return {"H": h, "HB": padded(h), "BM": _TILE // padded(h)}


def _sum(partial: Tensor) -> Tensor:
    """Σ over the programs of (b, programs, n), in a fixed order."""
    b, programs, n = partial.shape
    out = partial.new_empty(b, n)
    tall, wide = _SUM_TILE
    numbers = (programs, n, n, n, 0, programs, programs, n)
    launch(sum_kernel, (-(-n // wide), b, 1), partial, out, out, *numbers, BR=tall, BC=wide, ADD=False)
    return out
