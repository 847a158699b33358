"""The weights of one mix of a wide block: as matrices for its products, as forms for its norm, and their gradients."""

import torch
from torch import Tensor

from tides.kernels.triton.buffers import Buffer, View
from tides.kernels.triton.wide_pass import WidePass, part_of
from tides.kernels.triton.wide_products import Halves, room_for_halves
from tides.kernels.triton.wide_weight_kernels import columns_kernel, pack_kernel, unpack_kernel

# Elements of a program's tile of a matrix, and of a vector.
_MATRIX_TILE = 4096
_TILE = 1024


class MixWeights:
    """B_0 or C_0 (p, h, 2), W_up (p, h, 2, r), and the norm's weight (p)."""

    def __init__(self, run: WidePass, mix: str) -> None:
        self._run, self._plan, self._mix, layout = run, run.plan, mix, run.layout
        self.width, self.code, self.norm = layout.width, layout.rank + 1, layout.mix_norm
        self.modes = layout.modes * (layout.directions if mix == "readout" else 1)

    def _weights(self) -> tuple[Buffer, Buffer, Buffer]:
        base = self._run.weight(f"{self._mix} base")
        norm = self._run.weight(f"{self._mix} norm") if self.norm else base
        return self._run.weight(f"{self._mix} up"), base, norm

    def matrix(self, *, by_plane: bool, signed: bool) -> Halves:
        """K (2p, i·h) or (h, i·2p); `signed` has the minus sign of Re(C s) = C_re s_re − C_im s_im."""
        p, h = self.modes, self.width
        a, width = (2 * p, self.code * h) if by_plane else (h, self.code * 2 * p)
        halves = room_for_halves(self._plan, width, a)
        block = 1 << (a - 1).bit_length()
        columns = max(4, _MATRIX_TILE // block)
        self._plan.launch(
            pack_kernel, (-(-width // columns),), *self._weights(), *halves, h, 2 * p, self.code - 1, AB=block,
            BW=columns, BY_PLANE=by_plane, SIGNED=signed, NORM=self.norm,
        )  # fmt: skip
        return halves

    def _columns(self, dtype: torch.dtype) -> View:
        """[W_up, B_0] by column: (h, 2p, i)."""
        sizes = (self.width, 2 * self.modes, self.code)
        columns = self._plan.space(*sizes, dtype=dtype)
        up, base, _ = self._weights()
        grid = (-(-sizes[0] * sizes[1] * sizes[2] // _TILE),)
        self._plan.launch(columns_kernel, grid, up, base, columns, *sizes[:2], self.code - 1, BLOCK=_TILE)
        return View.dense(columns, *sizes)

    def forms(self) -> Buffer:
        """G_h (h, i·i) in float64, with which the mean square of column h is z̃ᵀ G_h z̃; they are kept in float32."""
        columns = self._columns(torch.float64)
        sizes = (self.width, self.code, self.code)
        forms = self._plan.space(*sizes, dtype=torch.float64)
        exact = View.dense(forms, *sizes)
        self._plan.call(Tensor.baddbmm_, exact, columns.mT, columns, beta=0, alpha=1 / self.modes)
        self._plan.call(Tensor.copy_, View.dense(self._run.parts[f"{self._mix} forms"], *sizes), exact)
        self._plan.release(columns.buffer)
        return forms

    def gradients(self, d_kernel: Buffer, largest: Buffer, products: Buffer | None, d_packed: Buffer) -> None:
        """Of base, up and norm, from that of K (2p, i·h) in units, and from Σ_k 2 ds_k (z̃_i z̃_j)_k (h, i·i)."""
        p, h, i = self.modes, self.width, self.code
        spread = d_kernel
        if products is not None:
            columns = self._columns(torch.float32)
            spread = self._plan.space(h, 2 * p, i)
            self._plan.call(torch.bmm, columns, View.dense(products, h, i, i), out=View.dense(spread, h, 2 * p, i))
            self._plan.release(columns.buffer)
        names = ("up", "base", "norm" if self.norm else "base")
        outputs = (part_of(d_packed, self._run.layout, f"{self._mix} {name}") for name in names)
        self._plan.launch(
            unpack_kernel, (p,), d_kernel, largest, spread, *self._weights(), *outputs, h, p, i - 1, BLOCK=_TILE,
            SIGNED=self._mix == "readout", NORM=self.norm,
        )  # fmt: skip
        if products is not None:
            self._plan.release(spread)
