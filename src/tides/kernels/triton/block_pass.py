"""The forward half of a block's operator: padded weights, launches, and the scan between them."""

from typing import Any

import torch
import triton
from torch import Tensor

from tides.kernels.triton.block_kernels import EXP, SOFTPLUS, STABLE, STANDARD, enter_kernel, leave_kernel
from tides.kernels.triton.evolve import evolve_forward
from tides.kernels.triton.packing import Layout
from tides.kernels.triton.packing_kernels import pack_kernel
from tides.kernels.triton.precision import matrix_precision

_REPARAMS = {"standard": STANDARD, "exp": EXP, "stable": STABLE, "softplus": SOFTPLUS}
# Launch shapes measured on an H200.
_ROWS = 64
_WARPS = 4


def padded(size: int) -> int:
    """The side of a tile that holds `size`."""
    return max(16, 1 << (size - 1).bit_length())


def both(states: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Real planes of the forward and the backward direction; twice the same where there is one."""
    return torch.view_as_real(states[0]), torch.view_as_real(states[-1])


class BlockPass:
    """Sizes, flags and padded weights of one call."""

    def __init__(
        self,
        x: Tensor,
        affine: Tensor,
        valid: Tensor | None,
        packed: Tensor,
        flags: list[int],
        methods: str,
        numbers: list[float],
    ) -> None:
        self.layout = layout = Layout.from_flags(flags)
        self.models, self.batch, self.steps, _ = x.shape
        self.rows = self.batch * self.steps
        self.x, self.affine, self.packed = x.contiguous(), affine.contiguous(), packed.contiguous()
        self.valid = self.x if valid is None else valid.contiguous().view(torch.uint8)
        self.eps, self.clip, self.factor, self.drop = numbers
        self.reparam, self.discretisation, self.hold, self.reverse = methods.split()
        h, p, f, i = layout.width, layout.modes, layout.inner, layout.rank + 1
        hb, pb, fb, ib, ob = (padded(size) for size in (h, p, f, i, 2 * p))
        self.readout_width = padded(2 * p * layout.directions)
        shared: dict[str, Any] = {"H": h, "P": p, "R": layout.rank, "HB": hb, "IB": ib, "DOWN": layout.down}
        shared |= {"NORM": layout.mix_norm, "HAS_VALID": valid is not None, "PRECISION": matrix_precision()}
        self.drive_flags = shared | {"OB": ob}
        self.rate_flags = {"PB": pb, "RATE_NORM": layout.rate_norm}
        self.rate_flags |= {"REPARAM": _REPARAMS[self.reparam], "CLIPPED": self.clip > 0}
        self.readout_flags = shared | {"OB": self.readout_width, "BOTH": layout.directions == 2}
        self.tail_flags = {"F": f, "FB": fb, "DROP": self.drop}
        self.hb, self.ib, self.ob = hb, ib, ob
        self.drive = self._tiles(layout.at_drive, 1)
        self.readout = self._tiles(layout.at_readout, layout.directions)
        self.grid = (triton.cdiv(self.rows, _ROWS), self.models)

    def _tiles(self, base: int, directions: int) -> tuple[Tensor, Tensor, Tensor]:
        """(K, R, G) of one mix."""
        layout, modes = self.layout, self.layout.modes * directions
        width = padded(2 * modes)
        kernel = self.x.new_empty(self.models, layout.rank + 1, self.hb, width)
        root = self.x.new_empty(self.models, layout.rank + 1, self.ib, self.hb) if layout.mix_norm else kernel
        gram = torch.empty_like(root) if layout.mix_norm else kernel
        sizes = {"H": layout.width, "P": modes, "R": layout.rank, "HB": self.hb, "PB": width, "IB": self.ib}
        pack_kernel[(self.hb, self.models)](
            self.packed, kernel, root, gram, layout.size, base, **sizes, NORM=layout.mix_norm
        )
        return kernel, root, gram

    def clocks(self, gaps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Frequencies, gaps and time scales as `evolve` takes them: a row for every sequence."""
        layout = self.layout
        shape = (self.models, self.batch, layout.modes)
        frequency, scale = (
            self.packed[:, start : start + layout.modes].unsqueeze(1).expand(shape).reshape(-1, 1, layout.modes)
            for start in (layout.at_frequency, layout.at_scale)
        )
        return frequency, gaps.reshape(-1, self.steps, 1), scale

    def run_enter(self) -> tuple[Tensor, Tensor]:
        """Decay rates (m·b, l, p) and drives (m·b, l, p) complex."""
        layout = self.layout
        rows = self.models * self.batch
        decay = self.x.new_empty(rows, self.steps, layout.modes)
        drive = self.x.new_empty(rows, self.steps, layout.modes, 2)
        enter_kernel[self.grid](
            self.x, self.affine, self.valid, self.packed, *self.drive[:2], decay, drive,
            self.rows, layout.size, layout.at_drive_code, self.eps, self.clip, **self.drive_flags, **self.rate_flags,
            BM=_ROWS, num_warps=_WARPS,
        )  # fmt: skip
        return decay, torch.view_as_complex(drive)

    def directions(self, gaps: Tensor, behind: Tensor | None) -> list[tuple[Tensor, tuple[str, str, bool]]]:
        """Gaps and (discretisation, hold, reverse) of every direction."""
        found = [(gaps, (self.discretisation, self.hold, False))]
        if behind is not None:
            hold = "preceding" if self.reverse == "release" else self.hold
            found.append((behind, (self.discretisation, hold, True)))
        return found

    def run_scans(self, decay: Tensor, drive: Tensor, gaps: Tensor, behind: Tensor | None) -> list[Tensor]:
        """States of every direction."""
        return [
            evolve_forward(decay, *self.clocks(each), drive, None, None, *options)
            for each, options in self.directions(gaps, behind)
        ]

    def run_leave(self, states: list[Tensor], seed: Tensor | None) -> Tensor:
        layout = self.layout
        out = torch.empty_like(self.x)
        leave_kernel[self.grid](
            self.x, self.affine, self.valid, self.packed, *self.readout[:2], *both(states),
            self.x if seed is None else seed, out, self.rows, layout.size, layout.at_readout_code, layout.at_skip,
            self.eps, self.factor,
            **self.readout_flags, **self.tail_flags, BM=_ROWS, num_warps=_WARPS,
        )  # fmt: skip
        return out
