"""The part of a block behind its scan: out-mix, skip connection, GELU, GLU and residual, and their gradients."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tides.kernels.cpu import block_loops, mix_loops
from tides.kernels.cpu.mix_tile import MixTile
from tides.kernels.cpu.planes import Planes


class LeaveWeights(NamedTuple):
    """Of one model: `heads` (i, h + 1), `inner` (2f, h + 1) and `outer` (h, f + 1) have their biases as last column."""

    scale: Any
    shift: Any
    heads: Tensor
    kernel: Tensor
    forms: Tensor | None
    skip: Any
    inner: Tensor
    outer: Tensor
    eps: float
    dropout: float


class Leave:
    """One thread's memory for blocks of steps, and its sums over them."""

    def __init__(self, weights: LeaveWeights, steps: int) -> None:
        size, self.width = weights.heads.shape[0], weights.heads.shape[1] - 1
        self.inner = weights.outer.shape[1] - 1
        self.planes = planes = Planes(steps, weights.heads.dtype)
        self.u = planes.add(self.width, ones=True)
        self.code, self.d_code = planes.add(size), planes.add(size)
        columns = 0 if weights.forms is None else self.width
        self.tile = MixTile(size, weights.kernel.shape[0] // size, self.width, columns, planes)
        self.s, self.ds = planes.add(self.tile.inner), planes.add(self.tile.inner)
        self.y, self.gradient, self.d_y = (planes.add(self.width) for _ in range(3))
        self.active, self.gated = planes.add(self.width, ones=True), planes.add(self.inner, ones=True)
        self.linear, self.d_gated = planes.add(2 * self.inner), planes.add(self.inner)
        self.one = np.ones(self.width, dtype=weights.skip.dtype)

    def load(self, weights: LeaveWeights) -> None:
        """Take weights of the same sizes, and begin new sums."""
        self.weights, heads = weights, weights.heads
        self.tile.load(weights.kernel, weights.forms)
        self.lift, self.inner_turned, self.outer_turned = (x[:, :-1].t() for x in (heads, weights.inner, weights.outer))
        self.d_heads, self.d_inner, self.d_outer = (torch.zeros_like(x) for x in (heads, weights.inner, weights.outer))
        self.d_skip = heads.new_zeros(self.width, dtype=torch.float64)
        self.d_skips = self.d_skip.numpy()

    @property
    def _inputs(self) -> Any:
        return self.u.rows(0, self.width).array

    @property
    def _active(self) -> Any:
        return self.active.rows(0, self.width).array

    @property
    def _gated(self) -> Any:
        return self.gated.rows(0, self.inner).array

    def _finish(self, rows: Any, valid: Any, states: list[Any], mixed: Any, *, mix: bool) -> None:
        """`y`, the layer's output, from the states of every direction; `mixed` is made, or given, before its norm."""
        weights, tile = self.weights, self.tile
        block_loops.entered(rows, weights.scale, weights.shift, valid, self._inputs)
        torch.mm(weights.heads, self.u.tensor, out=self.code.tensor)
        planes = tile.inner // len(states)
        for k, s in enumerate(states):
            mix_loops.transposed(s, self.s.rows(k * planes, (k + 1) * planes).array)
        if mix:
            tile.forward(self.code.array, self.s.tensor, mixed)
        if weights.forms is None:
            mix_loops.added_skip(mixed, self._inputs, weights.skip, self.y.array)
        else:
            tile.find_norms(self.code.array, weights.eps)
            mix_loops.finished(mixed, tile.inverse.array, self._inputs, weights.skip, self.y.array)
        block_loops.masked(self.y.array, valid)

    def _drop(self, x: Any, kept: Any, which: int) -> None:
        if kept is not None:
            block_loops.dropped(x, kept[which].reshape(x.shape), 1 / (1 - self.weights.dropout))

    def forward(self, rows: Any, valid: Any, states: list[Any], kept: Any, mixed: Any, out: Any) -> None:
        """`out` (n, h) and `mixed` (h, n) of a block; `kept` (2, n · h) are the masks of dropout, or None."""
        self._finish(rows, valid, states, mixed, mix=True)
        block_loops.gelu(self.y.array, self._active)
        self._drop(self._active, kept, 0)
        torch.mm(self.weights.inner, self.active.tensor, out=self.linear.tensor)
        block_loops.gated(self.linear.array, self._gated)
        torch.mm(self.weights.outer, self.gated.tensor, out=self.y.tensor)
        self._drop(self.y.array, kept, 1)
        block_loops.left(self.y.array, self.one, rows, out)

    def backward(
        self, rows: Any, valid: Any, states: list[Any], kept: Any, mixed: Any, gradient: Any, ds: list[Any], du: Tensor
    ) -> None:
        """Gradients of the states (n, 2p) and of u (h, n) from that of the output (n, h)."""
        weights, tile = self.weights, self.tile
        self._finish(rows, valid, states, mixed, mix=False)
        block_loops.gelu_and_slope(self.y.array, self._active)
        self._drop(self._active, kept, 0)
        torch.mm(weights.inner, self.active.tensor, out=self.linear.tensor)
        mix_loops.transposed(gradient, self.gradient.array)
        self._drop(self.gradient.array, kept, 1)
        torch.mm(self.outer_turned, self.gradient.tensor, out=self.d_gated.tensor)
        block_loops.gated_backward(self.linear.array, self.d_gated.array, self._gated)
        self.d_outer.addmm_(self.gradient.tensor, self.gated.turned)
        self.d_inner.addmm_(self.linear.tensor, self.active.turned)
        torch.mm(self.inner_turned, self.linear.tensor, out=self.d_y.tensor)
        self._drop(self.d_y.array, kept, 0)
        mix_loops.scaled_by(self.d_y.array, self.y.array)
        block_loops.masked(self.d_y.array, valid)
        mix_loops.skip_backward(self.d_y.array, self._inputs, weights.skip, du.numpy(), self.d_skips)
        if weights.forms is not None:
            mix_loops.scaled_by(self.d_y.array, tile.inverse.array)
            mix_loops.d_square_out(self.d_y.array, mixed, tile.inverse.array)
        tile.backward(self.d_y.tensor, self.d_y.turned, self.code.array, self.s.array, self.d_code.array, self.ds.array)
        if weights.forms is not None:
            tile.norms_backward(self.code.array, self.d_code.array)
        planes = tile.inner // len(states)
        for k, each in enumerate(ds):
            mix_loops.transposed(self.ds.rows(k * planes, (k + 1) * planes).array, each)
        du.addmm_(self.lift, self.d_code.tensor)
        self.d_heads.addmm_(self.d_code.tensor, self.u.turned)
