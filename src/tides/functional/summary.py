"""What a table would say of a series: count, mean, spread, first, last, extremes and slope of each channel, its steps
and its gaps; from a whole series, or from a state that grows with every piece.

    mean = Σ x/n,   spread = √(Σ (x − mean)²/n),   slope = Σ (t − t̄)(x − mean) / (Σ (t − t̄)² + 1)

Values and gaps come scaled, so that neither their units nor the unit of time matter; time counts from the first step.
The one below the slope is in squares of the time scale: two values in quick succession are no slope.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

# Statistics and sums of a channel, and of the whole series.
STATISTICS, SUMS, OF_SERIES = 8, 10, 4
# Shorter gaps count as this one, in units of the time scale: a logarithm has no zero.
SHORTEST = 1e-3
# Keeps the square root's derivative finite where all values are equal.
SMALLEST_SQUARE = 1e-12
# Scores beyond it hardly grow: a series unlike all others shall not rule the answer.
LARGEST_SCORE = 5.0


class Sums(NamedTuple):
    """A state apart: of each channel (b, d), then of the series (b, 1). A fresh state is all zeros."""

    number: Tensor
    mean: Tensor
    square: Tensor
    """Σ (x − mean)²."""
    time: Tensor
    """Mean time of the channel's values."""
    width: Tensor
    """Σ (t − time)²."""
    cross: Tensor
    """Σ (t − time)(x − mean)."""
    first: Tensor
    last: Tensor
    least: Tensor
    most: Tensor
    steps: Tensor
    span: Tensor
    """From the first step to the newest."""
    since: Tensor
    """What has passed since the newest step."""
    logs: Tensor
    """Σ log gap."""


def statistics_size(channels: int) -> int:
    """How many statistics a series of so many channels has."""
    return STATISTICS * channels + OF_SERIES


def sums_size(channels: int) -> int:
    """How many numbers a state of so many channels holds."""
    return SUMS * channels + OF_SERIES


def take_in(
    state: Float64[Tensor, "b n"],
    x: Float[Tensor, "b l d"],
    gaps: Float[Tensor, "b l"],
    observed: Bool[Tensor, "b l d"],
    valid: Bool[Tensor, "b l"],
) -> Float64[Tensor, "b n"]:
    """The state after further steps; padding behind them says nothing, nor does the gap before the first one."""
    past = _apart(state, x.shape[-1])
    gaps = gaps.double()
    # Joined first and cut then: a piece of length l − 1 would make an exported graph ask whether that is one.
    inner = torch.cat([past.steps > 0, torch.ones_like(valid)], dim=1)[:, :-1] & valid
    elapsed = gaps + torch.cat([past.since, torch.zeros_like(gaps)], dim=1)[:, :-1]
    elapsed = torch.where(inner, elapsed, torch.zeros_like(elapsed))
    # Times of the piece count from the newest step before it, so that a long past costs them no digits.
    moments = running_sums(elapsed).unsqueeze(-1)
    logs = torch.where(inner, elapsed.clamp_min(SHORTEST).log(), torch.zeros_like(elapsed))
    seen = observed & valid.unsqueeze(-1)
    part = _of_piece(torch.where(seen, x.double(), torch.zeros_like(moments)), moments, seen)
    both = _join(past, part._replace(time=past.span + part.time))
    return torch.cat(
        [
            *both[:SUMS],
            past.steps + valid.double().sum(1, keepdim=True),
            past.span + elapsed.sum(1, keepdim=True),
            torch.zeros_like(past.since),
            past.logs + logs.sum(1, keepdim=True),
        ],
        dim=1,
    )


def wait(state: Float64[Tensor, "b n"], gap: Float[Tensor, " b"]) -> Float64[Tensor, "b n"]:
    """The state once so much time has passed without a step."""
    return torch.cat([state[:, :-2], (state[:, -2] + gap.double()).unsqueeze(1), state[:, -1:]], dim=1)


