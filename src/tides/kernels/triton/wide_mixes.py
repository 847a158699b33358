"""Both mixes of a wide block: matrix products with the passes of `wide_kernels` between them.

Each is Σ_i z̃_i (x K)_i, with x = u/rms and K (h, i·2p) for the drive, x = s and K (2p, i·h) for the readout, which is
divided by its rms afterwards. Rows are taken in parts where the temporaries would be too large. Gradients of K are
products of z̃ ⊗ x that sum over all rows, in float32.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from tides.functional.products import row_product
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
from tides.kernels.triton.wide_products import Halves, halve_columns, halve_rows, product, room_for_halves, row_shape

# Elements of the largest temporary.
_PART = 1 << 26


class MixWeights(NamedTuple):
    """B_0 or C_0 (p, h, 2), W_up (p, h, 2, r), and the norm's weight (p)."""

    base: Tensor
    up: Tensor
    norm: Tensor | None

    @property
    def code(self) -> int:
        """i, numbers of z̃"""
        return self.up.shape[-1] + 1

    def columns(self, dtype: torch.dtype) -> Tensor:
        """[W_up, B_0] by column: (h, p, 2, i)."""
        p, h, _, r = self.up.shape
        columns = self.up.new_empty(h, p, 2, r + 1, dtype=dtype)
        columns[..., :r] = self.up.transpose(0, 1)
        columns[..., r] = self.base.transpose(0, 1)
        return columns

    def forms(self) -> Tensor | None:
        """G_h (h, i·i) in float64, with which the mean square of column h is z̃ᵀ G_h z̃."""
        if self.norm is None:
            return None
        columns = self.columns(torch.float64).flatten(1, 2)
        return torch.bmm(columns.mT, columns).flatten(1).div_(self.up.shape[0])

    def by_channel(self, *, signed: bool) -> Halves:
        """K (h, i·2p); `signed` has the minus sign of Re(C s) = C_re s_re − C_im s_im."""
        p, h, _, r = self.up.shape
        kernel = self.up.new_empty(h, r + 1, p, 2)
        parts = kernel[:, :r], kernel[:, r]
        self._weigh(self.up.permute(1, 3, 0, 2), self.base.transpose(0, 1), *parts, (1, 1))
        if signed:
            kernel[..., 1].neg_()
        return halve_columns(kernel.view(h, (r + 1) * 2 * p))

    def by_plane(self, *, signed: bool) -> Halves:
        """K (2p, i·h)."""
        p, h, _, r = self.up.shape
        kernel = self.up.new_empty(p, 2, r + 1, h)
        parts = kernel[:, :, :r], kernel[:, :, r]
        self._weigh(self.up.permute(0, 2, 3, 1), self.base.transpose(1, 2), *parts, (3, 2))
        if signed:
            kernel[:, 1].neg_()
        return halve_columns(kernel.view(2 * p, (r + 1) * h))

    def _weigh(self, up: Tensor, base: Tensor, to_up: Tensor, to_base: Tensor, behind: tuple[int, int]) -> None:
        """Both parts times the norm's weight; `behind` says how many axes follow that of the modes in each."""
        if self.norm is None:
            to_up.copy_(up)
            to_base.copy_(base)
        else:
            torch.mul(up, self.norm.view(-1, *[1] * behind[0]), out=to_up)
            torch.mul(base, self.norm.view(-1, *[1] * behind[1]), out=to_base)

    def gradients(self, d_kernel: Tensor, products: Tensor | None) -> "MixWeights":
        """Of base, up and norm, from that of K by column (h, p, 2, i) and from Σ_k 2 ds_k (z̃_i z̃_j)_k (i·i, h)."""
        p, h, _, r = self.up.shape
        d_up, d_base = torch.empty_like(self.up), torch.empty_like(self.base)
        by_up, by_base = d_kernel[..., :r].transpose(0, 1), d_kernel[..., r].transpose(0, 1)
        if self.norm is None or products is None:
            return MixWeights(d_base.copy_(by_base), d_up.copy_(by_up), None)
        columns = self.columns(torch.float32)
        slopes = products.t().reshape(h, r + 1, r + 1)
        spread = torch.bmm(columns.flatten(1, 2), slopes).div_(p).view(h, p, 2, r + 1)
        torch.addcmul(spread[..., :r].transpose(0, 1), by_up, self.norm.view(p, 1, 1, 1), out=d_up)
        torch.addcmul(spread[..., r].transpose(0, 1), by_base, self.norm.view(p, 1, 1), out=d_base)
        return MixWeights(d_base, d_up, columns.mul_(d_kernel).sum((0, 2, 3)))


class MixGradients(NamedTuple):
    """What a mix hands back; `more_code` comes from its norm."""

    x: Tensor
    code: Tensor
    more_code: Tensor
    weights: MixWeights


