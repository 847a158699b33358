"""Warnings about columns that may not be what they were taken for."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tides.data.dataset import IrregularDataset
from tides.errors import DataError
from tides.units import seconds_per

# Series looked at for a channel that never changes within one, and how many of them must have two values.
_LOOKED_AT = 200
_CONVINCING = 5
# A static column with more categories than this share of the series hardly says anything about another series.
_CROWDED = 0.5
# Codes that stand for an empty cell.
_NINES = frozenset(sign * float("9" * digits) for sign in (-1, 1) for digits in (2, 3, 4, 5, 6))
# Channels shown with their values.
_EXAMPLES = 3
# Miles and kilometres, the closest of common pairs of units, differ by 1.6; what series are about differs by less, too.
_LEAST_FACTOR = 1.5
# Ticks per second of clocks that count from 1970, and the seconds at which the years 2000 and 2100 begin.
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_YEARS = (946_684_800, 4_102_444_800)
_MARKS = re.compile(r"[\s_-]+")


class Measured(Protocol):
    """What the notes need to know about a channel."""

    @property
    def name(self) -> str: ...
    @property
    def min(self) -> float | None: ...
    @property
    def max(self) -> float | None: ...


def since_1970(data: IrregularDataset, times: Sequence[NDArray[np.float64]]) -> list[str]:
    """Times that seem to count from 1970 in another unit than the stated one, which would misread a horizon of
    "24h".
    """
    ends = [(one[0], one[-1]) for one in times if len(one)]
    if data.schema.origin is not None or not ends:
        return []
    low, high = min(first for first, _ in ends) + data.schema.offset, max(last for _, last in ends) + data.schema.offset
    likely = next(
        (unit for unit, ticks in _TICKS.items() if _YEARS[0] * ticks <= low <= high <= _YEARS[1] * ticks), None
    )
    try:
        stated = None if data.unit is None else seconds_per(data.unit)
    except DataError:
        return []  # no unit of time, and no horizon is read in it
    if likely is None or stated in (None, seconds_per(likely)):
        return []
    return [f"times from {low:.0f} to {high:.0f} look like {likely} since 1970: is {data.unit!r} their unit?"]


def still_channels(data: IrregularDataset, channels: Sequence[Measured]) -> list[str]:
    """Channels that differ between series but never within one: columns without a role are taken for channels."""
    c = len(channels)
    pairs, moves = np.zeros(c, np.int64), np.zeros(c, np.bool_)
    for i in range(min(len(data), _LOOKED_AT)):
        count, low, high = np.zeros(c, np.int64), np.full(c, np.inf), np.full(c, -np.inf)
        for channel, value in data[i : i + 1].entries():
            count += np.bincount(channel, minlength=c)
            np.minimum.at(low, channel, value)
            np.maximum.at(high, channel, value)
        pairs += count > 1
        moves |= high > low
    still = [
        channel.name
        for i, channel in enumerate(channels)
        if pairs[i] >= _CONVINCING and not moves[i] and channel.min != channel.max
    ]
    if not still:
        return []
    what = counted(len(still), "channel never changes", "channels never change")
    return [f"{what} within a series: {some(still)}; what describes a series is static"]


def two_levels(data: IrregularDataset, channels: Sequence[Measured]) -> list[str]:
    """Channels that lie at one level in some series and at a distant one in all others, as in two units."""
    c, means, moves = len(channels), [], np.zeros(len(channels), np.bool_)
    for i in range(min(len(data), _LOOKED_AT)):
        count, total = np.zeros(c, np.int64), np.zeros(c)
        low, high = np.full(c, np.inf), np.full(c, -np.inf)
        for channel, value in data[i : i + 1].entries():
            count += np.bincount(channel, minlength=c)
            total += np.bincount(channel, value, minlength=c)
            np.minimum.at(low, channel, value)
            np.maximum.at(high, channel, value)
        moves |= high > low
        means.append(np.where(count > 0, total / np.maximum(count, 1), np.nan))
    found = []
    for i, name in enumerate(one.name for one in channels):
        levels = np.sort([mean[i] for mean in means if moves[i] and not np.isnan(mean[i])])
        split = _apart(levels) or (_apart(np.log(levels)) if len(levels) and levels[0] > 0 else 0)
        if split:
            one, other = np.median(levels[:split]), np.median(levels[split:])
            if max(abs(one), abs(other)) < _LEAST_FACTOR * min(abs(one), abs(other)) and one * other > 0:
                continue
            found.append(f"{name} (near {one:.3g} in {split}, near {other:.3g} in {len(levels) - split})")
    if not found:
        return []
    return [f"{_kinds(len(found))} at two levels, depending on the series: {some(found)}; are these two units?"]


def _apart(levels: NDArray[np.float64]) -> int:
    """How many of these sorted numbers are in the lower of two groups further apart than either is wide; 0: none."""
    if len(levels) < 2 * _CONVINCING:
        return 0
    at = int(np.argmax(np.diff(levels))) + 1
    width = max(levels[at - 1] - levels[0], levels[-1] - levels[at])
    enough = min(at, len(levels) - at) >= _CONVINCING
    return at if enough and levels[at] - levels[at - 1] > width else 0


def codes_for_missing(data: IrregularDataset, channels: Sequence[Measured]) -> list[str]:
    """Channels with an extreme value such as -999, further from all others than those are from each other."""
    suspects = {i: end for i, one in enumerate(channels) for end in (one.min, one.max) if end in _NINES}
    if not suspects:
        return []
    c = len(channels)
    low, high = np.full(c, np.inf), np.full(c, -np.inf)
    code = np.array([suspects.get(i, np.nan) for i in range(c)])
    for channel, value in data.entries():
        other = value != code[channel]
        np.minimum.at(low, channel[other], value[other])
        np.maximum.at(high, channel[other], value[other])
    found: dict[float, list[str]] = {}
    for i, end in suspects.items():
        away = low[i] - end if end < low[i] else end - high[i]
        if low[i] < high[i] and away > high[i] - low[i]:
            found.setdefault(end, []).append(f"{channels[i].name} is {end:g} or from {low[i]:g} to {high[i]:g}")
    return [
        f"{_kinds(len(said))} {'; '.join(said[:_EXAMPLES])}{'; …' if len(said) > _EXAMPLES else ''}: "
        f"does {end:g} mean missing?"
        for end, said in found.items()
    ]


def _kinds(count: int) -> str:
    return "channel" if count == 1 else f"{count} channels:"


def look_alikes(data: IrregularDataset) -> list[str]:
    """Names that may mean the same, and static columns with a category for nearly every series."""
    notes = []
    named = {"channels": data.channels, "ids": data.ids, "classes": data.class_names or ()}
    named |= {f"categories of {column.name}": column.categories or () for column in data.schema.static}
    for what, names in named.items():
        pairs = _alike(names)
        if pairs:
            one, other = pairs[0]
            more = f" (and {counted(len(pairs) - 1, 'further pair', 'further pairs')})" if pairs[1:] else ""
            notes.append(f"{what} {one!a} and {other!a}{more} differ only in spelling: do they mean the same?")
    for column in data.schema.static:
        found = len(column.categories or ())
        if found >= 2 * _CONVINCING and found > _CROWDED * len(data):
            notes.append(f"static column {column.name} has {found} categories for {len(data)} series: is it a name?")
    return notes


def _alike(names: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Names that equal an earlier one except for capitals, separators, invisible characters or the form of a letter or
    digit, each with that one.
    """
    seen: dict[str, Any] = {}
    pairs = []
    for name in names:
        first = seen.setdefault(_plain(str(name)), name)
        if first is not name:
            pairs.append((first, name))
    return pairs


def _plain(name: str) -> str:
    name = "".join(letter for letter in unicodedata.normalize("NFKC", name) if unicodedata.category(letter) != "Cf")
    for number in (int, float):
        try:
            found = number(name)
        except ValueError:
            continue
        return str(int(found)) if found == found // 1 else str(found)
    return _MARKS.sub(" ", name.casefold()).strip()


def counted(count: int, one: str, many: str) -> str:
    """A number with its noun, in singular or plural."""
    return f"{count} {one if count == 1 else many}"


def some(names: list[str]) -> str:
    """The first few names."""
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