def statistics(state: Float64[Tensor, "b n"], channels: int) -> tuple[Float64[Tensor, "b k"], Bool[Tensor, "b k"]]:
    """All statistics, and which of them are known: a channel without a value has a count alone."""
    sums = _apart(state, channels)
    n, gaps = sums.number.clamp_min(1), (sums.steps - 1).clamp_min(1)
    spread = (sums.square / n + SMALLEST_SQUARE).sqrt()
    of_values = (sums.mean, spread, sums.first, sums.last, sums.least, sums.most, sums.cross / (sums.width + 1))
    of_series = (sums.steps, sums.span, sums.span / gaps, sums.logs / gaps)
    known, always = sums.number > 0, torch.ones_like(sums.steps, dtype=torch.bool)
    flags = [torch.ones_like(known), *[known] * len(of_values), *[always] * len(of_series)]
    return torch.cat([sums.number, *of_values, *of_series], dim=1), torch.cat(flags, dim=1)


def scores(
    found: Float64[Tensor, "b k"], known: Bool[Tensor, "b k"], shift: Float[Tensor, " k"], scale: Float[Tensor, " k"]
) -> Float[Tensor, "b k"]:
    """Statistics in standard deviations of the training series, bounded softly, in the precision of their scales.

    What is not known counts as its training mean.
    """
    z = torch.where(known, (found - shift) / scale, torch.zeros_like(found))
    return (LARGEST_SCORE * torch.tanh(z / LARGEST_SCORE)).to(shift.dtype)


def running_sums(x: Float64[Tensor, "b l"]) -> Float64[Tensor, "b l"]:
    """Sums of all entries up to each."""
    if not (x.is_cuda and torch.are_deterministic_algorithms_enabled()):
        return x.cumsum(1)
    return doubled_sums(x)


def doubled_sums(x: Float64[Tensor, "b l"]) -> Float64[Tensor, "b l"]:
    """The same in log l passes: torch refuses `cumsum` on a GPU where algorithms must be deterministic."""
    ahead = 1
    while ahead < x.shape[1]:
        x = torch.cat([x[:, :ahead], x[:, ahead:] + x[:, :-ahead]], dim=1)
        ahead *= 2
    return x


def _apart(state: Tensor, channels: int) -> Sums:
    return Sums(*state.split([channels] * SUMS + [1] * OF_SERIES, dim=1))


def _of_piece(x: Tensor, moments: Tensor, seen: Tensor) -> Sums:
    """Sums of the values alone; those of the series are not asked for."""
    weight, zero = seen.double(), torch.zeros_like(x[:, 0])
    count, rank = weight.sum(1), seen.long().cumsum(1)
    n = count.clamp_min(1)
    mean, time = x.sum(1) / n, (moments * weight).sum(1) / n
    dx, dt = (x - mean.unsqueeze(1)) * weight, (moments - time.unsqueeze(1)) * weight
    far = torch.full_like(x, torch.inf)
    return Sums(
        number=count,
        mean=mean,
        square=dx.square().sum(1),
        time=time,
        width=dt.square().sum(1),
        cross=(dx * dt).sum(1),
        first=(x * (seen & (rank == 1)).double()).sum(1),
        last=(x * (seen & (rank == rank[:, -1:])).double()).sum(1),
        least=torch.where(count > 0, torch.where(seen, x, far).amin(1), zero),
        most=torch.where(count > 0, torch.where(seen, x, -far).amax(1), zero),
        steps=zero[:, :1],
        span=zero[:, :1],
        since=zero[:, :1],
        logs=zero[:, :1],
    )


def _join(a: Sums, b: Sums) -> Sums:
    """Sums over the values of both, about their common mean, which does not drift however long a stream is."""
    count = a.number + b.number
    share = b.number / count.clamp_min(1)
    dx, dt, weight = b.mean - a.mean, b.time - a.time, a.number * share
    in_a, in_b = a.number > 0, b.number > 0
    old, new = _either(in_a, a, b), _either(in_b, b, a)
    return a._replace(
        number=count,
        mean=a.mean + dx * share,
        square=a.square + b.square + dx.square() * weight,
        time=a.time + dt * share,
        width=a.width + b.width + dt.square() * weight,
        cross=a.cross + b.cross + dx * dt * weight,
        first=old.first,
        last=new.last,
        least=torch.minimum(old.least, new.least),
        most=torch.maximum(old.most, new.most),
    )


def _either(which: Tensor, one: Sums, other: Sums) -> Sums:
    """First and last values and extremes of `one` where it has values, else of `other`."""
    names = ("first", "last", "least", "most")
    return one._replace(**{name: torch.where(which, getattr(one, name), getattr(other, name)) for name in names})
