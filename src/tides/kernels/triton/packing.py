"""A block's weights as one vector, so that an operator takes and returns a single tensor for all of them."""

from typing import NamedTuple

from torch import Tensor

from tides.functional.mixes import LowRankMix
from tides.functional.ssm import SSMWeights
from tides.functional.tail import TailWeights


class Layout(NamedTuple):
    """Sizes of a block, and where its weights begin: head of the decay, codes, skip and tail, then mixes and clocks."""

    width: int
    """H"""
    modes: int
    """P"""
    inner: int
    """of the tail"""
    rank: int
    """R, or H for heads of full rank"""
    directions: int
    down: bool
    rate_norm: bool
    mix_norm: bool

    @classmethod
    def from_flags(cls, flags: list[int]) -> "Layout":
        """From its fields as plain integers, which an operator can take."""
        *sizes, down, rate_norm, mix_norm = flags
        width, modes, inner, rank, directions = sizes
        return cls(width, modes, inner, rank, directions, bool(down), bool(rate_norm), bool(mix_norm))

    @property
    def at_drive_code(self) -> int:
        return self.modes * (self.width + 1 + int(self.rate_norm))

    @property
    def _code(self) -> int:
        return self.rank * (self.width + 1) if self.down else 0

    @property
    def at_readout_code(self) -> int:
        return self.at_drive_code + self._code

    @property
    def at_skip(self) -> int:
        return self.at_readout_code + self._code

    @property
    def at_drive(self) -> int:
        """Everything before is summed up by the kernels' programs."""
        return self.at_skip + 2 * self.width + 3 * self.inner * self.width + 2 * self.inner

    @property
    def at_readout(self) -> int:
        return self.at_drive + self.mix_size(1)

    @property
    def at_frequency(self) -> int:
        return self.at_readout + self.mix_size(self.directions)

    @property
    def at_step(self) -> int:
        return self.at_frequency + self.modes

    @property
    def size(self) -> int:
        return self.at_step + self.modes

    @property
    def stride(self) -> int:
        """From one block of a stack to the next: multiples of 16 bytes."""
        return -(-self.size // 4) * 4

    def mix_size(self, directions: int) -> int:
        modes = self.modes * directions
        return 2 * modes * self.width * (self.rank + 1) + (modes if self.mix_norm else 0)

    def at_norm(self, base: int, directions: int) -> int:
        """The norm's weight of the mix that begins at `base`."""
        return base + 2 * self.modes * directions * self.width * (self.rank + 1)


def layout_of(weights: SSMWeights, tail: TailWeights) -> Layout:
    """Sizes of a block whose mixes are of low rank."""
    drive, readout = weights.drive, weights.readout
    assert isinstance(drive, LowRankMix)
    assert isinstance(readout, LowRankMix)
    p, h, _, r = drive.up.shape
    return Layout(
        width=h,
        modes=p,
        inner=tail.value.shape[0],
        rank=r,
        directions=readout.up.shape[0] // p,
        down=drive.down is not None,
        rate_norm=weights.decay.norm is not None,
        mix_norm=drive.norm is not None,
    )


def ordered(weights: SSMWeights, tail: TailWeights) -> list[Tensor]:
    """A block's weights in the order of their layout."""
    drive, readout, decay = weights.drive, weights.readout, weights.decay
    assert isinstance(drive, LowRankMix)
    assert isinstance(readout, LowRankMix)
    assert isinstance(weights.step, Tensor)
    codes = (drive.down, drive.down_bias, readout.down, readout.down_bias)
    mixes = (drive.base, drive.up, drive.norm, readout.base, readout.up, readout.norm)
    clocks = (weights.frequency.bias, weights.step)
    parts = (decay.weight, decay.bias, decay.norm, *codes, weights.skip, *tail, *mixes, *clocks)
    return [part for part in parts if part is not None]
