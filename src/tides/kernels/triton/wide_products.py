"""Products of float32's accuracy from float16 halves, for the mixes of wide blocks.

A GPU multiplies float16 more than ten times as fast as float32. Sums are made in float32.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from tides.functional.products import pieces_wanted
from tides.kernels.triton.direct import launch
from tides.kernels.triton.wide_kernels import halve_rows_kernel

# Elements of a program's tile of rows.
_TILE = 1024


class Halves(NamedTuple):
    """Rows [x₁, x₀, x₁] (n, 3a) and their units (n), or a matrix [K₁; K₁; K₀] (3a, w) and its columns' units (w)."""

    parts: Tensor
    units: Tensor

    def rows(self, rows: slice | None) -> "Halves":
        return self if rows is None else Halves(self.parts[rows], self.units[rows])


@lru_cache(maxsize=1024)
def row_shape(n: int, a: int) -> tuple[tuple[int], Mapping[str, int]]:
    """Grid and flags of a pass over n rows of width a."""
    block = max(4, 1 << (a - 1).bit_length())
    rows = max(1, _TILE // block)
    return (-(-n // rows),), MappingProxyType({"A": a, "AB": block, "BM": rows})


def room_for_halves(x: Tensor) -> Halves:
    """Memory for the halves of x (n, a)."""
    n, a = x.shape
    return Halves(x.new_empty(n, 3 * a, dtype=torch.float16), x.new_empty(n))


def halve_rows(x: Tensor) -> Halves:
    halves = room_for_halves(x)
    grid, flags = row_shape(*x.shape)
    launch(halve_rows_kernel, grid, x, *halves, x.shape[0], **flags)
    return halves


def product(x: Halves, matrix: Halves) -> tuple[Tensor, Tensor, Tensor]:
    """x K (n, w), in units of x's rows and K's columns, and these."""
    if x.parts.is_cuda:
        found: Tensor = torch.mm(x.parts, matrix.parts, out_dtype=torch.float32)
    else:
        # Only a GPU has products of float16 with sums in float32.
        found = torch.mm(x.parts.float(), matrix.parts.float())
    return found, x.units, matrix.units


def sum_over_rows(a: Tensor, b: Tensor) -> Tensor:
    """aᵀ b of a (n, i) and b (n, o), in float32 and in pieces (`functional.products`)."""
    pieces = _pieces(1, a.shape[1], a.shape[0], b.shape[1]) if a.is_cuda else 1
    if pieces == 1:
        return torch.mm(a.t(), b)
    return torch.bmm(a.view(pieces, -1, a.shape[1]).mT, b.view(pieces, -1, b.shape[1])).sum(0)


_pieces = lru_cache(maxsize=1024)(pieces_wanted)
