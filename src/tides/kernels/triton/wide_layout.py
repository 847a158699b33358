"""A wide block's weights as one vector: matrices that are multiplied together lie side by side in it."""

from functools import cache
from itertools import accumulate
from typing import Any

from torch import Tensor

from tides.functional.ssm import SSMWeights
from tides.functional.tail import TailWeights
from tides.kernels.triton.packing import Layout


class WideLayout:
    """Where what is multiplied or summed up together begins, and how long it is."""

    def __init__(self, layout: Layout) -> None:
        h, p, f, r = layout.width, layout.modes, layout.inner, layout.rank
        mixes = {"drive": p, "readout": p * layout.directions}
        self.sizes = {"heads": (p + 2 * r) * h, "inner": 2 * f * h, "out": h * f}
        # In this order programs sum them up.
        self.sizes |= {"heads bias": p + 2 * r, "decay norm": p if layout.rate_norm else 0, "skip": h}
        self.sizes |= {"inner bias": 2 * f, "out bias": h}
        for mix, modes in mixes.items():
            norm = modes if layout.mix_norm else 0
            self.sizes |= {f"{mix} base": 2 * modes * h, f"{mix} up": 2 * modes * h * r, f"{mix} norm": norm}
        self.sizes |= {"frequency": p, "step": p}
        self.starts = dict(zip(self.sizes, accumulate(self.sizes.values(), initial=0), strict=False))
        self.size = sum(self.sizes.values())
        # From one block of a stack to the next: multiples of 16 bytes.
        self.stride = -(-self.size // 4) * 4


wide_layout = cache(WideLayout)


def in_layout(weights: SSMWeights, tail: TailWeights) -> list[Tensor]:
    """A block's weights in this order."""
    decay: Any = weights.decay
    drive: Any = weights.drive
    readout: Any = weights.readout
    matrices = (decay.weight, drive.down, readout.down, tail.value, tail.gate, tail.out)
    biases = (decay.bias, drive.down_bias, readout.down_bias, decay.norm, weights.skip)
    tail_biases = (tail.value_bias, tail.gate_bias, tail.out_bias)
    mixes = (drive.base, drive.up, drive.norm, readout.base, readout.up, readout.norm)
    clocks: Any = (weights.frequency.bias, weights.step)
    parts = (*matrices, *biases, *tail_biases, *mixes, *clocks)
    return [part for part in parts if part is not None]
