"""The weights of one mix of a wide block: as matrices for its products, as forms for its norm, and their gradients."""

from typing import NamedTuple

import torch
from torch import Tensor

from tides.kernels.triton.direct import launch
from tides.kernels.triton.wide_products import Halves
from tides.kernels.triton.wide_weight_kernels import columns_kernel, pack_kernel, unpack_kernel

# Elements of a program's tile of a matrix, and of a vector.
_MATRIX_TILE = 4096
_TILE = 1024


class MixWeights(NamedTuple):
    """B_0 or C_0 (p, h, 2), W_up (p, h, 2, r), and the norm's weight (p); all contiguous."""

    base: Tensor
    up: Tensor
    norm: Tensor | None

    @property
    def code(self) -> int:
        """i, numbers of z̃"""
        return self.up.shape[-1] + 1

    def matrix(self, *, by_plane: bool, signed: bool) -> Halves:
        """K (2p, i·h) or (h, i·2p); `signed` has the minus sign of Re(C s) = C_re s_re − C_im s_im."""
        p, h, _, r = self.up.shape
        a, width = (2 * p, (r + 1) * h) if by_plane else (h, (r + 1) * 2 * p)
        halves = Halves(self.up.new_empty(3 * a, width, dtype=torch.float16), self.up.new_empty(width))
        block = 1 << (a - 1).bit_length()
        columns = max(4, _MATRIX_TILE // block)
        launch(
            pack_kernel, (-(-width // columns),), self.up, self.base, self._norm, *halves, h, 2 * p, r, AB=block,
            BW=columns, BY_PLANE=by_plane, SIGNED=signed, NORM=self.norm is not None,
        )  # fmt: skip
        return halves

    def columns(self, dtype: torch.dtype) -> Tensor:
        """[W_up, B_0] by column: (h, 2p, i)."""
        p, h, _, r = self.up.shape
        columns = self.up.new_empty(h, 2 * p, r + 1, dtype=dtype)
        grid = (-(-h * 2 * p * (r + 1) // _TILE),)
        launch(columns_kernel, grid, self.up, self.base, columns, h, 2 * p, r, BLOCK=_TILE)
        return columns

    def forms(self) -> Tensor | None:
        """G_h (h, i·i) in float64, with which the mean square of column h is z̃ᵀ G_h z̃."""
        if self.norm is None:
            return None
        columns = self.columns(torch.float64)
        return torch.bmm(columns.mT, columns).flatten(1).div_(self.up.shape[0])

    def gradients(self, d_kernel: Tensor, products: Tensor | None, *, readout: bool) -> "MixWeights":
        """Of base, up and norm, from that of K, (i·h, 2p) or (2p, i·h), and from Σ_k 2 ds_k (z̃_i z̃_j)_k (i·i, h)."""
        p, h, _, r = self.up.shape
        d_up, d_base = torch.empty_like(self.up), torch.empty_like(self.base)
        d_norm, spread = None if self.norm is None else torch.empty_like(self.norm), self.up
        if products is not None:
            spread = torch.bmm(self.columns(torch.float32), products.t().reshape(h, r + 1, r + 1))
        outputs = (d_up, d_base, d_base if d_norm is None else d_norm)
        launch(
            unpack_kernel, (p,), d_kernel, spread, self.up, self.base, self._norm, *outputs, h, p, r, BLOCK=_TILE,
            READOUT=readout, NORM=d_norm is not None,
        )  # fmt: skip
        return MixWeights(d_base, d_up, d_norm)

    @property
    def _norm(self) -> Tensor:
        return self.base if self.norm is None else self.norm
