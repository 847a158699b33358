"""What decides about a block's kernels besides its tensors."""

from functools import cache
from typing import NamedTuple

from tides.functional.ssm import SSMSpec
from tides.kernels.triton.launch import ALIGNED
from tides.kernels.triton.packing import Layout


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

    @property
    def rows(self) -> int:
        return self.batch * self.steps

    @property
    def sequences(self) -> int:
        return self.models * self.batch


def padded(size: int) -> int:
    """The side of a tile that holds `size`."""
    return max(16, 1 << (size - 1).bit_length())


def kept_sizes(layout: Layout, models: int, batch: int) -> dict[str, int]:
    """What the forward pass keeps besides its inputs, all of it small: name and number of elements."""
    h, i = padded(layout.width), padded(layout.rank + 1)
    grams = models * (layout.rank + 1) * i * h if layout.mix_norm else 0
    sizes: dict[str, int] = {}
    for name, directions in (("drive", 1), ("readout", layout.directions)):
        width = padded(2 * layout.modes * directions)
        sizes |= {f"{name} kernel": models * (layout.rank + 1) * h * width}
        sizes |= {f"{name} root": grams, f"{name} gram": grams}
    clocks = models * batch * layout.modes
    return sizes | {"frequency": clocks, "scale": clocks, "affine": 2 * layout.width, "moments": 2 * layout.width}


@cache
def kept_size(layout: Layout, models: int, batch: int) -> int:
    """Elements of the tensor that holds them, for each model."""
    total = sum(-(-size // ALIGNED) * ALIGNED for size in kept_sizes(layout, models, batch).values())
    return -(-total // models)
