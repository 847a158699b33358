"""The backward half of a block's operator: launches of the gradients' kernels, range by range."""

import torch
import triton
from torch import Tensor

from tides.kernels.triton.block_backward_kernels import (
    drive_backward_kernel,
    heads_backward_kernel,
    readout_backward_kernel,
    readout_kernel,
)
from tides.kernels.triton.block_pass import BlockPass, both
from tides.kernels.triton.block_tail_kernels import tail_backward_block_kernel, tail_sums_kernel
from tides.kernels.triton.block_weight_kernels import block_weight_kernel
from tides.kernels.triton.packing_kernels import unpack_kernel
from tides.kernels.triton.precision import matrix_precision

# Launch shapes measured on an H200: rows of a tile, programs that keep sums, splits of a range for the mixes' weights
# and how many z̃_i one of their programs serves, steps of a range.
_ROWS = 64
_TAIL_ROWS = 32
_HEAD_ROWS = 64
_PROGRAMS = 528
_WEIGHT_ROWS = 32
_WEIGHT_WARPS = 8
_SPLITS = 264
_GROUP = 8
_RANGE = (1 << 13, 1 << 17)


class BlockGradients:
    """Sums per program, and what the mixes' weights need of one range of steps."""

    def __init__(self, run: BlockPass) -> None:
        self.run = run
        # About an eighth of the steps: what a range needs is then small beside what the batch keeps.
        least, most = _RANGE
        eighth = triton.next_power_of_2(triton.cdiv(run.rows * run.models, 8))
        self.range = min(run.rows, max(_ROWS, min(most, max(least, eighth)) // run.models))
        self.starts = range(0, run.rows, self.range)
        self.d_packed = torch.empty_like(run.packed)

    def _range_buffers(self) -> None:
        """What the weights of a mix need of one range; not kept while the scan's adjoint runs."""
        run, layout = self.run, self.run.layout
        self.left = run.x.new_empty(run.models, self.range, layout.width)
        self.d_square = torch.empty_like(self.left) if layout.mix_norm else self.left
        self.codes = run.x.new_empty(run.models, self.range, layout.rank)

    def leave(self, gradient: Tensor, states: list[Tensor], seed: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        """The skip connection's share of du, and the gradients of the states."""
        run, layout = self.run, self.run.layout
        self._range_buffers()
        self.d_readout_codes = run.x.new_empty(run.models, run.rows, layout.rank)
        d_u = torch.empty_like(run.x)
        d_states = [torch.empty_like(state) for state in states]
        grid = (triton.cdiv(self.range, _ROWS), run.models)
        tiles, programs = _shares(self.range, _TAIL_ROWS)
        partial = run.x.new_empty(run.models, programs, layout.at_drive - layout.at_skip)
        sums = run.x.new_zeros(run.models, layout.at_drive - layout.at_skip)
        d_inner = run.x.new_empty(2, run.models, self.range, layout.inner)
        gated = torch.empty_like(d_inner[0])
        inputs = (run.x, run.affine, run.valid, run.packed)
        kernel, root, gram = run.readout
        tail_flags = run.tail_flags | {key: run.readout_flags[key] for key in ("H", "HB", "HAS_VALID", "PRECISION")}
        total = None
        for start in self.starts:
            part = (run.rows, layout.size, start, self.range)
            readout_kernel[grid](
                *inputs, kernel, root, *both(states), self.left, *part, layout.at_readout_code, run.eps, run.factor,
                **run.readout_flags, BM=_ROWS,
            )  # fmt: skip
            tail = (gradient, *inputs, self.left, run.x if seed is None else seed, d_u, d_inner, gated)
            tail_backward_block_kernel[grid](*tail, *part, layout.at_skip, **tail_flags, BM=_ROWS)
            tail_sums_kernel[(programs, run.models)](
                *tail, partial, *part, tiles, partial.shape[-1], layout.at_skip, **tail_flags, BM=_TAIL_ROWS
            )
            sums += partial.sum(1)
            readout_backward_kernel[grid](
                *inputs, kernel, root, gram, *both(states), *both(d_states), d_u, self.left, self.d_square, self.codes,
                self.d_readout_codes, *part, layout.at_readout_code, layout.at_skip, run.eps, run.factor,
                **run.readout_flags, BM=_ROWS,
            )  # fmt: skip
            total = self._weights(total, start, states, run.readout_width, output=True)
        self._unpack(total, layout.at_readout, layout.directions)
        self.d_packed[:, layout.at_skip : layout.at_drive] = sums
        del self.left, self.d_square, self.codes
        return d_u, d_states

    def enter(self, gradient: Tensor, d_decay: Tensor, d_drive: Tensor, d_u: Tensor) -> tuple[Tensor, Tensor]:
        """dx, in the memory of du, and the gradient of the norm's scale and shift (m, 2, h)."""
        run, layout = self.run, self.run.layout
        inputs = (run.x, run.affine, run.valid, run.packed)
        self._range_buffers()
        d_codes = torch.empty_like(self.d_readout_codes)
        total = None
        for start in self.starts:
            drive_backward_kernel[(triton.cdiv(self.range, _ROWS), run.models)](
                *inputs, *run.drive, torch.view_as_real(d_drive), d_u, self.left, self.d_square, self.codes,
                d_codes, run.rows, layout.size, start, self.range, layout.at_drive_code, run.eps,
                **run.drive_flags, BM=_ROWS,
            )  # fmt: skip
            total = self._weights(total, start, [d_drive], run.ob, output=False)
        self._unpack(total, layout.at_drive, 1)
        tiles, programs = _shares(run.rows, _HEAD_ROWS)
        partial = run.x.new_empty(run.models, programs, layout.at_skip + 2 * layout.width)
        flags = {key: value for key, value in run.drive_flags.items() if key not in ("OB", "NORM")} | run.rate_flags
        heads_backward_kernel[(programs, run.models)](
            gradient, *inputs, d_decay, d_codes, self.d_readout_codes, d_u, d_u, partial, run.rows,
            layout.size, tiles, partial.shape[-1], layout.at_drive_code, layout.at_readout_code, layout.at_skip,
            run.eps, run.clip, **flags, BM=_HEAD_ROWS,
        )  # fmt: skip
        sums = partial.sum(1)
        self.d_packed[:, : layout.at_skip] = sums[:, : layout.at_skip]
        return d_u, sums[:, layout.at_skip :].reshape(run.models, 2, layout.width).clone()

    def clocks(self, d_frequency: Tensor, d_scale: Tensor) -> None:
        """Gradients of frequencies and time scales, given those of every sequence (m·b, 1, p)."""
        run, layout = self.run, self.run.layout
        for start, change in ((layout.at_frequency, d_frequency), (layout.at_scale, d_scale)):
            rows = change.reshape(run.models, run.batch, layout.modes)
            torch.sum(rows, 1, out=self.d_packed[:, start : start + layout.modes])

    def _weights(self, total: Tensor | None, start: int, right: list[Tensor], width: int, *, output: bool) -> Tensor:
        """The gradients of K and of the Gram form (m, i, HB, width + IB), a range added to the total so far."""
        run, layout = self.run, self.run.layout
        per_split = triton.cdiv(triton.cdiv(self.range, _SPLITS), _WEIGHT_ROWS) * _WEIGHT_ROWS
        group = min(_GROUP, triton.next_power_of_2(layout.rank))
        splits, groups = triton.cdiv(self.range, per_split), triton.cdiv(layout.rank, group)
        out = run.x.new_empty(run.models, splits, layout.rank + 1, run.hb, width + run.ib)
        block_weight_kernel[(groups, splits, run.models)](
            self.left, *both(right), self.codes, self.d_square, out, run.rows, start, self.range, per_split,
            H=layout.width, P2=2 * layout.modes, R=layout.rank, HB=run.hb, OB=width, IB=run.ib, BM=_WEIGHT_ROWS,
            GROUP=group, NORM=layout.mix_norm, BOTH=len(right) == 2, OUTPUT=output,
            PRECISION=matrix_precision(), num_warps=_WEIGHT_WARPS,
        )  # fmt: skip
        found = out.sum(1)
        return found if total is None else total.add_(found)

    def _unpack(self, d_kernel: Tensor | None, base: int, directions: int) -> None:
        assert d_kernel is not None
        run, layout = self.run, self.run.layout
        modes = layout.modes * directions
        d_norm = run.x.new_empty(run.models, layout.width, modes)
        unpack_kernel[(layout.width, run.models)](
            run.packed, d_kernel, self.d_packed, d_norm, layout.size, base, d_kernel.shape[1], H=layout.width, P=modes,
            R=layout.rank, HB=run.hb, PB=d_kernel.shape[-1] - run.ib, IB=run.ib, NORM=layout.mix_norm,
        )  # fmt: skip
        if layout.mix_norm:
            at = layout.at_norm(base, directions)
            torch.sum(d_norm, 1, out=self.d_packed[:, at : at + modes])


def _shares(rows: int, tile: int) -> tuple[int, int]:
    """Tiles of one program that keeps sums, and how many such programs serve `rows`."""
    tiles = triton.cdiv(triton.cdiv(rows, tile), _PROGRAMS)
    return tiles, triton.cdiv(rows, tile * tiles)
