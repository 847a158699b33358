"""The part of a block before its scan: norm, codes, decay rates and drive, and their gradients."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from tides.kernels.cpu import block_loops, mix_loops
from tides.kernels.cpu.mix_tile import MixTile
from tides.kernels.cpu.planes import Planes, View
from tides.kernels.cpu.rates import reparameterised, slopes


class EnterWeights(NamedTuple):
    """Of one model: `heads` (i + p, h + 1) maps [u; 1] to the drive's code and to θ."""

    scale: Any
    shift: Any
    heads: Tensor
    kernel: Tensor
    size: int
    forms: Tensor | None
    rate_norm: Any
    rates_normed: bool
    reparam: int
    limit: float
    eps: float


class Enter:
    """One thread's memory for blocks of steps, and its sums over them."""

    def __init__(self, weights: EnterWeights, steps: int) -> None:
        self.total, self.width = weights.heads.shape[0], weights.heads.shape[1] - 1
        self.size, modes = weights.size, self.total - weights.size
        self.planes = planes = Planes(steps, weights.heads.dtype)
        self.u, self.heads = planes.add(self.width, ones=True), planes.add(self.total)
        self.rates, self.d_rates, self.scales = planes.add(modes), planes.add(modes), planes.add(2)
        columns = 0 if weights.forms is None else self.width
        self.tile = MixTile(self.size, self.width, weights.kernel.shape[1], columns, planes)
        self.scaled, self.drive = planes.add(self.width), planes.add(self.tile.outer)
        # Gradients of the heads and, behind them, of u: one product with u collects those of all maps.
        self.gradients = planes.add(self.total + self.width)

    def load(self, weights: EnterWeights) -> None:
        """Take weights of the same sizes, and begin new sums."""
        self.weights, heads = weights, weights.heads
        self.tile.load(weights.kernel, weights.forms)
        self.lift = heads[:, :-1].t()
        self.sums = heads.new_zeros(self.total + self.width, self.width + 1)
        self.d_rate_norm = heads.new_zeros(self.total - self.size, dtype=torch.float64)
        self.d_rate_norms = self.d_rate_norm.numpy()

    @property
    def _inputs(self) -> View:
        return self.u.rows(0, self.width)

    @property
    def _code(self) -> Any:
        return self.heads.rows(0, self.size).array

    def _project(self, rows: Any, valid: Any) -> None:
        """u, codes and normalised θ of a block."""
        weights = self.weights
        block_loops.entered(rows, weights.scale, weights.shift, valid, self._inputs.array)
        torch.mm(weights.heads, self.u.tensor, out=self.heads.tensor)
        block_loops.normalised_modes(
            self.heads.rows(self.size, self.total).array,
            weights.rate_norm,
            weights.rates_normed,
            weights.eps,
            self.scales.array[0],
            self.rates.array,
        )

    def _scale(self) -> None:
        """`scaled` ← u over the column norms."""
        self.tile.find_norms(self._code, self.weights.eps)
        mix_loops.multiplied(self._inputs.array, self.tile.inverse.array, self.scaled.array)

    def forward(self, rows: Any, valid: Any, decay: Any, drive: Any) -> None:
        """`decay` (n, p) and `drive` (n, 2p) of the block with inputs `rows` (n, h)."""
        weights = self.weights
        self._project(rows, valid)
        reparameterised(self.rates.array.reshape(-1), weights.reparam, weights.limit)
        mix_loops.transposed(self.rates.array, decay)
        source = self._inputs.tensor
        if weights.forms is not None:
            self._scale()
            source = self.scaled.tensor
        self.tile.forward(self._code, source, self.drive.array)
        mix_loops.transposed(self.drive.array, drive)

    def backward(
        self, rows: Any, valid: Any, d_decay: Any, d_drive: Tensor, d_later: Any, gradient: Any, dx: Any
    ) -> None:
        """`dx` (n, h): the residual's `gradient` and what flows through u, of which `d_later` (h, n) is known.

        `d_later` may be the memory of `dx`.
        """
        weights, size, total = self.weights, self.size, self.total
        self._project(rows, valid)
        u, code, theta = self._inputs.array, self._code, self.heads.rows(size, total).array
        d_code, d_theta = self.gradients.rows(0, size).array, self.gradients.rows(size, total).array
        d_heads, du = self.gradients.rows(0, total).tensor, self.gradients.rows(total, total + self.width)
        mix_loops.transposed(d_decay, self.d_rates.array)
        slopes(self.rates.array.reshape(-1), weights.reparam, weights.limit, self.d_rates.array.reshape(-1))
        block_loops.modes_backward(
            theta,
            weights.rate_norm,
            weights.rates_normed,
            self.scales.array[0],
            self.rates.array,
            self.scales.array[1],
            d_theta,
            self.d_rate_norms,
        )
        if weights.forms is None:
            self.tile.backward(d_drive.t(), d_drive, code, u, d_code, du.array)
        else:
            self._scale()
            self.tile.backward(d_drive.t(), d_drive, code, self.scaled.array, d_code, du.array)
            mix_loops.d_square_in(u, self.tile.inverse.array, du.array)
            self.tile.norms_backward(code, d_code)
        block_loops.added(d_later, du.array)
        du.tensor.addmm_(self.lift, d_heads)
        block_loops.masked(du.array, valid)
        self.sums.addmm_(self.gradients.tensor, self.u.turned)
        block_loops.left(du.array, weights.scale, gradient, dx)
