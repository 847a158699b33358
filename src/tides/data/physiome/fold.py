"""One fold of a Physiome-ODE task as dense tensors: what was seen, and what is asked."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, overload

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from tides.data.batch import IrregularBatch
from tides.data.dataset import IrregularDataset
from tides.data.series import IrregularSeries

# Times are fractions of the whole interval, whatever the unit of the system.
UNIT = "interval"


@dataclass(frozen=True, eq=False)
class Window:
    """Rows of observations of n instances, padded at the end."""

    values: Float[Tensor, "n l c"]
    """Zero where nothing was observed."""
    times: Float64[Tensor, "n l"]
    """Fractions of the whole interval; padding repeats the last time."""
    observed: Bool[Tensor, "n l c"]
    valid: Bool[Tensor, "n l"]
    """False on padding."""

    def __getitem__(self, index: Any) -> "Window":
        return Window(*(getattr(self, f.name)[index] for f in fields(self)))

    def to(self, device: torch.device | str) -> "Window":
        """The same window on another device."""
        return Window(*(getattr(self, f.name).to(device) for f in fields(self)))

    @property
    def lengths(self) -> Tensor:
        """Number of rows of each instance, (n,)."""
        return self.valid.sum(dim=1)


@dataclass(frozen=True, eq=False)
class Part:
    """Training, validation or test instances of a fold, held as tensors so that a batch is a single indexing.

    `part[3]` is a series, `part[:8]` or `part[index]` a smaller part; `part.batch(index)` is ready for a model.
    """

    inputs: Window
    targets: Window
    channels: tuple[str, ...]

    def __len__(self) -> int:
        return self.inputs.values.shape[0]

    @overload
    def __getitem__(self, index: int) -> IrregularSeries: ...
    @overload
    def __getitem__(self, index: slice | Tensor | list[int]) -> "Part": ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, (int, np.integer)):
            return self._series(range(len(self))[int(index)])
        return Part(self.inputs[index], self.targets[index], self.channels)

    def __iter__(self) -> Iterator[IrregularSeries]:
        return (self._series(i) for i in range(len(self)))

    def to(self, device: torch.device | str) -> "Part":
        """The same instances on another device; a whole part is some tens of megabytes at most."""
        return Part(self.inputs.to(device), self.targets.to(device), self.channels)

    def median_gap(self) -> float:
        """Median of the gaps above zero between inputs of one instance."""
        gaps = self.inputs.times.diff(dim=1)
        positive = gaps[gaps > 0]
        return float(positive.median()) if len(positive) else 1.0

    def batch(self, index: Any = slice(None), *, first_gap: float | None = None) -> IrregularBatch:
        """Some instances as one batch on the part's device, trimmed to the longest among them.

        `first_gap` is the gap before the first observation; None takes the median gap of the whole part (to validate
        and test a model, pass that of the training part).
        """
        seen, asked = _trim(self.inputs[index]), _trim(self.targets[index])
        first = torch.full_like(seen.times[:, :1], self.median_gap() if first_gap is None else first_gap)
        return IrregularBatch(
            values=seen.values,
            times=seen.times,
            gaps=torch.cat([first, seen.times.diff(dim=1)], dim=1).to(seen.values.dtype),
            observed=seen.observed,
            valid=seen.valid,
            targets=asked.values,
            target_observed=asked.observed,
            query_times=asked.times,
            query_valid=asked.valid,
        )

    def to_dataset(self) -> IrregularDataset:
        """The same instances as a data set of irregular series, each with its forecast question."""
        return IrregularDataset(list(self), channels=self.channels, unit=UNIT)

    def _series(self, i: int) -> IrregularSeries:
        seen, asked = int(self.inputs.valid[i].sum()), int(self.targets.valid[i].sum())
        return IrregularSeries(
            values=self.inputs.values[i, :seen].numpy(force=True),
            times=self.inputs.times[i, :seen].numpy(force=True),
            observed=self.inputs.observed[i, :seen].numpy(force=True),
            query_times=self.targets.times[i, :asked].numpy(force=True),
            target=self.targets.values[i, :asked].numpy(force=True),
            target_observed=self.targets.observed[i, :asked].numpy(force=True),
            id=i,
        )


@dataclass(frozen=True, eq=False)
class Fold:
    """A system's instances, split into training, validation and test."""

    name: str
    fold: int
    source: str
    """Where the instances come from: "trajectories" or "archive"."""
    parity: bool
    """Whether only time steps with an odd number of observed channels were kept."""
    target_channels: tuple[int, ...]
    """Channels that are asked for; the others have no observed targets."""
    train: Part
    val: Part
    test: Part

    def to(self, device: torch.device | str) -> "Fold":
        """The same fold on another device."""
        parts = (part.to(device) for part in (self.train, self.val, self.test))
        return Fold(self.name, self.fold, self.source, self.parity, self.target_channels, *parts)


def _trim(window: Window) -> Window:
    longest = int(window.lengths.max()) if len(window.valid) else 0
    return window[:, :longest]