def drive(u: Tensor, code: Tensor, weights: MixWeights, forms: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """v (n, 2p) of u (n, h) and z̃ (n, i), and the inverse rms (n, h)."""
    matrix, inverse = weights.by_channel(signed=False), _room_for_norm(u, forms)
    out = u.new_empty(u.shape[0], 2 * weights.up.shape[0])
    for rows in _parts(u.shape[0], matrix.parts.shape[1]):
        z, x = code[rows], u[rows]
        if forms is None:
            halves = halve_rows(x)
        else:
            halves = room_for_halves(x)
            grid, flags = row_shape(*x.shape)
            launch(divide_kernel, grid, _squares(z, forms), x, inverse[rows], *halves, x.shape[0], **flags, EPS=eps)
        grid, flags = row_shape(*out[rows].shape)
        launch(weighted_sum_kernel, grid, *product(halves, matrix), z, out[rows], x.shape[0], **flags, I=z.shape[1])
    return out, inverse


def drive_backward(
    gradient: Tensor, u: Tensor, code: Tensor, inverse: Tensor, du: Tensor, weights: MixWeights, forms: Tensor | None
) -> MixGradients:
    """Gradients of code and weights from that of v; that of u is added to `du`."""
    matrix, halves = weights.by_plane(signed=False), halve_rows(gradient)
    norms, d_code, d_kernel = _Norms(code, forms), torch.empty_like(code), None
    for rows in _parts(u.shape[0], matrix.parts.shape[1]):
        z, g, x = code[rows], gradient[rows], u[rows]
        work, *units = product(halves.rows(rows), matrix)
        grid, flags = row_shape(*x.shape)
        d_square = norms.room(x)
        tensors = (work, *units, z, x, inverse[rows], d_code[rows], du[rows], d_square)
        launch(drive_backward_kernel, grid, *tensors, z.shape[0], **flags, I=z.shape[1], NORM=forms is not None)
        d_kernel = added(d_kernel, row_product(work.t()[None], g[None])[0])
        del work
        norms.add(d_square, rows)
    assert d_kernel is not None
    by_column = d_kernel.view(weights.code, u.shape[1], -1, 2).permute(1, 2, 3, 0)
    return MixGradients(du, d_code, norms.d_code, weights.gradients(by_column, norms.products))


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
    matrix, halves = weights.by_plane(signed=True), halve_rows(s)
    inverse, mixed = _room_for_norm(u, forms), _room_for_norm(u, forms)
    y, activated = torch.empty_like(u), torch.empty_like(u)
    for rows in _parts(u.shape[0], matrix.parts.shape[1]):
        z, x = code[rows], u[rows]
        grid, flags = row_shape(*x.shape)
        mask = y if valid is None else valid[rows]
        inputs = (*product(halves.rows(rows), matrix), z, _squares(z, forms), x, skip, mask)
        outputs = (inverse[rows], mixed[rows], y[rows], activated[rows])
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
    matrix = weights.by_channel(signed=True)
    for rows in _parts(n, matrix.parts.shape[1]):
        z, planes = code[rows], s[rows]
        grid, flags = row_shape(*planes.shape)
        tensors = (*product(halves.rows(rows), matrix), z, planes, d_code[rows], ds[rows])
        launch(both_sums_kernel, grid, *tensors, z.shape[0], **flags, I=z.shape[1])
        del tensors
        outer = bilinear.outer(z, divided[rows], torch.float32)
        d_kernel = added(d_kernel, row_product(planes.t()[None], outer[None])[0])
        norms.add(d_square[rows], rows)
    assert d_kernel is not None
    by_plane = d_kernel.view(-1, 2, weights.code, h)
    by_plane[:, 1].neg_()
    found = weights.gradients(by_plane.permute(3, 0, 1, 2), norms.products)
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

    def add(self, d_square: Tensor, rows: slice) -> None:
        if self._forms is None:
            return
        z = self._code[rows]
        work = torch.mm(d_square, self._forms).unflatten(-1, (z.shape[1], -1))
        bilinear.inner(work, z, z, self.d_code[rows])
        self.products = added(self.products, row_product(work.flatten(-2).t()[None], d_square[None])[0])


def _squares(code: Tensor, forms: Tensor | None) -> Tensor:
    """The mean square of every column, for every row (n, h), in float64."""
    return code if forms is None else torch.mm(bilinear.outer(code, code, torch.float64), forms.t())


def _room_for_norm(u: Tensor, forms: Tensor | None) -> Tensor:
    return u if forms is None else torch.empty_like(u)


def _parts(rows: int, width: int) -> Iterator[slice]:
    """Slices of the rows whose temporaries of this width fit `_PART`."""
    most = max(64, _PART // width)
    return (slice(start, start + most) for start in range(0, rows, most))
