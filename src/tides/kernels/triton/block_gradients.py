"""The backward half of a block's operator: launches of the gradients' kernels, part by part and range by range.

A part of the batch goes through all of them before the next begins. Sums for the weights grow from range to range and
from part to part, those of each program in a row of its own, and are added up behind the last part.
"""

from typing import NamedTuple

from tides.kernels.triton.adjoint_kernels import adjoint_kernel
from tides.kernels.triton.block_backward_kernels import (
    drive_backward_kernel,
    heads_backward_kernel,
    readout_backward_kernel,
    readout_kernel,
)
from tides.kernels.triton.block_config import Part, padded, scan_chunk
from tides.kernels.triton.block_pass import COUNTED, BlockPass, shares
from tides.kernels.triton.block_tail_kernels import tail_backward_block_kernel, tail_sums_kernel
from tides.kernels.triton.block_tiles import LEAST_ROWS, PAIR_ROWS, TILES, pair_width, share, tile_of
from tides.kernels.triton.block_weight_kernels import block_weight_kernel
from tides.kernels.triton.buffers import Buffer
from tides.kernels.triton.last_kernels import add_last_kernel
from tides.kernels.triton.norm_kernels import norm_backward_kernel
from tides.kernels.triton.packing_kernels import unpack_kernel
from tides.kernels.triton.sum_kernels import clock_sums_kernel, sum_kernel

# Launch shapes measured on an H200: rows of a tile, programs that keep sums, programs for the sums of the mixes'
# weights, tiles each of them has at least and numbers it holds, steps of a range.
_ROWS = 64
_PROGRAMS = 528
_SUM_PROGRAMS = 1056
_SUM_TILES = 4
_SUMS = 3072
_RANGE = (26880, 1 << 17)
# Flags of the output mix that its gradient has no use for: `readout_kernel` leaves it the code and the norms.
_UNUSED = ("DOWN", "HAS_VALID", "ROOTS")
# Rows and columns of a tile that is summed up; rows and modes of the clocks'.
_SUM_TILE = (64, 32)
_CLOCK_TILE = (2048, 1)


