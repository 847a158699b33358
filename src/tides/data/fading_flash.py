"""Fading Flash: sparse flashes on a row of detectors glow and fade at the rate of the zone they fall into.

Per sequence (paper §4 and its appendix): 40 positions; 2 or 3 contiguous zones whose boundaries are drawn without
replacement from 4…35; a rate 1.0, 1.5 or 2.0 per zone, never the same in neighbouring zones; 2 to 4 flashes at
distinct positions; one Δ for the whole sequence. The glow is the exact zero-order-hold solution of ḣ = −λh + p:

    h_k = α_k h_{k−1} + β_k p_k,    α_k = exp(−λ_k Δ),    β_k = (1 − α_k)/λ_k,    y_k = h_k

The input is the flash indicator and the zone as one-hot: u_k = [p_k, 1(z_k = 0), 1(z_k = 1), 1(z_k = 2)].
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from tides.errors import ConfigError
from tides.functional import discretise, linear_scan

LENGTH = 40
RATES = (1.0, 1.5, 2.0)
FIRST_BOUNDARY, LAST_BOUNDARY = 4, 35
MAX_FLASHES = 4


class FlashBatch(NamedTuple):
    """A batch of sequences; `zones` holds the rate index of every position."""

    x: Float[Tensor, "b l 4"]
    gaps: Float[Tensor, "b l"]
    y: Float[Tensor, "b l 1"]
    zones: Int[Tensor, "b l"]


def sample(
    batch: int,
    gap_range: tuple[float, float] = (0.5, 1.5),
    *,
    generator: torch.Generator | None = None,
    input_noise: float = 0.0,
    output_noise: float = 0.0,
) -> FlashBatch:
    """Draw `batch` sequences, each with its own Δ uniform in `gap_range` (equal ends fix it).

    `input_noise` and `output_noise` are standard deviations of white noise on every input channel and on the
    target; the noisy variant uses 0.2 and 0.05.
    """
    low, high = gap_range
    if batch < 1:
        raise ConfigError(f"batch: found {batch}, wanted at least 1")
    if not 0 < low <= high < math.inf:
        raise ConfigError(f"gap_range: found {gap_range}, wanted 0 < low <= high, both finite")
    if not (0 <= input_noise < math.inf and 0 <= output_noise < math.inf):
        raise ConfigError(f"noise: found ({input_noise}, {output_noise}), wanted two numbers >= 0")
    zones = draw_zones(batch, generator)
    flashes = draw_flashes(batch, generator)
    gap = low + (high - low) * torch.rand(batch, 1, generator=generator)
    y = glow(flashes, zones, gap)
    x = F.embedding(zones, torch.eye(len(RATES), 1 + len(RATES)).roll(1, 1))
    x[..., 0] = flashes
    if input_noise:
        x = x + input_noise * torch.randn(x.shape, generator=generator)
    if output_noise:
        y = y + output_noise * torch.randn(y.shape, generator=generator)
    return FlashBatch(x, gap.expand(-1, LENGTH), y, zones)


def draw_zones(batch: int, generator: torch.Generator | None = None) -> Int[Tensor, "b l"]:
    """Rate indices per position: two or three runs, neighbours different."""
    choices = LAST_BOUNDARY - FIRST_BOUNDARY + 1
    # Two distinct boundaries in random order, so the first of them alone is a uniform single boundary.
    boundaries = FIRST_BOUNDARY + _distinct(batch, choices, 2, generator)
    three = torch.rand(batch, 1, generator=generator) < 0.5
    first = boundaries[:, :1]
    second = torch.where(three, boundaries[:, 1:], first)
    position = torch.arange(LENGTH)
    run = (position >= torch.minimum(first, second)).long() + (three & (position >= torch.maximum(first, second)))
    # A shift by 1 or 2 modulo 3 is uniform over the other two rates.
    start = torch.randint(len(RATES), (batch, 1), generator=generator)
    shifts = torch.randint(1, len(RATES), (batch, 2), generator=generator)
    rates = torch.cat([start, start + shifts[:, :1], start + shifts.sum(1, keepdim=True)], dim=1) % len(RATES)
    return rates.gather(1, run)


def draw_flashes(batch: int, generator: torch.Generator | None = None) -> Float[Tensor, "b l"]:
    """Two, three or four ones at distinct positions, zeros elsewhere."""
    positions = _distinct(batch, LENGTH, MAX_FLASHES, generator)
    count = torch.randint(2, MAX_FLASHES + 1, (batch, 1), generator=generator)
    lit = (torch.arange(MAX_FLASHES) < count).to(torch.get_default_dtype())
    return torch.zeros(batch, LENGTH).scatter_(1, positions, lit)


def glow(
    flashes: Float[Tensor, "b l"], zones: Int[Tensor, "b l"], gaps: Float[Tensor, "b #l"]
) -> Float[Tensor, "b l 1"]:
    """The target: the flashes' exact zero-order-hold response under the zones' rates."""
    # One (α, β) per rate, looked up by zone: far fewer exponentials than one per position.
    table = discretise(-torch.tensor(RATES, dtype=gaps.dtype), gaps.unsqueeze(-1))
    index = zones.unsqueeze(-1)
    alpha, beta = (entry.expand(*zones.shape, -1).gather(-1, index).squeeze(-1) for entry in table)
    # Time first, so that every step of the scan touches contiguous memory.
    y, _ = linear_scan(alpha.T.contiguous(), (beta * flashes).T.contiguous())
    return y.T.unsqueeze(-1)


def _distinct(batch: int, choices: int, count: int, generator: torch.Generator | None) -> Int[Tensor, "b count"]:
    """`count` distinct integers below `choices` per row, in random order (a partial Fisher–Yates shuffle)."""
    drawn: list[Tensor] = []
    for taken in range(count):
        value = torch.randint(choices - taken, (batch,), generator=generator)
        # Skip over what is taken already, smallest first.
        if drawn:
            for earlier in torch.stack(drawn, 1).sort(1).values.unbind(1):
                value = value + (value >= earlier)
        drawn.append(value)
    return torch.stack(drawn, 1)
