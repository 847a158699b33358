"""Where the tensors of a plan's launches and calls lie."""

import math
from operator import itemgetter
from typing import NamedTuple

import torch
from torch import Tensor

# Elements between the beginnings of temporaries: 256 bytes, as torch's allocator has it.
ALIGNED = 64
# Of the elements that stretches are counted in.
BYTES = 4
# The slot of a plan's temporaries.
WORKSPACE = 0


def aligned(size: int) -> int:
    """`size` and what it takes to the next place where a temporary may begin."""
    return -(-size // ALIGNED) * ALIGNED


class Buffer(NamedTuple):
    """A stretch of one of the tensors that a plan runs with, counted in float32."""

    slot: int
    offset: int
    size: int
    dtype: torch.dtype = torch.float32
    """Of what lies there, if it is in the workspace."""

    def part(self, start: int, size: int) -> "Buffer":
        return self._replace(offset=self.offset + start, size=size)

    def of(self, flat: list[Tensor]) -> Tensor:
        """The stretch itself; the plan's tensors are given as vectors."""
        stretch = flat[self.slot][self.offset : self.offset + self.size]
        return stretch if self.dtype == torch.float32 else stretch.view(self.dtype)


class View(NamedTuple):
    """A buffer as a call of torch has it."""

    buffer: Buffer
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    start: int = 0

    @classmethod
    def dense(cls, buffer: Buffer, *sizes: int) -> "View":
        return cls(buffer, sizes, tuple(math.prod(sizes[k + 1 :]) for k in range(len(sizes))))

    @property
    def mT(self) -> "View":
        """The matrices transposed, as torch calls it."""
        *lead, rows, columns = range(len(self.sizes))
        pick = itemgetter(*lead, columns, rows)
        return self._replace(sizes=pick(self.sizes), strides=pick(self.strides))

    def columns(self, start: int, count: int) -> "View":
        """So many of the last axis."""
        return self._replace(sizes=(*self.sizes[:-1], count), start=self.start + start * self.strides[-1])

    def of(self, flat: list[Tensor]) -> Tensor:
        tensor = self.buffer.of(flat)
        return tensor.as_strided(self.sizes, self.strides, tensor.storage_offset() + self.start)
