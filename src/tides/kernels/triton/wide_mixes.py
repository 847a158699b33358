"""Both mixes of a wide block: matrix products with the passes of `wide_kernels` between them.

Each is Σ_i z̃_i (x K)_i, with x = u/rms and K (h, i·2p) for the drive, x = s and K (2p, i·h) for the readout, which is
divided by its rms afterwards. Rows are taken in parts where the temporaries would be too large. Gradients of K are
products of z̃ ⊗ x that sum over all rows, in float32.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from tides.kernels.bilinear import added
from tides.kernels.triton import bilinear
from tides.kernels.triton.direct import launch
from tides.kernels.triton.wide_kernels import (
    both_sums_kernel,
    divide_kernel,
    drive_backward_kernel,
    readout_backward_kernel,
    readout_kernel,
    weighted_sum_kernel,
)
from tides.kernels.triton.wide_products import halve_rows, product, room_for_halves, row_shape, sum_over_rows
from tides.kernels.triton.wide_weights import MixWeights

# Elements of the largest temporary.
_PART = 1 << 26


class MixGradients(NamedTuple):
    """What a mix hands back; `more_code` comes from its norm."""

    x: Tensor
    code: Tensor
    more_code: Tensor
    weights: MixWeights


def drive(u: Tensor, code: Tensor, weights: MixWeights, forms: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """v (n, 2p) of u (n, h) and z̃ (n, i), and the inverse rms (n, h)."""
    matrix, inverse = weights.matrix(by_plane=False, signed=False), _room_for_norm(u, forms)
    out = u.new_empty(u.shape[0], 2 * weights.up.shape[0])
    for rows in _parts(u.shape[0], matrix.parts.shape[1]):
        z, x = _cut(code, rows), _cut(u, rows)
        if forms is None:
            halves = halve_rows(x)
        else:
            halves = room_for_halves(x)
            grid, flags = row_shape(*x.shape)
            launch(
                divide_kernel, grid, _squares(z, forms), x, _cut(inverse, rows), *halves, x.shape[0], **flags, EPS=eps
            )
        grid, flags = row_shape(*_cut(out, rows).shape)
        launch(
            weighted_sum_kernel, grid, *product(halves, matrix), z, _cut(out, rows), x.shape[0], **flags, I=z.shape[1]
        )
    return out, inverse


def drive_backward(
    gradient: Tensor, u: Tensor, code: Tensor, inverse: Tensor, du: Tensor, weights: MixWeights, forms: Tensor | None
) -> MixGradients:
    """Gradients of code and weights from that of v; that of u is added to `du`."""
    matrix, halves = weights.matrix(by_plane=True, signed=False), halve_rows(gradient)
    norms, d_code, d_kernel = _Norms(code, forms), torch.empty_like(code), None
    for rows in _parts(u.shape[0], matrix.parts.shape[1]):
        z, g, x = _cut(code, rows), _cut(gradient, rows), _cut(u, rows)
        work, *units = product(halves.rows(rows), matrix)
        grid, flags = row_shape(*x.shape)
        d_square = norms.room(x)
        tensors = (work, *units, z, x, _cut(inverse, rows), _cut(d_code, rows), _cut(du, rows), d_square)
        launch(drive_backward_kernel, grid, *tensors, z.shape[0], **flags, I=z.shape[1], NORM=forms is not None)
        d_kernel = added(d_kernel, sum_over_rows(work, g))
        del work
        norms.add(d_square, rows)
    assert d_kernel is not None
    return MixGradients(du, d_code, norms.d_code, weights.gradients(d_kernel, norms.products, readout=False))


def readout(
    s: Tensor,
    u: Tensor,
    code: Tensor,
    weights: MixWeights,
    forms: Tensor | None,
    skip: Tensor,
    valid: Tensor | None,
    eps: float,
    factor: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """y (n, h) of the planes s (n, 2p), GELU(y), the inverse rms, and Re(C s)."""
    matrix, halves = weights.matrix(by_plane=True, signed=True), halve_rows(s)
    inverse, mixed = _room_for_norm(u, forms), _room_for_norm(u, forms)
    y, activated = torch.empty_like(u), torch.empty_like(u)
    for rows in _parts(u.shape[0], matrix.parts.shape[1]):
        z, x = _cut(code, rows), _cut(u, rows)
        grid, flags = row_shape(*x.shape)
        mask = y if valid is None else _cut(valid, rows)
        inputs = (*product(halves.rows(rows), matrix), z, _squares(z, forms), x, skip, mask)
        outputs = (_cut(inverse, rows), _cut(mixed, rows), _cut(y, rows), _cut(activated, rows))
        launch(
            readout_kernel, grid, *inputs, *outputs, z.shape[0], factor, **flags, I=z.shape[1], EPS=eps,
            NORM=forms is not None, HAS_VALID=valid is not None,
        )  # fmt: skip
    return y, activated, inverse, mixed


def readout_backward(
    dy: Tensor,
    s: Tensor,
    u: Tensor,
    code: Tensor,
    inverse: Tensor,
    mixed: Tensor,
    weights: MixWeights,
    forms: Tensor | None,
    skip: Tensor,
    valid: Tensor | None,
    factor: float,
) -> tuple[MixGradients, Tensor, Tensor]:
    """Gradients of s, code and weights; those of u and of skip.

    With g = dy/rms and K_i = K[:, i]ᵀ, the products g K_i lead to both ds = Σ_i z̃_i g K_i and dz̃_i = s · g K_i.
    """
    n, h = u.shape
    norms, d_code, d_kernel = _Norms(code, forms), torch.empty_like(code), None
    du, ds, divided, d_square = torch.empty_like(u), torch.empty_like(s), torch.empty_like(u), norms.room(u)
    halves = room_for_halves(u)
    grid, flags = row_shape(n, h)
    share = u.new_empty(grid[0], h)
    inputs = (dy, u, skip, dy if valid is None else valid, inverse, mixed)
    launch(
        readout_backward_kernel, grid, *inputs, divided, *halves, du, d_square, share, n, factor, **flags,
        NORM=forms is not None, HAS_VALID=valid is not None,
    )  # fmt: skip
    matrix = weights.matrix(by_plane=False, signed=True)
    for rows in _parts(n, matrix.parts.shape[1]):
        z, planes = _cut(code, rows), _cut(s, rows)
        grid, flags = row_shape(*planes.shape)
        tensors = (*product(halves.rows(rows), matrix), z, planes, _cut(d_code, rows), _cut(ds, rows))
        launch(both_sums_kernel, grid, *tensors, z.shape[0], **flags, I=z.shape[1])
        del tensors
        outer = bilinear.outer(z, _cut(divided, rows), torch.float32)
        d_kernel = added(d_kernel, sum_over_rows(planes, outer))
        norms.add(_cut(d_square, rows), rows)
    assert d_kernel is not None
    found = weights.gradients(d_kernel, norms.products, readout=True)
    return MixGradients(ds, d_code, norms.d_code, found), du, share.sum(0)


class _Norms:
    """Gradients through the column norms, part by part."""

    def __init__(self, code: Tensor, forms: Tensor | None) -> None:
        self._code, self._forms = code, None if forms is None else forms.float()
        self.d_code = code if forms is None else torch.empty_like(code)
        self.products: Tensor | None = None

    def room(self, u: Tensor) -> Tensor:
        """Twice the gradient of the mean squares goes there."""
        return u if self._forms is None else torch.empty_like(u)

    def add(self, d_square: Tensor, rows: slice | None) -> None:
        if self._forms is None:
            return
        z = _cut(self._code, rows)
        work = torch.mm(d_square, self._forms).unflatten(-1, (z.shape[1], -1))
        bilinear.inner(work, z, z, _cut(self.d_code, rows))
        self.products = added(self.products, sum_over_rows(work.flatten(-2), d_square))


def _squares(code: Tensor, forms: Tensor | None) -> Tensor:
    """The mean square of every column, for every row (n, h), in float64."""
    return code if forms is None else torch.mm(bilinear.outer(code, code, torch.float64), forms.t())


def _room_for_norm(u: Tensor, forms: Tensor | None) -> Tensor:
    return u if forms is None else torch.empty_like(u)


def _parts(rows: int, width: int) -> list[slice] | list[None]:
    """Slices of the rows whose temporaries of this width fit `_PART`; None stands for all of them."""
    most = max(64, _PART // width)
    if rows <= most:
        return [None]
    return [slice(start, start + most) for start in range(0, rows, most)]


def _cut(x: Tensor, rows: slice | None) -> Tensor:
    return x if rows is None else x[rows]
