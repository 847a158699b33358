"""What decides about a block's kernels besides its tensors."""

import math
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from tides.functional.ssm import SSMSpec
from tides.kernels.triton.buffers import Buffer, aligned
from tides.kernels.triton.evolve import chunk_steps
from tides.kernels.triton.packing import Layout
from tides.kernels.triton.product_kernels import VECTORS

# Decay, drive and states of a call are kept if they have at most so many elements: 4 MB.
_KEPT = 1 << 20
# The backward pass of a model goes through parts of its batch in which they have at most so many: 42 MB.
_PART = 10 << 20
# Sequences of a part at least: the scans of a single one would leave most of a GPU idle.
_FEWEST = 2


class BlockConfig(NamedTuple):
    """The block itself: its weights' layout, methods and numbers."""

    layout: Layout
    reparam: str
    discretisation: str
    hold: str
    reverse: str
    eps: float
    limit: float
    """Of Re λ, which a clip of 0 keeps from growing, too; infinite where nothing is clipped."""
    factor: float
    """2 for conjugate halves"""
    dropout: float

    @classmethod
    def of(cls, layout: Layout, spec: SSMSpec, dropout: float) -> "BlockConfig":
        factor = 2.0 if spec.conjugate else 1.0
        methods = (spec.reparam, spec.discretisation, spec.hold, spec.reverse)
        limit = math.inf if spec.clip is None else -spec.clip
        return cls(layout, *methods, spec.eps, limit, factor, dropout)

    @property
    def clipped(self) -> bool:
        return self.limit < math.inf

    @property
    def decays(self) -> bool:
        """Whether no Re λ is positive: then no |λ̄| is larger than 1."""
        return self.reparam != "standard" or self.clipped

    def to_plain(self) -> tuple[list[int], str, list[float]]:
        """As lists and a string, which an operator can take."""
        return [int(flag) for flag in self.layout], " ".join(self[1:5]), list(self[5:])

    @classmethod
    def from_plain(cls, flags: list[int], methods: str, numbers: list[float]) -> "BlockConfig":
        return cls(Layout.from_flags(flags), *methods.split(), *numbers)  # type: ignore[arg-type]


class Part(NamedTuple):
    """Whole sequences that the backward pass takes together: all of every model, or some of the only one."""

    first: int
    sequences: int
    start: int
    """The first sequence's first row."""
    stop: int
    """Behind the last row of a model."""
    last: bool

    def of(self, buffer: Buffer, width: int) -> Buffer:
        """Where its sequences lie in a buffer that has `width` elements for each of all."""
        return buffer.part(self.first * width, self.sequences * width)


class BlockShape(NamedTuple):
    """One call of it."""

    models: int
    batch: int
    steps: int
    masked: bool
    norm: str
    """"given": scale and shift are an input; "batch": they come from the batch, "running": from running statistics."""
    keeps: bool
    """Decay, drive and states are kept for the backward pass."""
    part: int
    """Sequences of a model that the backward pass takes together."""
    depth: int = 1
    """Blocks of one model, one behind the other."""
    forgets: bool = False
    """Nothing is kept for a backward pass, and of what lies between blocks the newest alone."""
    shares: bool = False
    """Decay, drive and states of the newest block are kept: all blocks have them in one room."""

    @classmethod
    def of(
        cls, layout: Layout, models: int, batch: int, steps: int, *, masked: bool, norm: str, depth: int = 1,
        whole: bool = False, forgets: bool = False,
    ) -> "BlockShape":  # fmt: skip
        """`whole`: the blocks are all of their model."""
        elements = steps * layout.modes * (3 + 2 * layout.directions)
        fitting = _PART // elements
        part = batch if models > 1 or fitting < _FEWEST else -(-batch // -(-batch // fitting))
        # The backward pass of a model's only block comes next: if it takes all sequences at once, what it would make
        # again takes no more memory if it is kept.
        once = whole and part == batch
        keeps = not forgets and (models * batch * elements <= _KEPT or (once and depth == 1))
        # Likewise that of the last of several.
        shares = not forgets and not keeps and once
        return cls(models, batch, steps, masked, norm, keeps, part, depth, forgets, shares)

    @property
    def rows(self) -> int:
        return self.batch * self.steps

    @property
    def sequences(self) -> int:
        return self.models * self.batch

    @property
    def whole(self) -> Part:
        return Part(0, self.sequences, 0, self.rows, last=True)

    @property
    def parts(self) -> list[Part]:
        """In the order in which the backward pass walks through them, none larger than the first."""
        count = -(-self.batch // self.part)
        # As even as can be, the larger ones first.
        ends = [-(-self.batch * (k + 1) // count) for k in range(count)]
        return [
            Part(first, self.models * (end - first), first * self.steps, end * self.steps, last=end == self.batch)
            for first, end in pairwise([0, *ends])
        ]


def padded(size: int) -> int:
    """The side of a tile that holds `size`."""
    return max(16, 1 << (size - 1).bit_length())


def scan_chunk(layout: Layout, shape: BlockShape) -> int:
    """Steps of a chunk in every scan of a block: carries of the forward pass are those of the parts."""
    return chunk_steps(shape.models * shape.part, shape.steps, layout.modes)


def kept_sizes(layout: Layout, shape: BlockShape) -> dict[str, int]:
    """What the forward pass keeps besides its inputs, all of it small: name and number of elements."""
    models = shape.models
    h, i = padded(layout.width), padded(layout.rank + 1)
    # Two halves of everything, each of two bytes, and numbers for every h (`product_kernels`).
    vectors = VECTORS.value * h
    grams = models * ((layout.rank + 1) * i * h + vectors) if layout.mix_norm else 0
    sizes: dict[str, int] = {}
    for name, directions in (("drive", 1), ("readout", layout.directions)):
        kernel = models * ((layout.rank + 1) * padded(2 * layout.modes * directions) * h + vectors)
        sizes |= {f"{name} kernel": kernel, f"{name} mirror": kernel}
        sizes |= {f"{name} root": grams, f"{name} gram": grams}
    clocks = shape.sequences * layout.modes
    sizes |= {"frequency": clocks, "scale": clocks, "affine": 2 * layout.width, "moments": 2 * layout.width}
    if shape.keeps:
        sizes |= room_sizes(layout, shape)
    else:
        # What reaches every chunk of the scans, which the backward pass makes again from there.
        chunks = -(-shape.steps // scan_chunk(layout, shape))
        sizes |= {f"carries {direction}": 2 * clocks * chunks for direction in range(layout.directions)}
    return sizes


def room_sizes(layout: Layout, shape: BlockShape) -> dict[str, int]:
    """What a block's scans read and make."""
    places = shape.sequences * layout.modes * shape.steps
    states = {f"states {direction}": 2 * places for direction in range(layout.directions)}
    return {"decay": places, "drives": 2 * places} | states


@cache
def kept_size(layout: Layout, shape: BlockShape) -> int:
    """Elements of the tensor that holds them, for each model."""
    total = sum(aligned(size) for size in kept_sizes(layout, shape).values())
    return -(-total // shape.models)


@cache
def room_size(layout: Layout, shape: BlockShape) -> int:
    """Elements of the room that blocks share, if they do."""
    return sum(aligned(size) for size in room_sizes(layout, shape).values()) if shape.shares else 0
