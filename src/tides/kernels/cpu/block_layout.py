"""A block's weights as one vector, where each of them begins, and how much room its passes need."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tides.functional.mixes import LowRankMix
from tides.functional.ssm import SSMWeights
from tides.functional.tail import TailWeights
from tides.kernels.cpu.vectors import VECTOR


class Layout(NamedTuple):
    """Sizes of a block and which of its parts there are; flags are 0 or 1."""

    width: int
    modes: int
    inner: int
    rank: int
    directions: int
    down: int
    rate_norm: int
    drive_norm: int
    readout_norm: int

    @property
    def code(self) -> int:
        """Entries of z̃, of which the last is one."""
        return self.rank + 1


class Places(NamedTuple):
    """Where the weights begin in their vector, in this order; `size` is where they end."""

    decay: int
    decay_bias: int
    rate_norm: int
    drive_down: int
    drive_down_bias: int
    readout_down: int
    readout_down_bias: int
    skip: int
    value: int
    value_bias: int
    gate: int
    gate_bias: int
    outer: int
    outer_bias: int
    drive_base: int
    drive_up: int
    drive_norm: int
    readout_base: int
    readout_up: int
    readout_norm: int
    frequency: int
    step: int
    size: int


class Sizes(NamedTuple):
    """Numbers of features, `…_whole` with what fills up whole vectors: rows of scratch have nothing between them."""

    lanes: int
    width: int
    whole: int
    code: int
    code_whole: int
    modes: int
    modes_whole: int
    heads: int
    """Codes and θ side by side, each filled up."""
    planes: int
    planes_whole: int
    directions: int
    states: int
    states_whole: int
    inner: int
    inner_whole: int
    monomials: int
    """z̃_i z̃_j with i ≤ j, filled up to whole tiles of rows."""


class Settings(NamedTuple):
    """The choices of a block that are not sizes: kinds of maps by their numbers, limits and factors."""

    rates_normed: bool
    reparam: int
    limit: float
    eps: float
    factor: float
    dropout: float
    method: int
    following: bool
    behind_following: bool


def layout_of(weights: SSMWeights, tail: TailWeights) -> Layout:
    """Sizes of a block whose mixes are of low rank."""
    drive, readout = weights.drive, weights.readout
    assert isinstance(drive, LowRankMix)
    assert isinstance(readout, LowRankMix)
    p, h, _, rank = drive.up.shape
    flags = (part is not None for part in (drive.down, weights.decay.norm, drive.norm, readout.norm))
    return Layout(h, p, tail.value.shape[0], rank, readout.up.shape[0] // p, *map(int, flags))


def ordered(weights: SSMWeights, tail: TailWeights) -> list[Tensor]:
    """A block's weights in the order of `Places`."""
    drive, readout, decay = weights.drive, weights.readout, weights.decay
    assert isinstance(drive, LowRankMix)
    assert isinstance(readout, LowRankMix)
    assert isinstance(weights.step, Tensor)
    parts = (
        decay.weight, decay.bias, decay.norm, *_down(drive), *_down(readout), weights.skip, *tail,
        drive.base, drive.up, drive.norm, readout.base, readout.up, readout.norm, weights.frequency.bias, weights.step,
    )  # fmt: skip
    return [part for part in parts if part is not None]


def _down(mix: LowRankMix) -> tuple[Tensor | None, Tensor | None]:
    if mix.down is None or mix.down_bias is not None:
        return mix.down, mix.down_bias
    return mix.down, mix.down.new_zeros(mix.down.shape[0])


@cache
def places_of(layout: Layout) -> Places:
    """Lengths of all parts, those that are absent zero, added up."""
    h, p, f, r, directions, down, rate_norm, drive_norm, readout_norm = layout
    codes = (down * r * h, down * r) * 2
    base = 2 * p * h
    mixes = (base, base * r, drive_norm * p, base * directions, base * directions * r, readout_norm * p * directions)
    lengths = (p * h, p, rate_norm * p, *codes, h, f * h, f, f * h, f, h * f, h, *mixes, p, p)
    return Places(0, *np.cumsum(lengths).tolist())


def _filled(count: int, lanes: int) -> int:
    return -(-count // lanes) * lanes


@cache
def sizes_of(layout: Layout, dtype: Any) -> Sizes:
    """For rows of this kind of numbers."""
    lanes = VECTOR // int(np.dtype(dtype).itemsize)
    code, modes = _filled(layout.code, lanes), _filled(layout.modes, lanes)
    planes, states = 2 * layout.modes, 2 * layout.modes * layout.directions
    return Sizes(
        lanes, layout.width, _filled(layout.width, lanes), layout.code, code, layout.modes, modes, code + modes,
        planes, _filled(planes, lanes), layout.directions, states, _filled(states, lanes),
        layout.inner, _filled(layout.inner, lanes), _filled(layout.code * (layout.code + 1) // 2, 8),
    )  # fmt: skip


def carve(kind: Any, lengths: tuple[int, ...], dtype: torch.dtype, *, zero: bool) -> tuple[Tensor, Any]:
    """One buffer that begins with a cache line, and `kind` of its parts as arrays; so do they, if lengths allow."""
    buffer = (torch.zeros if zero else torch.empty)(sum(lengths), dtype=dtype)
    return buffer, parts_of(kind, lengths, buffer)


def parts_of(kind: Any, lengths: tuple[int, ...], buffer: Tensor) -> Any:
    """`kind` of the parts of a buffer with these lengths."""
    array = buffer.numpy()
    return kind(*[array[part] for part in _slices(lengths)])


@cache
def _slices(lengths: tuple[int, ...]) -> list[slice]:
    ends = np.cumsum(lengths).tolist()
    return [slice(end - length, end) for end, length in zip(ends, lengths, strict=True)]
