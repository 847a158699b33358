"""Products that sum over many rows, cut into pieces.

The gradient of a small weight is aᵀ b with a sum over all steps of a batch: few numbers, tens of thousands of terms
each. As one matrix product it keeps a handful of a GPU's multiprocessors busy. Cut along the rows it keeps all of
them busy, and the partial results are few; their order is fixed, so the sum is the same every time.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

# Side of the tiles that a library's product of small matrices computes at once, and how many of them fill a GPU.
_TILE, _TILES_WANTED = 64, 512
# Rows below which a piece is not worth its launch.
_LEAST_ROWS = 128


def row_product(a: Tensor, b: Tensor) -> Tensor:
    """a (m, i, n) @ b (m, n, o) with the sum over n taken in pieces where that fills a GPU."""
    return product_in_pieces(a, b, pieces_wanted(a.shape[0], a.shape[1], a.shape[2], b.shape[2]) if a.is_cuda else 1)


def product_in_pieces(a: Tensor, b: Tensor, pieces: int) -> Tensor:
    """a (m, i, n) @ b (m, n, o) as a sum of `pieces` products; they divide n, so that they are views."""
    if pieces == 1:
        return torch.bmm(a, b)
    left = a.unflatten(2, (pieces, -1)).transpose(1, 2).flatten(0, 1)
    right = b.unflatten(1, (pieces, -1)).flatten(0, 1)
    parts: Tensor = torch.bmm(left, right).unflatten(0, (-1, pieces))
    return parts.sum(1)


def pieces_wanted(m: int, i: int, n: int, o: int) -> int:
    """The smallest number of pieces that fills a GPU, or the largest there can be; it divides the rows."""
    wanted = -(-_TILES_WANTED // (m * math.ceil(i / _TILE) * math.ceil(o / _TILE)))
    possible = [pieces for pieces in range(1, n // _LEAST_ROWS + 1) if n % pieces == 0] or [1]
    return next((pieces for pieces in possible if pieces >= wanted), possible[-1])


class RowProducts(TorchDispatchMode):
    """While it is entered, every batched matrix product, those of the backward pass too, is a `row_product`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.bmm.default and args[0].ndim == 3:
            return row_product(*args)
        return func(*args, **(kwargs or {}))
