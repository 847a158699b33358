"""Products for wide blocks: of float32's accuracy from float16 halves, and those that sum over many rows.

A GPU multiplies float16 more than ten times as fast as float32. Sums are made in float32.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from tides.functional.products import pieces_wanted
from tides.kernels.triton.buffers import Buffer, View
from tides.kernels.triton.launch import LaunchPlan
from tides.kernels.triton.wide_pass import add_up


class Halves(NamedTuple):
    """Rows [x₁, x₀, x₁] (n, 3a) and their units (n), or a matrix [K₁; K₁; K₀] (3a, w) and its columns' units (w)."""

    parts: Buffer
    units: Buffer


def room_for_halves(plan: LaunchPlan, rows: int, width: int) -> Halves:
    """Memory for the halves of so many numbers in each of so many units."""
    return Halves(plan.space(rows, 3 * width, dtype=torch.float16), plan.space(rows))


def half_product(a: Tensor, b: Tensor, out: Tensor) -> None:
    """a b of halves, matrices or batches of them."""
    product = torch.mm if a.ndim == 2 else torch.bmm
    if a.is_cuda:
        product(a, b, out_dtype=torch.float32, out=out)
    else:
        # Only a GPU has products of float16 with sums in float32.
        product(a.float(), b.float(), out=out)


class RowSums:
    """Σ aᵀ b of pairs a (n, i) and b (n, o) that come one by one, in float32 and in pieces (`functional.products`)."""

    def __init__(self, plan: LaunchPlan, rows: list[int], i: int, o: int, out: Buffer) -> None:
        self._plan, self._out, self._sizes = plan, out, (i, o)
        count = sum(_pieces(1, i, n, o) for n in rows)
        self._alone = count == 1
        self._partial = out if self._alone else plan.space(count, i, o)
        self._done = 0

    def add(self, a: View, b: View) -> None:
        i, o = self._sizes
        pieces = _pieces(1, i, a.sizes[0], o)
        target = self._partial.part(self._done * i * o, pieces * i * o)
        if pieces == 1:
            self._plan.call(torch.mm, a.mT, b, out=View.dense(target, i, o))
        else:
            self._plan.call(torch.bmm, cut(a, pieces).mT, cut(b, pieces), out=View.dense(target, pieces, i, o))
        self._done += pieces

    def finish(self) -> None:
        i, o = self._sizes
        if not self._alone:
            add_up(self._plan, self._partial, self._out, self._done, i * o)
            self._plan.release(self._partial)


def sum_over_rows(plan: LaunchPlan, a: View, b: View, out: Buffer) -> None:
    """aᵀ b of a (n, i) and b (n, o)."""
    sums = RowSums(plan, [a.sizes[0]], a.sizes[1], b.sizes[1], out)
    sums.add(a, b)
    sums.finish()


def cut(x: View, pieces: int) -> View:
    """The rows of x in pieces."""
    rows, columns = x.sizes
    return View(x.buffer, (pieces, rows // pieces, columns), (rows // pieces * x.strides[0], *x.strides), x.start)


_pieces = lru_cache(maxsize=1024)(pieces_wanted)
