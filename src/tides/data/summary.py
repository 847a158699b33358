"""What is in a data set: series, lengths, gaps, missing entries, labels."""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tides.data.dataset import IrregularDataset
from tides.data.summary_notes import (
    codes_for_missing,
    counted,
    look_alikes,
    since_1970,
    some,
    still_channels,
    two_levels,
)

_QUANTILES = {"min": 0.0, "5%": 0.05, "median": 0.5, "95%": 0.95, "max": 1.0}


@dataclass(frozen=True)
class ChannelSummary:
    """One channel over all series; `missing` is the share of steps at which it was not observed."""

    name: str
    observed: int
    missing: float
    mean: float | None
    std: float | None
    min: float | None
    max: float | None


@dataclass(frozen=True)
class Summary:
    """Plain numbers about a data set; `notes` are warnings to read before training."""

    series: int
    steps: int
    unit: str | None
    origin: str | None
    lengths: dict[str, float]
    durations: dict[str, float]
    gaps: dict[str, float]
    channels: tuple[ChannelSummary, ...]
    missing: float
    labels: dict[str, Any] | None
    groups: int | None
    static: tuple[str, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def describe(data: IrregularDataset) -> Summary:
    """Count and measure a data set. Series are read one at a time."""
    times = [data.times(i) for i in range(len(data))]
    lengths = np.array([len(one) for one in times])
    gaps = np.concatenate([np.diff(one) for one in times]) if times else np.empty(0)
    durations = np.array([one[-1] - one[0] for one in times if len(one)])
    steps = int(lengths.sum())
    channels = _channels(data, steps)
    entries = sum(channel.observed for channel in channels)
    cells = steps * len(channels)
    labels = _labels(data)
    groups = data.groups
    return Summary(
        series=len(data),
        steps=steps,
        unit=data.unit,
        origin=data.schema.origin or (str(data.schema.offset) if data.schema.offset else None),
        lengths=_quantiles(lengths),
        durations=_quantiles(durations),
        gaps=_quantiles(gaps),
        channels=channels,
        missing=1.0 - entries / cells if cells else 0.0,
        labels=labels,
        groups=None if groups is None else len(set(groups)),
        static=data.static_names,
        notes=(
            *_notes(lengths, gaps, channels, labels),
            *since_1970(data, times),
            *codes_for_missing(data, channels),
            *still_channels(data, channels),
            *two_levels(data, channels),
            *look_alikes(data),
        ),
    )


def _quantiles(numbers: NDArray[Any]) -> dict[str, float]:
    if len(numbers) == 0:
        return {}
    return {name: float(np.quantile(numbers, q)) for name, q in _QUANTILES.items()}


def _channels(data: IrregularDataset, steps: int) -> tuple[ChannelSummary, ...]:
    c = len(data.channels)
    count, total = np.zeros(c, np.int64), np.zeros(c)
    low, high = np.full(c, np.inf), np.full(c, -np.inf)
    for channel, value in data.entries():
        count += np.bincount(channel, minlength=c)
        total += np.bincount(channel, value, minlength=c)
        np.minimum.at(low, channel, value)
        np.maximum.at(high, channel, value)
    mean = total / np.maximum(count, 1)
    square = np.zeros(c)
    for channel, value in data.entries():
        square += np.bincount(channel, (value - mean[channel]) ** 2, minlength=c)
    std = np.sqrt(square / np.maximum(count, 1))
    return tuple(
        ChannelSummary(
            name=name,
            observed=int(count[i]),
            missing=1.0 - float(count[i]) / steps if steps else 0.0,
            mean=float(mean[i]) if count[i] else None,
            std=float(std[i]) if count[i] else None,
            min=float(low[i]) if count[i] else None,
            max=float(high[i]) if count[i] else None,
        )
        for i, name in enumerate(data.channels)
    )


def _labels(data: IrregularDataset) -> dict[str, Any] | None:
    labels = data.labels
    if labels is None:
        return None
    if data.class_names is None or labels.dtype != np.int64:
        return {"kind": "number", "quantiles": _quantiles(labels[:, 0] if labels.ndim == 2 else labels)}
    counted = Counter(labels.tolist())
    return {"kind": "class", "counts": {name: counted.get(i, 0) for i, name in enumerate(data.class_names)}}


def _notes(
    lengths: NDArray[Any], gaps: NDArray[Any], channels: tuple[ChannelSummary, ...], labels: dict[str, Any] | None
) -> tuple[str, ...]:
    notes = []
    single = int((lengths <= 1).sum())
    if single:
        notes.append(f"{single} series {'has' if single == 1 else 'have'} a single time step: no gap")
    ties = int((gaps == 0).sum())
    if ties:
        notes.append(f"{counted(ties, 'gap is', 'gaps are')} 0: several steps at one time")
    positive = gaps[gaps > 0]
    if len(positive) and np.ptp(positive) <= 1e-9 * positive.max():
        notes.append("all gaps are equal: this data is regularly sampled")
    never = [channel.name for channel in channels if channel.observed == 0]
    if never:
        notes.append(f"{counted(len(never), 'channel was', 'channels were')} never observed: {some(never)}")
    flat = [one.name for one in channels if one.observed > 1 and one.min == one.max and not _is_event(one)]
    if flat:
        notes.append(f"{counted(len(flat), 'channel is', 'channels are')} constant: {some(flat)}")
    if labels is not None and labels["kind"] == "class":
        counts = labels["counts"]
        rare = [name for name, count in counts.items() if count < 10]
        if rare:
            what = counted(len(rare), "class has", "classes have")
            notes.append(f"{what} fewer than 10 series: {some(rare)}")
    return tuple(notes)


def _is_event(channel: ChannelSummary) -> bool:
    """Whether a channel is always one: only its times carry information."""
    return channel.min == channel.max == 1 and channel.missing > 0
