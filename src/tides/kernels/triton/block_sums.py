"""Sums over steps for a block's weights: a row for every program, which grows from range to range, then all rows."""

import math
from typing import NamedTuple

from tides.kernels.triton.block_config import Part
from tides.kernels.triton.block_pass import BlockPass
from tides.kernels.triton.block_tiles import PAIR_ROWS, pair_rows, pair_side, share, tile_of
from tides.kernels.triton.block_weight_kernels import block_weight_kernel
from tides.kernels.triton.buffers import Buffer
from tides.kernels.triton.launch import LaunchPlan
from tides.kernels.triton.packing import Layout
from tides.kernels.triton.sum_kernels import sum_kernel

# Launch shapes measured on an H200: programs for the sums of the mixes' weights, tiles of steps that each of them has
# at least, numbers that it holds of products with up to 32 planes and with more, and tiles of pairs.
_PROGRAMS = 1056
_TILES = 4
_HELD = (4608, 3072)
_PAIR_TILES = 4
# Instructions for a tile of steps: in any case and for every 512 numbers held; the same with a tile of pairs.
_COST, _PAIR_COST = (150, 128), (250, 210)
# Rows and columns of a tile that is summed up.
_SUM_TILE = (256, 16)


class TailSums(NamedTuple):
    """Programs that visit so many tiles each, with `width` sums in a row of `partial`."""

    partial: Buffer
    tiles: int
    programs: int
    width: int


class WeightSums:
    """The sums for one mix's weights, with `width` planes; ranges have up to `rows` steps."""

    def __init__(self, run: BlockPass, rows: int, total: Buffer, width: int, *, output: bool) -> None:
        self.run, self.rows, self.total = run, rows, total
        layout, tile, flags = run.layout, tile_of("weights", width), pair_flags(run.layout)
        pairs = flags["PAIRS"] // PAIR_ROWS
        group = share(layout.rank + 1, PAIR_ROWS * width, _HELD[width > 32])
        tiles = share(pairs, 1, _PAIR_TILES) if pairs else 1
        self.kinds = (-(-(layout.rank + 1) // group) * (run.hb // PAIR_ROWS), -(-pairs // tiles))
        # All programs run at once, so all should take about as long: pairs are cheaper, and have longer splits.
        cost = _COST[0] + _COST[1] * group * width // 32
        pair_cost = _PAIR_COST[0] + _PAIR_COST[1] * tiles
        most = _PROGRAMS // run.shape.models
        splits = most * cost / (self.kinds[0] * cost + self.kinds[1] * pair_cost)
        self.per_split = self._rows(splits, tile.rows)
        self.per_pair_split = self._rows(splits * pair_cost / cost, tile.rows)
        self.splits, self.pair_splits = -(-rows // self.per_split), -(-rows // self.per_pair_split)
        self.height = max(self.splits, self.pair_splits if pairs else 0)
        self.partial = run.plan.space(self.height * total.size)
        self.flags = {"H": layout.width, "P2": 2 * layout.modes, "R": layout.rank, "HB": run.hb, "OB": width}
        self.flags |= {"GROUP": group, "TILES": tiles, "TALL": PAIR_ROWS, "STAGES": tile.stages} | tile.flags | flags
        self.flags |= {"OUTPUT": output, "BOTH": output and layout.directions == 2}

    def _rows(self, splits: float, tile: int) -> int:
        """Steps of one of about so many splits, in whole tiles."""
        return max(_TILES, math.ceil(self.rows / (max(splits, 1.0) * tile))) * tile

    def add(
        self, part: Part, buffers: tuple[Buffer, ...], start: int, right: tuple[Buffer, Buffer], units: Buffer
    ) -> None:
        """A range; a part's first one comes first. Its rows count from the part's beginning, as those of `right` do."""
        left, d_square, codes = buffers
        programs = self.kinds[0] * self.splits + self.kinds[1] * self.pair_splits
        self.run.plan.launch(
            block_weight_kernel, (programs, self.run.shape.models), left, *right, codes, d_square, units, self.partial,
            part.stop - part.start, start - part.start, self.rows, self.splits, self.per_split, self.per_pair_split,
            self.height, **self.flags, PRECISION=self.run.precision,
        )  # fmt: skip

    def finish(self, part: Part) -> None:
        """Behind a part's last range: its sums go on top of those of the parts before."""
        models = self.run.shape.models
        size = self.total.size // models
        members = size - self.flags["PAIRS"] * self.flags["HB"]
        sum_rows(
            self.run.plan, models, self.partial, self.total, self.height, size, size, add=part.start > 0,
            counts=(self.splits, self.pair_splits, members),
        )  # fmt: skip
        self.run.plan.release(self.partial)


def pair_flags(layout: Layout) -> dict[str, int]:
    """How the sums over pairs lie, as kernels take it; without norms there are none."""
    return {"SIDE": pair_side(layout.rank), "PAIRS": pair_rows(layout.rank) if layout.mix_norm else 0}


def sum_rows(
    plan: LaunchPlan, models: int, partial: Buffer, out: Buffer, rows: int, width: int, stride: int, *,
    rest: Buffer | None = None, split: int | None = None, mixes: int = 1, step: int = 0, add: bool = False,
    tile: tuple[int, int] = _SUM_TILE, counts: tuple[int, int, int] | None = None,
) -> None:  # fmt: skip
    """Σ over `rows` of `partial` (mixes, m, rows, width); columns from `split` on go to `rest`.

    With `add` they go on top of what is there. `counts`: so many rows count, and so many others from a column on.
    """
    tall, wide = tile
    count, later, column = counts or (rows, rows, width)
    plan.launch(
        sum_kernel, (-(-width // wide), models, mixes), partial, out, rest or out, rows, width,
        width if split is None else split, stride, step, count, later, column, BR=tall, BC=wide, ADD=add,
    )  # fmt: skip
