"""The backward half of a block's operator: launches of the gradients' kernels, part by part and range by range.

A part of the batch goes through all of them before the next begins. Sums for the weights grow from range to range,
those of each program in a row of its own; the rows are added up at a part's end, on top of the parts before. Those of
the tail, which are small, grow through all parts.
"""

from tides.kernels.triton.adjoint_kernels import adjoint_kernel
from tides.kernels.triton.block_backward_kernels import drive_backward_kernel, readout_backward_kernel, readout_kernel
from tides.kernels.triton.block_config import Part, padded, scan_chunk
from tides.kernels.triton.block_head_kernels import heads_backward_kernel
from tides.kernels.triton.block_pass import COUNTED, BlockPass, shares
from tides.kernels.triton.block_sums import TailSums, WeightSums, pair_flags, sum_rows
from tides.kernels.triton.block_tail_kernels import tail_backward_block_kernel
from tides.kernels.triton.block_tiles import PROCESSORS, TILES
from tides.kernels.triton.buffers import WORKSPACE, Buffer
from tides.kernels.triton.last_kernels import add_last_kernel
from tides.kernels.triton.norm_kernels import norm_backward_kernel
from tides.kernels.triton.packing_kernels import unpack_kernel
from tides.kernels.triton.sum_kernels import clock_sums_kernel
from tides.kernels.triton.unit_kernels import KINDS, clear_kernel

# Launch shapes measured on an H200: rows of a tile; numbers that a range takes and the most steps it has.
_ROWS = 64
_RANGE = (5 << 20, 6144 * PROCESSORS)
# Flags of the output mix that its gradient has no use for: `readout_kernel` leaves it the code and the norms.
_UNUSED = ("DOWN", "HAS_VALID")
# Units that a program clears.
_CLEARED = 256
# Rows and modes of a tile of clocks that is summed up.
_CLOCK_TILE = (2048, 1)


