"""Sorted blocks of series joined into one: in memory, or appended to files on disk."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tides.data.clock import Clock
from tides.data.pivot import Block
from tides.data.spill import DiskArray
from tides.data.store import DenseCells, SparseCells


def assemble(
    blocks: Iterator[Block], clock: Clock, folder: Path | None, *, n_channels: int, long: bool
) -> tuple[Block, NDArray[np.float64]]:
    """One block and its encoded times; with a folder, the large arrays are memory maps of files in it."""
    if folder is None:
        block = next(blocks)
        return block, clock.encode(block.time)
    home = Path(tempfile.mkdtemp(prefix="series-", dir=folder))
    times = DiskArray(home / "times", np.float64)
    values = DiskArray(home / "values", np.float64, None if long else n_channels)
    channels = DiskArray(home / "channels", np.int32)
    keys: list[NDArray[Any]] = []
    bounds: list[NDArray[np.int64]] = [np.zeros(1, np.int64)]
    entry_bounds = DiskArray(home / "bounds", np.int64)
    codes: dict[str, list[NDArray[Any]]] = {}
    for block in blocks:
        keys.append(block.keys)
        bounds.append(block.bounds[1:] + times.length)
        for name, column in block.codes.items():
            codes.setdefault(name, []).append(column)
        times.append(clock.encode(block.time))
        if isinstance(block.cells, SparseCells):
            entry_bounds.append(block.cells.bounds[:-1].astype(np.int64) + values.length)
            channels.append(block.cells.channel)
            values.append(block.cells.value)
        else:
            values.append(block.cells.values)
    cells: DenseCells | SparseCells
    if long:
        entry_bounds.append(np.array([values.length], np.int64))
        cells = SparseCells(entry_bounds.open(), channels.open(), values.open(), n_channels)
    else:
        cells = DenseCells(values.open())
    merged = Block(
        np.concatenate(keys),
        np.concatenate(bounds),
        np.empty(0),
        cells,
        {name: np.concatenate(parts) for name, parts in codes.items()},
    )
    return merged, times.open()