class BlockGradients:
    """Launches from the gradient of a block's output to those of its inputs; `d_packed` is where the weights' go."""

    def __init__(self, run: BlockPass, gradient: Buffer, dx: Buffer, d_packed: Buffer) -> None:
        self.run, self.plan, self.layout, self.shape = run, run.plan, run.layout, run.shape
        # The gradient of u collects where dx goes.
        self.gradient, self.d_u, self.d_packed = gradient, dx, d_packed
        # About an eighth of the steps: what a range needs is then small beside what the batch keeps.
        least, most = _RANGE
        rows, models = run.shape.rows, run.shape.models
        eighth = 1 << (-(-rows * models // 8) - 1).bit_length()
        parts = run.shape.parts
        # The largest part comes first.
        self.rows = parts[0].stop
        self.range = min(self.rows, max(_ROWS, min(most, max(least, eighth)) // models))
        self.jb = pair_width(run.layout.rank)
        self.totals = self._totals()
        self.several = len(parts) > 1
        if self.several:
            # What outlives a part comes before what each one takes and gives back.
            self._begin_leave()
            self._begin_scans()
            self._begin_enter()

    def _range_buffers(self) -> tuple[Buffer, Buffer, Buffer]:
        """What the weights of a mix need of one range; not kept while the scan's adjoint runs."""
        layout, models = self.layout, self.shape.models
        left = self.plan.space(models, self.range, layout.width)
        d_square = self.plan.space(models, self.range, layout.width) if layout.mix_norm else left
        return left, d_square, self.plan.space(models, self.range, layout.rank)

    def _begin_leave(self) -> None:
        """Room for what `leave` sums up."""
        layout = self.layout
        self.tail_sums = self._program_sums("tail_sums", self.range, layout.at_drive - layout.at_skip)
        self.readout_weights = WeightSums(self, self.totals[-1], self.run.readout_width, output=True)

    def leave(self, part: Part, states: list[Buffer]) -> list[Buffer]:
        """The gradients of the states; the skip connection's share of du is in `d_u`."""
        run, plan, layout, shape, config = self.run, self.plan, self.layout, self.shape, self.run.config
        # What lives longer first: behind it lies then one stretch for the scan's adjoint.
        self.d_readout_codes = plan.space(part.sequences, shape.steps, layout.rank)
        d_states = [plan.space(state.size) for state in states]
        left, d_square, codes = buffers = self._range_buffers()
        if not self.several:
            self._begin_leave()
        sums, weights, sums_tile = self.tail_sums, self.readout_weights, TILES["tail_sums"]
        d_inner = plan.space(shape.models, self.range, 2 * layout.inner)
        gated = plan.space(shape.models, self.range, layout.inner)
        matrices = run.readout
        readout, backward, tail_tile = (run.tile(name) for name in ("readout", "readout_backward", "tail"))
        both, d_both = (states[0], states[-1]), (d_states[0], d_states[-1])
        tail_flags = run.tail_flags | {key: run.readout_flags[key] for key in ("H", "HB", "HAS_VALID", "PRECISION")}
        backward_flags = run.readout_flags | run.tile_flags(backward, run.readout_width, backward=True)
        backward_flags = {key: value for key, value in backward_flags.items() if key not in _UNUSED}
        for start in range(part.start, part.stop, self.range):
            place = (part.stop, layout.size, start, self.range)
            plan.launch(
                readout_kernel, run.grid(readout, self.range), *run.inputs, matrices.mirror, matrices.root, *both, left,
                d_square, codes, *place, part.start, layout.at_readout_code, config.eps, config.factor,
                **run.readout_flags, **run.tile_flags(readout, run.hb),
            )  # fmt: skip
            tail = (self.gradient, *run.inputs, left, run.seed, self.d_u, d_inner, gated)
            plan.launch(
                tail_backward_block_kernel, run.grid(tail_tile, self.range), *tail, *place, layout.at_skip,
                **tail_flags, **tail_tile.flags,
            )  # fmt: skip
            plan.launch(
                tail_sums_kernel, (2, sums.programs, shape.models), *tail, sums.partial, *place, sums.tiles, sums.width,
                layout.at_skip, **tail_flags, **sums_tile.flags, STAGES=sums_tile.stages,
            )  # fmt: skip
            plan.launch(
                readout_backward_kernel, run.grid(backward, self.range), run.packed, matrices.kernel, matrices.gram,
                *both, *d_both, self.d_u, left, d_square, codes, self.d_readout_codes, *place, part.start,
                layout.at_skip, config.factor, **backward_flags,
            )  # fmt: skip
            weights.add(part, buffers, start, both)
        plan.release(*set(buffers), d_inner, gated)
        if part.last:
            at = self.d_packed.part(layout.at_skip, sums.width)
            self.sum(sums.partial, at, sums.programs, sums.width, layout.size)
            weights.finish()
            plan.release(sums.partial)
        return d_states

    def _begin_scans(self) -> None:
        """Room for the gradients of every chunk's clocks: frequency and scale in both directions."""
        chunks = -(-self.shape.steps // scan_chunk(self.layout, self.shape))
        sizes = (self.shape.sequences, chunks, self.layout.modes)
        self.clocks = [self.plan.space(*sizes) for _ in range(2 * self.layout.directions)]

    def scans(
        self, part: Part, states: list[Buffer], d_states: list[Buffer], decay: Buffer, drive: Buffer,
        d_gaps: list[Buffer], d_lam: Buffer | None,
    ) -> tuple[Buffer, Buffer]:  # fmt: skip
        """The adjoint of every direction, in exchange for `d_states`: gradients of decay and drive.

        Those of the clocks go to `d_packed`.
        """
        plan, layout, shape = self.plan, self.layout, self.shape
        scans = self.run.scans(part, decay, drive)
        # Where every step drives the interval that ends there, its gradient takes the place of the state's.
        d_drive = plan.space(drive.size) if scans[0][0].flags["FOLLOWING"] else d_states[0]
        d_decay = plan.space(decay.size)
        if not self.several:
            self._begin_scans()
        chunks = scans[0][0].chunks
        for k, (scan, inputs) in enumerate(scans):
            d_frequency, d_scale = (part.of(clock, chunks * scan.modes) for clock in self.clocks[2 * k : 2 * k + 2])
            d_gap = part.of(d_gaps[k], shape.steps)
            outputs = (d_states[k], states[k], d_decay, d_frequency, d_gap, d_scale, d_drive, d_drive)
            scan.run(plan, adjoint_kernel, inputs, outputs, ADD=k > 0)
        if part.last:
            rows, modes = _CLOCK_TILE
            plan.launch(
                clock_sums_kernel, (-(-layout.modes // modes), shape.models), *self.clocks[:2], *self.clocks[-2:],
                d_decay if d_lam is None else d_lam, self.run.packed, self.d_packed, shape.batch * chunks, shape.batch,
                layout.size, layout.at_frequency, layout.modes, BR=rows, BP=modes, BOTH=layout.directions == 2,
                HAS_LAM=d_lam is not None,
            )  # fmt: skip
            plan.release(*self.clocks)
        plan.release(*(buffer for buffer in d_states if buffer != d_drive))
        return d_decay, d_drive

    def add_last(self, part: Part, target: Buffer, change: Buffer | None, width: int, step: int = 1) -> None:
        """Add to every sequence's last valid step; `width` numbers of a step, every `step`-th one of `change`."""
        if change is not None:
            self.plan.launch(
                add_last_kernel, (part.sequences,), target, change, self.run.valid, self.shape.steps, part.first, step,
                WIDTH=width, WB=padded(width), BL=COUNTED, HAS_VALID=self.shape.masked,
            )  # fmt: skip

    def _begin_enter(self) -> None:
        """Room for what `enter` sums up."""
        layout = self.layout
        self.drive_weights = WeightSums(self, self.totals[0], self.run.ob, output=False)
        self.heads_sums = self._program_sums("heads", self.rows, layout.at_skip + 2 * layout.width)

    def enter(self, part: Part, d_decay: Buffer, d_drive: Buffer, d_affine: Buffer) -> None:
        """dx, and the gradient of the norm's scale and shift (m, 2, h)."""
        run, plan, layout, shape, config = self.run, self.plan, self.layout, self.shape, self.run.config
        buffers = self._range_buffers()
        d_codes = plan.space(self.d_readout_codes.size)
        if not self.several:
            self._begin_enter()
        sums, weights = self.heads_sums, self.drive_weights
        tile = run.tile("drive_backward")
        for start in range(part.start, part.stop, self.range):
            plan.launch(
                drive_backward_kernel, run.grid(tile, self.range), *run.inputs, *run.drive[1:], d_drive, self.d_u,
                *buffers, d_codes, part.stop, layout.size, start, self.range, part.start, layout.at_drive_code,
                config.eps, **run.drive_flags, **run.tile_flags(tile, run.hb, backward=True),
            )  # fmt: skip
            weights.add(part, buffers, start, (d_drive, d_drive))
        flags = {key: value for key, value in run.drive_flags.items() if key not in ("OB", "NORM")} | run.rate_flags
        plan.launch(
            heads_backward_kernel, (sums.programs, shape.models), self.gradient, *run.inputs, d_decay, d_codes,
            self.d_readout_codes, self.d_u, self.d_u, sums.partial, part.stop, layout.size, part.start, sums.tiles,
            sums.width, layout.at_drive_code, layout.at_readout_code, layout.at_skip, config.eps, config.clip,
            **flags, **TILES["heads"].flags, LEAST=LEAST_ROWS,
        )  # fmt: skip
        plan.release(*set(buffers), d_codes, self.d_readout_codes)
        if part.last:
            weights.finish()
            self._unpack()
            packed, split = self.d_packed, layout.at_skip
            self.sum(sums.partial, packed, sums.programs, sums.width, layout.size, rest=d_affine, split=split)
            plan.release(sums.partial)

    def norm(self, d_affine: Buffer) -> None:
        """What reaches x through the statistics of its batch."""
        run, rows = self.run, self.shape.rows
        self.plan.launch(
            norm_backward_kernel, (-(-rows // _ROWS),), run.x, run.valid, run.affine, run.parts["moments"], d_affine,
            self.d_u, rows, **run.norm_flags, BM=_ROWS, HAS_VALID=self.shape.masked,
        )  # fmt: skip

    def _program_sums(self, tile: str, rows: int, width: int) -> "ProgramSums":
        tiles, programs = shares(rows, TILES[tile].rows, _PROGRAMS)
        return ProgramSums(self.plan.space(self.shape.models, programs, width), tiles, programs, width)

    def _totals(self) -> list[Buffer]:
        """Room for the gradients of K and of the Gram form, as `block_weight_kernel` has them, the drive's first."""
        run, layout, models = self.run, self.layout, self.shape.models
        pairs = layout.rank * self.jb + run.ib if layout.mix_norm else 0
        widths = (run.ob, run.readout_width)
        sizes = [models * run.hb * ((layout.rank + 1) * width + pairs) for width in widths]
        self.whole = self.plan.space(sum(sizes))
        return [self.whole.part(0, sizes[0]), self.whole.part(sizes[0], sizes[1])]

    def _unpack(self) -> None:
        """From the gradients of K and of the Gram form to those of the mixes' weights."""
        run, plan, layout, models = self.run, self.plan, self.layout, self.shape.models
        step = layout.at_readout - layout.at_drive
        for total, (_, base, modes, mixes) in zip(self.totals, run.mixes(), strict=False):
            d_norm = plan.space(mixes, models, layout.width, modes)
            plan.launch(
                unpack_kernel, (layout.width, models, mixes), run.packed, total, self.d_packed, d_norm, layout.size,
                base, step, H=layout.width, P=modes, R=layout.rank, HB=run.hb, PB=padded(2 * modes), IB=run.ib,
                JB=self.jb, NORM=layout.mix_norm,
            )  # fmt: skip
            if layout.mix_norm:
                at = self.d_packed.part(layout.at_norm(base, modes // layout.modes), modes)
                self.sum(d_norm, at, layout.width, modes, layout.size, mixes=mixes, step=step)
            plan.release(d_norm)
        plan.release(self.whole)

    def sum(
        self, partial: Buffer, out: Buffer, rows: int, width: int, stride: int, *, rest: Buffer | None = None,
        split: int | None = None, mixes: int = 1, step: int = 0,
    ) -> None:  # fmt: skip
        """Σ over `rows` of `partial` (mixes, m, rows, width); columns from `split` on go to `rest`."""
        tall, wide = _SUM_TILE
        self.plan.launch(
            sum_kernel, (-(-width // wide), self.shape.models, mixes), partial, out, rest or out, rows, width,
            width if split is None else split, stride, step, BR=tall, BC=wide,
        )  # fmt: skip


class ProgramSums(NamedTuple):
    """Programs that visit so many tiles each, with `width` sums in a row of `partial`."""

    partial: Buffer
    tiles: int
    programs: int
    width: int


class WeightSums:
    """The sums for one mix's weights, with `width` planes: range by range in a row for every split, then all rows."""

    def __init__(self, gradients: BlockGradients, total: Buffer, width: int, *, output: bool) -> None:
        self.gradients, self.total = gradients, total
        run, layout, rows, jb = gradients.run, gradients.layout, gradients.range, gradients.jb
        tile = tile_of("weights", width)
        pairs = -(-layout.rank * jb // PAIR_ROWS) + run.ib // PAIR_ROWS if layout.mix_norm else 0
        group = share(layout.rank + 1, run.hb * width, _SUMS)
        tiles = share(pairs, PAIR_ROWS * run.hb, _SUMS // 2) if pairs else 1
        self.kinds = -(-(layout.rank + 1) // group) + -(-pairs // tiles)
        least = -(-rows * run.shape.models * self.kinds // (_SUM_PROGRAMS * tile.rows))
        self.per_split = max(_SUM_TILES, least) * tile.rows
        self.splits = -(-rows // self.per_split)
        self.partial = run.plan.space(self.splits * total.size)
        self.flags = {"H": layout.width, "P2": 2 * layout.modes, "R": layout.rank, "HB": run.hb, "OB": width}
        self.flags |= {"IB": run.ib, "JB": jb, "GROUP": group, "PAIRS": tiles, "TALL": PAIR_ROWS}
        self.flags |= {"STAGES": tile.stages, "NORM": layout.mix_norm, "OUTPUT": output} | tile.flags
        self.flags |= {"BOTH": output and layout.directions == 2}

    def add(self, part: Part, buffers: tuple[Buffer, ...], start: int, right: tuple[Buffer, Buffer]) -> None:
        """A range; the first one comes first."""
        run, shape = self.gradients.run, self.gradients.shape
        left, d_square, codes = buffers
        run.plan.launch(
            block_weight_kernel, (self.kinds, self.splits, shape.models), left, *right, codes, d_square, self.partial,
            part.stop, start, self.gradients.range, part.start, self.per_split, **self.flags, PRECISION=run.precision,
        )  # fmt: skip

    def finish(self) -> None:
        size = self.total.size // self.gradients.shape.models
        self.gradients.sum(self.partial, self.total, self.splits, size, size)
        self.gradients.plan.release(self.partial)
