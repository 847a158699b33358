"""The forward half of a block's operator: its launches and the scan between them."""

from typing import Any, NamedTuple

from tides.kernels.triton.block_config import BlockConfig, BlockShape, Part, kept_sizes, padded, room_sizes, scan_chunk
from tides.kernels.triton.block_kernels import EXP, SOFTPLUS, STABLE, STANDARD, enter_kernel, leave_kernel
from tides.kernels.triton.block_tiles import PROCESSORS, tile_of
from tides.kernels.triton.buffers import Buffer, aligned
from tides.kernels.triton.evolve import METHODS, ScanPlan
from tides.kernels.triton.evolve_kernels import forward_kernel
from tides.kernels.triton.last_kernels import take_last_kernel
from tides.kernels.triton.launch import LaunchPlan
from tides.kernels.triton.norm_kernels import affine_kernel, moments_kernel
from tides.kernels.triton.packing_kernels import pack_kernel

REPARAMS = {"standard": STANDARD, "exp": EXP, "stable": STABLE, "softplus": SOFTPLUS}
# Rows of a tile, programs and tiles of programs for the norm's statistics; steps of a tile that are counted.
NORM_ROWS = 128
NORM_PROGRAMS = 528
COUNTED = 4096


def shares(rows: int, tile: int, most: int) -> tuple[int, int]:
    """Tiles of one program that keeps sums, and how many such programs serve `rows`."""
    tiles = -(-rows // (tile * most))
    return tiles, -(-rows // (tile * tiles))


class BlockBuffers(NamedTuple):
    """What a block's launches are given; `kept` is what the forward pass leaves for the backward pass, and `room` what
    all blocks have their decay, drives and states in, if they share one."""

    x: Buffer
    gaps: Buffer
    behind: Buffer
    valid: Buffer
    seed: Buffer
    packed: Buffer
    affine: Buffer
    kept: Buffer
    room: Buffer


class Matrices(NamedTuple):
    """What `pack_kernel` makes of a mix; without norms the last two are ignored."""

    kernel: Buffer
    mirror: Buffer
    root: Buffer
    gram: Buffer


class BlockPass:
    """A block's buffers, and the flags that its kernels share."""

    def __init__(
        self, plan: LaunchPlan, config: BlockConfig, shape: BlockShape, precision: str, buffers: BlockBuffers, *,
        ready: bool = False,
    ) -> None:  # fmt: skip
        """`ready`: decay, drive and states are still where the forward pass left them."""
        self.plan, self.config, self.shape, self.precision, self.ready = plan, config, shape, precision, ready
        self.stays = shape.keeps or shape.shares
        self.layout = layout = config.layout
        self.x, self.gaps, self.behind, self.valid, self.seed, self.packed, self.affine, kept, room = buffers
        h, p, f = layout.width, layout.modes, layout.inner
        self.hb, self.ib, self.ob = (padded(size) for size in (h, layout.rank + 1, 2 * p))
        self.readout_width = padded(2 * p * layout.directions)
        shared: dict[str, Any] = {"H": h, "P": p, "R": layout.rank, "HB": self.hb, "IB": self.ib, "DOWN": layout.down}
        shared |= {"NORM": layout.mix_norm, "HAS_VALID": shape.masked, "PRECISION": precision}
        self.drive_flags = shared | {"OB": self.ob}
        self.rate_flags = {"PB": padded(p), "RATE_NORM": layout.rate_norm}
        self.rate_flags |= {"REPARAM": REPARAMS[config.reparam], "CLIPPED": config.clipped}
        self.readout_flags = shared | {"OB": self.readout_width, "BOTH": layout.directions == 2}
        self.tail_flags = {"F": f, "FB": padded(f), "DROP": config.dropout}
        self.norm_flags = {"H": h, "HB": self.hb}
        self._carve(kept, room)
        if shape.norm != "given":
            self.affine = self.parts["affine"]
        self.inputs = (self.x, self.affine, self.valid, self.packed)

    def _carve(self, kept: Buffer, room: Buffer) -> None:
        """Where the parts of `kept` and of a shared room lie."""
        self.parts: dict[str, Buffer] = {}
        shared = room_sizes(self.layout, self.shape) if self.shape.shares else {}
        for buffer, sizes in ((kept, kept_sizes(self.layout, self.shape)), (room, shared)):
            offset = 0
            for name, size in sizes.items():
                self.parts[name] = buffer.part(offset, size)
                offset += aligned(size)
        fields = Matrices._fields if self.layout.mix_norm else ("kernel", "mirror", "kernel", "kernel")
        self.drive, self.readout = (
            Matrices(*(self.parts[f"{mix} {field}"] for field in fields)) for mix in ("drive", "readout")
        )

    def run_norm(self, running_mean: Buffer, running_var: Buffer, eps: float, momentum: float) -> None:
        """Scale and shift from the statistics of the batch, which the running ones follow, or from the running ones."""
        plan, shape = self.plan, self.shape
        batch = shape.norm == "batch"
        programs, partial = 0, self.x
        if batch:
            tiles, programs = shares(shape.rows, NORM_ROWS, NORM_PROGRAMS)
            partial = plan.space(programs, 3, self.layout.width)
            plan.launch(
                moments_kernel, (programs,), self.x, self.valid, partial, shape.rows, tiles,
                **self.norm_flags, BM=NORM_ROWS, HAS_VALID=shape.masked,
            )  # fmt: skip
        plan.launch(
            affine_kernel, (1,), partial, running_mean, running_var, self.affine, self.parts["moments"], programs, eps,
            momentum, **self.norm_flags, BM=256, BATCH=batch, num_warps=8,
        )  # fmt: skip
        if batch:
            plan.release(partial)

    def run_pack(self) -> None:
        """The tiles of both mixes, and the clocks of every sequence."""
        layout, shape = self.layout, self.shape
        clocks = (self.parts["frequency"], self.parts["scale"])
        for tiles, base, modes, mixes in self.mixes():
            apart = self.readout.kernel.offset - self.drive.kernel.offset
            self.plan.launch(
                pack_kernel, (self.hb, shape.models, mixes), self.packed, *tiles, *clocks, layout.size, base,
                layout.at_readout - layout.at_drive, apart, layout.at_frequency, shape.batch, H=layout.width, P=modes,
                R=layout.rank, HB=self.hb, PB=padded(2 * modes), IB=self.ib, NORM=layout.mix_norm,
                CLOCKS=base == layout.at_drive, num_warps=self.ib * self.ib // 64,
            )  # fmt: skip

    def mixes(self) -> list[tuple[tuple[Buffer, ...], int, int, int]]:
        """Tiles, place in `packed`, modes, and how many mixes of that size lie one behind the other."""
        layout = self.layout
        if layout.directions == 1:
            return [(self.drive, layout.at_drive, layout.modes, 2)]
        both = ((self.drive, layout.at_drive, 1), (self.readout, layout.at_readout, layout.directions))
        return [(tiles, base, layout.modes * directions, 1) for tiles, base, directions in both]

    def run_enter(self, part: Part, *, again: bool = False) -> tuple[Buffer, Buffer]:
        """Decay rates (b, l, p) and the planes of the drives (b, l, p, 2) of all models' sequences in a part.

        They are made `again` unless they are ready.
        """
        layout, config, shape = self.layout, self.config, self.shape
        places = shape.steps * layout.modes
        if self.stays:
            decay, drive = part.of(self.parts["decay"], places), part.of(self.parts["drives"], 2 * places)
            if again and self.ready:
                return decay, drive
        else:
            decay, drive = (self.plan.space(part.sequences, width) for width in (places, 2 * places))
        cut = self.cut("enter", part.stop - part.start, (self.hb, self.ob), heads=self.rate_flags["PB"] + self.ib)
        self.plan.launch(
            enter_kernel, cut.grid, *self.inputs, self.drive.kernel, self.drive.root, decay, drive, part.stop,
            part.start, layout.size, cut.tiles, layout.at_drive_code, config.eps, config.limit, **self.drive_flags,
            **self.rate_flags, **cut.flags,
        )  # fmt: skip
        return decay, drive

    def scans(self, part: Part, decay: Buffer, drive: Buffer) -> list[tuple[ScanPlan, tuple[Buffer, ...]]]:
        """The scan of every direction with its inputs."""
        config, shape = self.config, self.shape
        sizes = (part.sequences, shape.steps, self.layout.modes)
        frequency, scale = (part.of(self.parts[name], self.layout.modes) for name in ("frequency", "scale"))
        found: list[tuple[ScanPlan, tuple[Buffer, ...]]] = []
        for reverse in (False, True)[: self.layout.directions]:
            hold = "preceding" if reverse and config.reverse == "release" else config.hold
            method = METHODS[config.discretisation]
            chunk = scan_chunk(self.layout, shape)
            scan = ScanPlan(
                sizes, method, hold, reverse, static_frequency=shape.steps != 1, decays=config.decays, chunk=chunk
            )
            gaps = part.of(self.behind if reverse else self.gaps, shape.steps)
            # No beginnings inside, no states before: those pointers are ignored.
            found.append((scan, (decay, frequency, gaps, scale, drive, drive, drive, drive)))
        return found

    def run_scans(self, part: Part, decay: Buffer, drive: Buffer, *, again: bool = False) -> list[Buffer]:
        """The planes of every direction's states (b, l, p, 2)."""
        directions = range(self.layout.directions)
        places = 2 * self.shape.steps * self.layout.modes
        if self.stays:
            states = [part.of(self.parts[f"states {direction}"], places) for direction in directions]
            if again and self.ready:
                return states
        else:
            states = [self.plan.space(part.sequences, places) for _ in directions]
        for k, (scan, inputs) in enumerate(self.scans(part, decay, drive)):
            chunks = 2 * scan.chunks * scan.modes
            carry = None if self.shape.keeps else part.of(self.parts[f"carries {k}"], chunks)
            scan.run(self.plan, forward_kernel, inputs, (states[k],), carry=carry, again=again)
        return states

    def run_leave(self, states: list[Buffer], out: Buffer) -> None:
        layout, config = self.layout, self.config
        heads = self.ib + 3 * padded(layout.inner)
        cut = self.cut("leave", self.shape.rows, (self.readout_width, self.hb), heads=heads)
        self.plan.launch(
            leave_kernel, cut.grid, *self.inputs, self.readout.mirror, self.readout.root, states[0], states[-1],
            self.seed, out, self.shape.rows, layout.size, cut.tiles, layout.at_readout_code, layout.at_skip, config.eps,
            config.factor, **self.readout_flags, **self.tail_flags, **cut.flags,
        )  # fmt: skip

    def run_last(self, states: list[Buffer], decay: Buffer, drive: Buffer, last: tuple[Buffer, ...]) -> None:
        """State, eigenvalues and pending drive of every sequence's last valid step."""
        shape, modes = self.shape, self.layout.modes
        self.plan.launch(
            take_last_kernel, (shape.sequences,), states[0], decay, drive, self.parts["frequency"], self.valid, *last,
            shape.steps, P=modes, PB=padded(modes), BL=COUNTED, HAS_VALID=shape.masked,
            FOLLOWING=self.config.hold == "following",
        )  # fmt: skip

    def cut(
        self, name: str, rows: int, mix: tuple[int, int], *, heads: int = 0, roots: int = 1, grams: int = 0
    ) -> "Cut":
        """Of a pass with a mix from so many to so many columns, with roots or Gram matrices of its norms or both.

        `heads` are the columns of all other matrices.
        """
        layout, tile = self.layout, tile_of(name, self.readout_width)
        rank, norms = layout.rank, (roots + grams if layout.mix_norm else 0)
        # Two halves of everything, each of two bytes.
        shared = 4 * ((rank + 1) * (mix[0] * mix[1] + norms * self.hb * self.ib) + heads * self.hb)
        resident = tile.keeps(shared)
        programs = PROCESSORS * tile.fitting(shared if resident else 0)
        tiles, programs = shares(rows, tile.rows, programs)
        flags = tile.flags | {"STAGES": tile.stages, "RESIDENT": resident, "COUNT": tile.matrices(rank, mix[1])}
        if roots:
            flags["ROOTS"] = tile.matrices(rank, self.hb)
        if grams:
            # As many as of the mix's own matrices: more would take the registers that others need.
            flags["GRAMS"] = tile.matrices(rank, max(self.ib, self.hb))
        return Cut((programs, self.shape.models), tiles, flags)


class Cut(NamedTuple):
    """How a pass goes through its steps."""

    grid: tuple[int, int]
    tiles: int
    """Of every program."""
    flags: dict[str, Any]
