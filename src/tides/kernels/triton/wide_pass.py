"""What the launches of a wide block share: its sizes, its buffers, and where its weights lie."""

import math
from typing import NamedTuple

from tides.kernels.triton.block_config import BlockConfig, BlockShape
from tides.kernels.triton.block_sums import sum_rows
from tides.kernels.triton.buffers import Buffer, View, aligned
from tides.kernels.triton.launch import LaunchPlan
from tides.kernels.triton.packing import Layout
from tides.kernels.triton.wide_layout import wide_layout

# Elements of a program's tile of rows.
_TILE = 1024
# Rows of a tile that is summed up, at most.
_SUM_ROWS = 32


class WideBuffers(NamedTuple):
    """What a block's launches are given; those that its flags make it ignore are any other."""

    x: Buffer
    gaps: Buffer
    behind: Buffer
    valid: Buffer
    seed: Buffer
    packed: Buffer


class WidePass:
    """A block's buffers; `parts` are those that the backward pass needs, too."""

    def __init__(
        self,
        plan: LaunchPlan,
        config: BlockConfig,
        shape: BlockShape,
        buffers: WideBuffers,
        parts: dict[str, Buffer],
    ) -> None:
        self.plan, self.config, self.shape, self.parts = plan, config, shape, parts
        self.layout, self.rows = config.layout, shape.rows
        self.x, self.gaps, self.behind, self.valid, self.seed, self.packed = buffers

    def weight(self, name: str) -> Buffer:
        return part_of(self.packed, self.layout, name)

    def dense(self, name: str, *sizes: int) -> View:
        """A weight, or several of them side by side, as a call of torch has it."""
        return View.dense(self.weight(name), *sizes)

    def room(self, width: int) -> Buffer:
        """A temporary for every row."""
        return self.plan.space(self.rows, width)

    @property
    def has_valid(self) -> dict[str, bool]:
        return {"HAS_VALID": self.shape.masked}


def part_of(packed: Buffer, layout: Layout, name: str) -> Buffer:
    """One of the parts of a block's weights, or of their gradients."""
    places = wide_layout(layout)
    return packed.part(places.starts[name], places.sizes[name])


def kept_sizes(layout: Layout, shape: BlockShape) -> dict[str, int]:
    """What the forward pass of a block hands to its backward pass: name and number of elements."""
    n, h, p, i = shape.rows, layout.width, layout.modes, layout.rank + 1
    clocks = shape.batch * p
    sizes = {"affine": 2 * h, "moments": 2 * h, "frequency": clocks, "scale": clocks}
    sizes |= {"u": n * h, "heads": n * (p + 2 * layout.rank), "decay": n * p, "drive code": n * i}
    sizes |= {"readout code": n * i, "drive": 2 * n * p, "states": 2 * n * p * layout.directions, "y": n * h}
    if layout.mix_norm:
        sizes |= {"drive rms": n * h, "readout rms": n * h, "mixed": n * h}
        sizes |= {"drive forms": h * i * i, "readout forms": h * i * i}
    return sizes


def kept_size(layout: Layout, shape: BlockShape) -> int:
    """Elements from what one block of a stack keeps to what the next one does."""
    return sum(aligned(size) for size in kept_sizes(layout, shape).values())


def row_tile(n: int, a: int) -> tuple[tuple[int], dict[str, int]]:
    """Grid and flags of a pass over n rows of width a."""
    block = tile_width(a)
    rows = max(1, _TILE // block)
    return (-(-n // rows),), {"A": a, "AB": block, "BM": rows}


def tile_width(a: int) -> int:
    return max(4, 1 << (a - 1).bit_length())


class Shares:
    """Sums over all rows for gradients: passes leave one for every program, side by side, and `finish` adds them up."""

    def __init__(self, run: WidePass) -> None:
        self._run = run
        layout = run.layout
        sizes = wide_layout(layout).sizes
        self._names = ("heads bias", "decay norm", "skip", "inner bias", "out bias")
        self._starts, self._split = dict[str, int](), 0
        for name in self._names:
            self._starts[name] = self._split
            self._split += sizes[name]
        self._starts["affine"] = self._split
        self.width = self._split + 2 * layout.width
        self._rows = max(1, _TILE // tile_width(max(layout.width, layout.inner, layout.modes)))
        programs = -(-run.rows // self._rows)
        # Added up in two steps of about equally many; programs beyond the last row leave zeros.
        self._tall = math.isqrt(programs - 1) + 1
        self._groups = -(-programs // self._tall)
        self._partial = run.plan.space(self._groups * self._tall, self.width)

    def tile(self, a: int) -> tuple[tuple[int], dict[str, int]]:
        """Grid and flags of a pass over all rows of width a that leaves sums."""
        return (self._groups * self._tall,), {"A": a, "AB": tile_width(a), "BM": self._rows}

    def of(self, name: str) -> Buffer:
        """Where the first program's sum for these weights goes; the next one's is `width` further."""
        return self._partial.part(self._starts[name], self._partial.size - self._starts[name])

    def finish(self, d_packed: Buffer, d_affine: Buffer) -> None:
        plan, layout = self._run.plan, self._run.layout
        middle = plan.space(self._groups, self.width)
        out = part_of(d_packed, layout, self._names[0])._replace(size=self._split)
        add_up(plan, self._partial, middle, self._tall, self.width, groups=self._groups)
        add_up(plan, middle, out, self._groups, self.width, rest=d_affine)
        plan.release(middle, self._partial)


def add_up(
    plan: LaunchPlan,
    partial: Buffer,
    out: Buffer,
    rows: int,
    width: int,
    *,
    groups: int = 1,
    rest: Buffer | None = None,
) -> None:
    """Σ over `rows` of `partial` (groups, rows, width); columns that `out` has no room for go to `rest`."""
    tall = min(_SUM_ROWS, 1 << (rows - 1).bit_length())
    split = None if rest is None else out.size
    sum_rows(plan, groups, partial, out, rows, width, width, rest=rest, split=split, tile=(tall, _TILE // tall))
