"""Launch shapes of a block's passes, measured on an H200: the one place where they are chosen."""

from functools import cache
from typing import NamedTuple

import torch
from triton.runtime import driver

# Of an H200: its processors, and of each the shared memory in bytes and the registers.
PROCESSORS, _SHARED, _REGISTERS = 132, 227 << 10, 1 << 16
# What a program takes of the shared memory besides its matrices.
_BESIDES = 1 << 10
# With fewer programs on a processor that have their matrices in shared memory, every tile fetches them instead.
_FEWEST = 2
# Sums over pairs z_i z_j have tiles of so many pairs, the smallest that a warp multiplies.
PAIR_ROWS = 16


class Tile(NamedTuple):
    """How one pass is cut up."""

    rows: int
    """Steps of a program."""
    warps: int
    stages: int
    """Sets of matrices on their way from memory at a time."""
    columns: int
    """Width of one product: several matrices of a mix side by side."""
    registers: int | None = None
    """A bound for each thread: with 168 three programs of 4 warps run on a processor at once, with 128 four."""

    resident: bool = True
    """Whether all matrices may stay in shared memory: from there a loop over them is unrolled and takes registers."""

    def fitting(self, shared: int) -> int:
        """Programs that run on a processor at once if each has matrices of so many bytes in shared memory."""
        by_registers = _REGISTERS // (32 * self.warps * (self.registers or 255))
        return min(by_registers, _SHARED // (shared + _BESIDES))

    def keeps(self, shared: int) -> bool:
        """Whether matrices of so many bytes stay in shared memory."""
        return self.resident and self.fitting(shared) >= _FEWEST and shared + _BESIDES <= least_shared()

    @property
    def flags(self) -> dict[str, int]:
        """As a launch takes them."""
        bound = {} if self.registers is None else {"maxnreg": self.registers}
        return {"BM": self.rows, "num_warps": self.warps} | bound

    def matrices(self, rank: int, width: int) -> int:
        """How many of a mix's R + 1 matrices with `width` columns go into one product."""
        return max(1, min(self.columns // width, 1 << ((rank + 1).bit_length() - 1)))


TILES = {
    "enter": Tile(128, 8, 3, 64, registers=128),
    "leave": Tile(64, 4, 3, 64, registers=168),
    "readout": Tile(64, 4, 3, 64, registers=168),
    "readout_backward": Tile(64, 4, 3, 64, registers=168),
    "drive_backward": Tile(64, 4, 3, 64),
    # Products of one matrix each, without columns.
    "tail": Tile(64, 4, 1, 0),
    "heads": Tile(64, 4, 1, 0),
    "weights": Tile(32, 1, 3, 0),
    # Instead of those above for states of more than 32 planes, whose matrices fill the shared memory.
    "leave_wide": Tile(64, 4, 2, 64, registers=128, resident=False),
    "readout_wide": Tile(64, 4, 2, 64),
    "readout_backward_wide": Tile(64, 4, 2, 128, resident=False),
    "drive_backward_wide": Tile(64, 4, 3, 64, registers=168, resident=False),
    "weights_wide": Tile(16, 1, 1, 0),
}


@cache
def least_shared() -> int:
    """Bytes of shared memory that a program may have on every GPU here; without one those of an H200."""
    devices = range(torch.cuda.device_count())
    return min((driver.active.utils.get_device_properties(k)["max_shared_mem"] for k in devices), default=_SHARED)


def tile_of(name: str, planes: int) -> Tile:
    """The tile of a pass whose states have so many planes."""
    wide = f"{name}_wide"
    return TILES[wide if planes > 32 and wide in TILES else name]


def pair_side(rank: int) -> int:
    """Of how many numbers the pairs z_i z_j are summed up, some of them zeros."""
    return max(8, 1 << (rank - 1).bit_length())


def pair_rows(rank: int) -> int:
    """The pairs i ≤ j of so many numbers, and z̃ itself, in whole tiles."""
    side = pair_side(rank)
    return -(-(side * (side + 1) // 2 + rank + 1) // PAIR_ROWS) * PAIR_ROWS


def share(count: int, size: int, most: int) -> int:
    """How many of `count` sums of `size` numbers a program takes that has room for `most`; all take about as many."""
    programs = -(-count // max(1, most // size))
    return -(-count // programs)
