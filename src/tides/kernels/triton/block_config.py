"""What decides about a block's kernels besides its tensors."""

from functools import cache
from typing import NamedTuple

from tides.functional.ssm import SSMSpec
from tides.kernels.triton.buffers import aligned
from tides.kernels.triton.evolve import chunk_steps
from tides.kernels.triton.packing import Layout

# Decay, drive and states of a call are kept if they have at most so many elements: 4 MB.
_KEPT = 1 << 20


class BlockConfig(NamedTuple):
    """The block itself: its weights' layout, methods and numbers."""

    layout: Layout
    reparam: str
    discretisation: str
    hold: str
    reverse: str
    eps: float
    clip: float
    factor: float
    """2 for conjugate halves"""
    dropout: float

    @classmethod
    def of(cls, layout: Layout, spec: SSMSpec, dropout: float) -> "BlockConfig":
        factor = 2.0 if spec.conjugate else 1.0
        methods = (spec.reparam, spec.discretisation, spec.hold, spec.reverse)
        return cls(layout, *methods, spec.eps, spec.clip or 0.0, factor, dropout)

    def to_plain(self) -> tuple[list[int], str, list[float]]:
        """As lists and a string, which an operator can take."""
        return [int(flag) for flag in self.layout], " ".join(self[1:5]), list(self[5:])

    @classmethod
    def from_plain(cls, flags: list[int], methods: str, numbers: list[float]) -> "BlockConfig":
        return cls(Layout.from_flags(flags), *methods.split(), *numbers)  # type: ignore[arg-type]


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
    depth: int = 1
    """Blocks of one model, one behind the other."""

    @property
    def rows(self) -> int:
        return self.batch * self.steps

    @property
    def sequences(self) -> int:
        return self.models * self.batch


def padded(size: int) -> int:
    """The side of a tile that holds `size`."""
    return max(16, 1 << (size - 1).bit_length())


def keeps_states(layout: Layout, sequences: int, steps: int) -> bool:
    """Whether decay, drive and states are small enough to be kept; otherwise the backward pass makes them again."""
    return sequences * steps * layout.modes * (3 + 2 * layout.directions) <= _KEPT


def kept_sizes(layout: Layout, shape: BlockShape) -> dict[str, int]:
    """What the forward pass keeps besides its inputs, all of it small: name and number of elements."""
    models = shape.models
    h, i = padded(layout.width), padded(layout.rank + 1)
    # Two halves of everything, each of two bytes, and a unit for every h (`product_kernels`).
    grams = models * ((layout.rank + 1) * i * h + h) if layout.mix_norm else 0
    sizes: dict[str, int] = {}
    for name, directions in (("drive", 1), ("readout", layout.directions)):
        kernel = models * ((layout.rank + 1) * padded(2 * layout.modes * directions) * h + h)
        sizes |= {f"{name} kernel": kernel, f"{name} mirror": kernel}
        sizes |= {f"{name} root": grams, f"{name} gram": grams}
    clocks = shape.sequences * layout.modes
    sizes |= {"frequency": clocks, "scale": clocks, "affine": 2 * layout.width, "moments": 2 * layout.width}
    if shape.keeps:
        places = clocks * shape.steps
        sizes |= {"decay": places, "drives": 2 * places}
        sizes |= {f"states {direction}": 2 * places for direction in range(layout.directions)}
    else:
        # What reaches every chunk of the scans, which the backward pass makes again from there.
        chunks = -(-shape.steps // chunk_steps(shape.sequences, shape.steps, layout.modes))
        sizes |= {f"carries {direction}": 2 * clocks * chunks for direction in range(layout.directions)}
    return sizes


@cache
def kept_size(layout: Layout, shape: BlockShape) -> int:
    """Elements of the tensor that holds them, for each model."""
    total = sum(aligned(size) for size in kept_sizes(layout, shape).values())
    return -(-total // shape.models)
