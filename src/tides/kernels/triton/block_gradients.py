"""The backward half of a block's operator: launches of the gradients' kernels, range by range."""

from tides.kernels.triton.adjoint_kernels import adjoint_kernel
from tides.kernels.triton.block_backward_kernels import (
    drive_backward_kernel,
    heads_backward_kernel,
    readout_backward_kernel,
    readout_kernel,
)
from tides.kernels.triton.block_config import padded
from tides.kernels.triton.block_pass import COUNTED, BlockPass, shares
from tides.kernels.triton.block_tail_kernels import tail_backward_block_kernel, tail_sums_kernel
from tides.kernels.triton.block_tiles import LEAST_ROWS, TILES, pair_width
from tides.kernels.triton.block_weight_kernels import block_weight_kernel
from tides.kernels.triton.buffers import Buffer
from tides.kernels.triton.last_kernels import add_last_kernel
from tides.kernels.triton.norm_kernels import norm_backward_kernel
from tides.kernels.triton.packing_kernels import unpack_kernel
from tides.kernels.triton.sum_kernels import clock_sums_kernel, sum_kernel

# Launch shapes measured on an H200: rows of a tile, programs that keep sums, programs for the sums of the mixes'
# weights, steps of a range.
_ROWS = 64
_PROGRAMS = 528
_SUM_PROGRAMS = 396
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
        self.range = min(rows, max(_ROWS, min(most, max(least, eighth)) // models))
        self.starts = range(0, rows, self.range)
        self.jb = pair_width(run.layout.rank)
        self.totals = self._totals()

    def _range_buffers(self) -> tuple[Buffer, Buffer, Buffer]:
        """What the weights of a mix need of one range; not kept while the scan's adjoint runs."""
        layout, models = self.layout, self.shape.models
        left = self.plan.space(models, self.range, layout.width)
        d_square = self.plan.space(models, self.range, layout.width) if layout.mix_norm else left
        return left, d_square, self.plan.space(models, self.range, layout.rank)

    def leave(self, states: list[Buffer]) -> list[Buffer]:
        """The gradients of the states; the skip connection's share of du is in `d_u`."""
        run, plan, layout, shape, config = self.run, self.plan, self.layout, self.shape, self.run.config
        # What lives longer first: behind it lies then one stretch for the scan's adjoint.
        self.d_readout_codes = plan.space(shape.models, shape.rows, layout.rank)
        d_states = [plan.space(state.size) for state in states]
        left, d_square, codes = buffers = self._range_buffers()
        sums_tile = TILES["tail_sums"]
        tiles, programs = shares(self.range, sums_tile.rows, _PROGRAMS)
        width = layout.at_drive - layout.at_skip
        partial = plan.space(shape.models, programs, width)
        d_inner = plan.space(shape.models, self.range, 2 * layout.inner)
        gated = plan.space(shape.models, self.range, layout.inner)
        matrices = run.readout
        readout, backward, tail_tile = (run.tile(name) for name in ("readout", "readout_backward", "tail"))
        both, d_both = (states[0], states[-1]), (d_states[0], d_states[-1])
        tail_flags = run.tail_flags | {key: run.readout_flags[key] for key in ("H", "HB", "HAS_VALID", "PRECISION")}
        backward_flags = run.readout_flags | run.tile_flags(backward, run.readout_width, backward=True)
        backward_flags = {key: value for key, value in backward_flags.items() if key not in _UNUSED}
        weights = WeightSums(self, self.totals[-1], run.readout_width, output=True)
        for start in self.starts:
            part = (shape.rows, layout.size, start, self.range)
            plan.launch(
                readout_kernel, run.grid(readout, self.range), *run.inputs, matrices.mirror, matrices.root, *both, left,
                d_square, codes, *part, layout.at_readout_code, config.eps, config.factor, **run.readout_flags,
                **run.tile_flags(readout, run.hb),
            )  # fmt: skip
            tail = (self.gradient, *run.inputs, left, run.seed, self.d_u, d_inner, gated)
            plan.launch(
                tail_backward_block_kernel, run.grid(tail_tile, self.range), *tail, *part, layout.at_skip, **tail_flags,
                **tail_tile.flags,
            )  # fmt: skip
            plan.launch(
                tail_sums_kernel, (programs, shape.models), *tail, partial, *part, tiles, width, layout.at_skip,
                **tail_flags, **sums_tile.flags, ALONE=LEAST_ROWS // run.hb,
            )  # fmt: skip
            plan.launch(
                readout_backward_kernel, run.grid(backward, self.range), run.packed, matrices.kernel, matrices.gram,
                *both, *d_both, self.d_u, left, d_square, codes, self.d_readout_codes, *part, layout.at_skip,
                config.factor, **backward_flags,
            )  # fmt: skip
            weights.add(buffers, start, both)
        self.sum(partial, self.d_packed.part(layout.at_skip, width), programs, width, layout.size)
        weights.finish()
        plan.release(*set(buffers), partial, d_inner, gated)
        return d_states

    def scans(
        self, states: list[Buffer], d_states: list[Buffer], decay: Buffer, drive: Buffer, d_gaps: list[Buffer],
        d_lam: Buffer | None,
    ) -> tuple[Buffer, Buffer]:  # fmt: skip
        """The adjoint of every direction: gradients of decay and drive; those of the clocks go to `d_packed`."""
        plan, layout, shape = self.plan, self.layout, self.shape
        d_decay, d_drive = plan.space(decay.size), plan.space(drive.size)
        clocks = []
        chunks = 0
        for k, (scan, inputs) in enumerate(self.run.scans(decay, drive)):
            chunks = scan.chunks
            d_frequency, d_scale = (plan.space(scan.rows, chunks, scan.modes) for _ in range(2))
            outputs = (d_states[k], states[k], d_decay, d_frequency, d_gaps[k], d_scale, d_drive, d_drive)
            scan.run(plan, adjoint_kernel, inputs, outputs, ADD=k > 0)
            clocks += [d_frequency, d_scale]
        rows, modes = _CLOCK_TILE
        plan.launch(
            clock_sums_kernel, (-(-layout.modes // modes), shape.models), *clocks[:2], *clocks[-2:],
            d_decay if d_lam is None else d_lam, self.run.packed, self.d_packed, shape.batch * chunks, shape.batch,
            layout.size, layout.at_frequency, layout.modes, BR=rows, BP=modes, BOTH=len(clocks) > 2,
            HAS_LAM=d_lam is not None,
        )  # fmt: skip
        plan.release(*clocks)
        return d_decay, d_drive

    def add_last(self, target: Buffer, change: Buffer | None, width: int, step: int = 1) -> None:
        """Add to the last valid step of every sequence; `width` numbers of a step, every `step`-th one of `change`."""
        if change is not None:
            self.plan.launch(
                add_last_kernel, (self.shape.sequences,), target, change, self.run.valid, self.shape.steps, step,
                WIDTH=width, WB=padded(width), BL=COUNTED, HAS_VALID=self.shape.masked,
            )  # fmt: skip

    def enter(self, d_decay: Buffer, d_drive: Buffer, d_affine: Buffer) -> None:
        """dx, and the gradient of the norm's scale and shift (m, 2, h)."""
        run, plan, layout, shape, config = self.run, self.plan, self.layout, self.shape, self.run.config
        buffers = self._range_buffers()
        d_codes = plan.space(self.d_readout_codes.size)
        tile = run.tile("drive_backward")
        weights = WeightSums(self, self.totals[0], run.ob, output=False)
        for start in self.starts:
            plan.launch(
                drive_backward_kernel, run.grid(tile, self.range), *run.inputs, *run.drive[1:], d_drive, self.d_u,
                *buffers, d_codes, shape.rows, layout.size, start, self.range, layout.at_drive_code, config.eps,
                **run.drive_flags, **run.tile_flags(tile, run.hb, backward=True),
            )  # fmt: skip
            weights.add(buffers, start, (d_drive, d_drive))
        weights.finish()
        self._unpack()
        tile = TILES["heads"]
        tiles, programs = shares(shape.rows, tile.rows, _PROGRAMS)
        width = layout.at_skip + 2 * layout.width
        partial = plan.space(shape.models, programs, width)
        flags = {key: value for key, value in run.drive_flags.items() if key not in ("OB", "NORM")} | run.rate_flags
        plan.launch(
            heads_backward_kernel, (programs, shape.models), self.gradient, *run.inputs, d_decay, d_codes,
            self.d_readout_codes, self.d_u, self.d_u, partial, shape.rows, layout.size, tiles, width,
            layout.at_drive_code, layout.at_readout_code, layout.at_skip, config.eps, config.clip,
            **flags, **tile.flags, LEAST=LEAST_ROWS,
        )  # fmt: skip
        self.sum(partial, self.d_packed, programs, width, layout.size, rest=d_affine, split=layout.at_skip)
        plan.release(*set(buffers), d_codes, self.d_readout_codes, partial)

    def norm(self, d_affine: Buffer) -> None:
        """What reaches x through the statistics of its batch."""
        run, rows = self.run, self.shape.rows
        self.plan.launch(
            norm_backward_kernel, (-(-rows // _ROWS),), run.x, run.valid, run.affine, run.parts["moments"], d_affine,
            self.d_u, rows, **run.norm_flags, BM=_ROWS, HAS_VALID=self.shape.masked,
        )  # fmt: skip

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


class WeightSums:
    """The sums for one mix's weights, with `width` planes: range by range in a row for every split, then all rows."""

    def __init__(self, gradients: BlockGradients, total: Buffer, width: int, *, output: bool) -> None:
        self.gradients, self.total = gradients, total
        run, layout, rows, jb = gradients.run, gradients.layout, gradients.range, gradients.jb
        tile = TILES["weights"]
        group, pairs = tile.group(layout.rank, run.hb, width), tile.group(layout.rank, jb, run.hb)
        self.kinds = 1 + -(-layout.rank // group) + (-(-layout.rank // pairs) if layout.mix_norm else 0)
        # Twice as many programs where each has at least 16 tiles; otherwise what they begin and end with would count.
        programs = _SUM_PROGRAMS * (2 if rows * self.kinds >= 32 * _SUM_PROGRAMS * tile.rows else 1)
        self.per_split = -(-rows * self.kinds // (programs * tile.rows)) * tile.rows
        self.splits = -(-rows // self.per_split)
        self.partial = run.plan.space(self.splits * total.size)
        self.flags = {"H": layout.width, "P2": 2 * layout.modes, "R": layout.rank, "HB": run.hb, "OB": width}
        self.flags |= {"IB": run.ib, "JB": jb, "GROUP": group, "PAIRS": pairs, "LEAST": LEAST_ROWS}
        self.flags |= {"STAGES": tile.stages, "NORM": layout.mix_norm, "OUTPUT": output} | tile.flags
        self.flags |= {"BOTH": output and layout.directions == 2}

    def add(self, buffers: tuple[Buffer, ...], start: int, right: tuple[Buffer, Buffer]) -> None:
        """A range; the first one comes first."""
        run, shape = self.gradients.run, self.gradients.shape
        left, d_square, codes = buffers
        run.plan.launch(
            block_weight_kernel, (self.kinds, self.splits, shape.models), left, *right, codes, d_square, self.partial,
            shape.rows, start, self.gradients.range, self.per_split, **self.flags, PRECISION=run.precision,
        )  # fmt: skip

    def finish(self) -> None:
        size = self.total.size // self.gradients.shape.models
        self.gradients.sum(self.partial, self.total, self.splits, size, size)
        self.gradients.plan.release(self.partial)