class BlockGradients:
    """Launches from the gradient of a block's output to those of its inputs; `d_packed` is where the weights' go."""

    def __init__(self, run: BlockPass, gradient: Buffer, dx: Buffer, d_packed: Buffer) -> None:
        self.run, self.plan, self.layout, self.shape = run, run.plan, run.layout, run.shape
        # The gradient of u collects where dx goes.
        self.gradient, self.d_u, self.d_packed = gradient, dx, d_packed
        # The largest part comes first.
        self.rows = run.shape.parts[0].stop
        self.range = self._range()
        # What outlives a part comes before what each one takes and gives back.
        self.totals = self._totals()
        self.clocks = self._clocks()
        self.tail_sums = self._tail_sums() if len(run.shape.parts) > 1 else None
        # Of the output mix in every range of a part, then of the input mix; all are cleared before they are found.
        self.units = self.plan.space(2, -(-self.rows // self.range), self.shape.models, KINDS.value)

    def _range(self) -> int:
        """Steps of a range, all ranges about as long."""
        layout, rows, models = self.layout, self.shape.rows, self.shape.models
        room, most = _RANGE
        width = layout.width * (2 if layout.mix_norm else 1) + layout.rank
        # About half of many steps: what a range needs is then small beside what the batch keeps.
        longest = max(_ROWS, max(room // width, min(most, -(-rows * models // 2))) // models)
        count = -(-self.rows // longest)
        return min(self.rows, -(-self.rows // (count * _ROWS)) * _ROWS)

    def _range_buffers(self, *, late: bool = False) -> tuple[Buffer, Buffer, Buffer]:
        """What the weights of a mix need of one range; not kept while the scan's adjoint runs.

        `late`: behind it, in the place of drives and states that blocks share.
        """
        layout, rows = self.layout, self.shape.models * self.range
        left = self._space(rows * layout.width, "drives" if late else "")
        d_square = self._space(rows * layout.width, "states 0" if late else "") if layout.mix_norm else left
        return left, d_square, self.plan.space(rows * layout.rank)

    def _space(self, size: int, place: str) -> Buffer:
        """So many elements, where blocks share that place and nobody needs any more what is there."""
        room = self.run.parts[place] if place and self.shape.shares else None
        return self.plan.space(size) if room is None or room.size < size else room.part(0, size)

    def _units(self, mix: int, k: int) -> Buffer:
        """Those of a mix in a part's k-th range."""
        size = self.shape.models * KINDS.value
        return self.units.part(mix * (self.units.size // 2) + k * size, size)

    def leave(self, part: Part, states: list[Buffer]) -> list[Buffer]:
        """The gradients of the states; that of Re(C s) and the skip connection is in `d_u`."""
        run, plan, layout, shape, config = self.run, self.plan, self.layout, self.shape, self.run.config
        # What lives longer first: behind it lies then one stretch for the scan's adjoint.
        self.d_readout_codes = plan.space(part.sequences, shape.steps, layout.rank)
        d_states = [plan.space(state.size) for state in states]
        left, d_square, codes = buffers = self._range_buffers()
        sums = self.tail_sums or self._tail_sums()
        matrices = run.readout
        sizes = (run.readout_width, run.hb)
        readout = run.cut("readout", self.range, sizes, heads=run.ib)
        backward = run.cut("readout_backward", self.range, sizes[::-1], roots=0, grams=1)
        both, d_both = (states[0], states[-1]), (d_states[0], d_states[-1])
        tail_flags = run.tail_flags | {key: run.readout_flags[key] for key in ("H", "HB", "HAS_VALID", "PRECISION")}
        backward_flags = {key: value for key, value in run.readout_flags.items() if key not in _UNUSED}
        weights = WeightSums(run, self.range, self.totals[-1], run.readout_width, output=True)
        count = self.units.size
        plan.launch(clear_kernel, (-(-count // _CLEARED),), self.units, count, BLOCK=_CLEARED)
        for k, start in enumerate(range(part.start, part.stop, self.range)):
            place, units = (part.stop, layout.size, start, self.range), self._units(0, k)
            plan.launch(
                readout_kernel, readout.grid, *run.inputs, matrices.mirror, matrices.root, *both, left, d_square, codes,
                units, *place, readout.tiles, part.start, layout.at_readout_code, config.eps, config.factor,
                **run.readout_flags, **readout.flags,
            )  # fmt: skip
            plan.launch(
                tail_backward_block_kernel, (sums.programs, shape.models), self.gradient, *run.inputs, left, run.seed,
                self.d_u, sums.partial, *place, sums.tiles, sums.width, layout.at_skip, **tail_flags,
                **TILES["tail"].flags,
            )  # fmt: skip
            plan.launch(
                readout_backward_kernel, backward.grid, matrices.kernel, matrices.gram, *both, *d_both, self.d_u, left,
                d_square, codes, units, self.d_readout_codes, part.stop, start, self.range, backward.tiles, part.start,
                config.factor, **backward_flags, **backward.flags,
            )  # fmt: skip
            weights.add(part, buffers, start, both, units)
        weights.finish(part)
        if part.last:
            at = self.d_packed.part(layout.at_skip, sums.width)
            sum_rows(plan, shape.models, sums.partial, at, sums.programs, sums.width, layout.size)
            plan.release(sums.partial)
        plan.release(*set(buffers))
        return d_states

    def scans(
        self, part: Part, states: list[Buffer], d_states: list[Buffer], decay: Buffer, drive: Buffer,
        d_gaps: list[Buffer] | None, d_lam: Buffer | None,
    ) -> tuple[Buffer, Buffer]:  # fmt: skip
        """The adjoint of every direction, in exchange for `d_states`: gradients of decay and drive.

        Those of the clocks go to `d_packed`.
        """
        plan, layout, shape = self.plan, self.layout, self.shape
        scans = self.run.scans(part, decay, drive)
        # Where every step drives the interval that ends there, its gradient takes the place of the state's.
        d_drive = plan.space(drive.size) if scans[0][0].flags["FOLLOWING"] else d_states[0]
        d_decay = plan.space(decay.size)
        gaps = [part.of(d_gap, shape.steps) for d_gap in d_gaps or []]
        chunks = scans[0][0].chunks
        for k, (scan, inputs) in enumerate(scans):
            d_frequency, d_scale = (part.of(clock, chunks * scan.modes) for clock in self.clocks[2 * k : 2 * k + 2])
            d_gap = gaps[k] if gaps else d_decay
            outputs = (d_states[k], states[k], d_decay, d_frequency, d_gap, d_scale, d_drive, d_drive)
            scan.run(plan, adjoint_kernel, inputs, outputs, ADD=k > 0, GAPS=bool(gaps))
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

    def enter(self, part: Part, d_decay: Buffer, d_drive: Buffer, d_affine: Buffer) -> None:
        """dx, and the gradient of the norm's scale and shift (m, 2, h)."""
        run, plan, layout, config = self.run, self.plan, self.layout, self.run.config
        buffers = self._range_buffers(late=True)
        d_codes = self._space(self.d_readout_codes.size, "decay")
        cut = run.cut("drive_backward", self.range, (run.ob, run.hb), heads=run.ib, grams=1)
        weights = WeightSums(run, self.range, self.totals[0], run.ob, output=False)
        for k, start in enumerate(range(part.start, part.stop, self.range)):
            units = self._units(1, k)
            plan.launch(
                drive_backward_kernel, cut.grid, *run.inputs, *run.drive[1:], d_drive, self.d_u, *buffers, units,
                d_codes, part.stop, layout.size, start, self.range, cut.tiles, part.start, layout.at_drive_code,
                layout.at_skip, config.eps, **run.drive_flags, **cut.flags,
            )  # fmt: skip
            weights.add(part, buffers, start, (d_drive, d_drive), units)
        weights.finish(part)
        if part.last:
            self._unpack()
        self._heads(part, d_decay, d_codes, d_affine)
        made = {*buffers, d_codes, self.d_readout_codes}
        plan.release(*(buffer for buffer in made if buffer.slot == WORKSPACE))

    def _heads(self, part: Part, d_decay: Buffer, d_codes: Buffer, d_affine: Buffer) -> None:
        """dx, the gradients of the heads' weights, and those of scale and shift."""
        run, plan, layout, shape, config = self.run, self.plan, self.layout, self.shape, self.run.config
        tile = TILES["heads"]
        tiles, programs = shares(self.rows, tile.rows, PROCESSORS * tile.fitting(0))
        width = layout.at_skip + 2 * layout.width
        partial = plan.space(shape.models, programs, width)
        changes = (d_decay, d_codes, self.d_readout_codes)
        flags = {key: value for key, value in run.drive_flags.items() if key not in ("OB", "NORM")}
        plan.launch(
            heads_backward_kernel, (programs, shape.models), self.gradient, *run.inputs, *changes, self.d_u, self.d_u,
            partial, part.stop, layout.size, part.start, tiles, width, layout.at_drive_code, layout.at_readout_code,
            layout.at_skip, config.eps, config.limit, **flags, **run.rate_flags, **tile.flags,
        )  # fmt: skip
        sum_rows(
            plan, shape.models, partial, self.d_packed, programs, width, layout.size, rest=d_affine,
            split=layout.at_skip, add=part.start > 0,
        )  # fmt: skip
        plan.release(partial)

    def norm(self, d_affine: Buffer) -> None:
        """What reaches x through the statistics of its batch."""
        run, rows = self.run, self.shape.rows
        self.plan.launch(
            norm_backward_kernel, (-(-rows // _ROWS),), run.x, run.valid, run.affine, run.parts["moments"], d_affine,
            self.d_u, rows, **run.norm_flags, BM=_ROWS, HAS_VALID=self.shape.masked,
        )  # fmt: skip

    def _tail_sums(self) -> TailSums:
        """Room for the sums of the tail's weights, which grow through all parts."""
        width = self.layout.at_drive - self.layout.at_skip
        tile = TILES["tail"]
        tiles, programs = shares(self.range, tile.rows, PROCESSORS * tile.fitting(0))
        return TailSums(self.plan.space(self.shape.models, programs, width), tiles, programs, width)

    def _clocks(self) -> list[Buffer]:
        """Room for the gradients of every chunk's frequency and scale, in both directions."""
        chunks = -(-self.shape.steps // scan_chunk(self.layout, self.shape))
        sizes = (self.shape.sequences, chunks, self.layout.modes)
        return [self.plan.space(*sizes) for _ in range(2 * self.layout.directions)]

    def _totals(self) -> list[Buffer]:
        """Room for the gradients of K and of the Gram form, as `block_weight_kernel` has them, the drive's first."""
        run, layout, models = self.run, self.layout, self.shape.models
        pairs = pair_flags(layout)["PAIRS"]
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
                **pair_flags(layout),
            )  # fmt: skip
            if layout.mix_norm:
                at = self.d_packed.part(layout.at_norm(base, modes // layout.modes), modes)
                sum_rows(plan, models, d_norm, at, layout.width, modes, layout.size, mixes=mixes, step=step)
            plan.release(d_norm)
        plan.release(self.whole)
