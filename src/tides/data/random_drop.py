"""Random drop: hide time steps, keep the clock. The rest of a series stays at its original timestamps."""

import zlib
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from tides.data.counts import require_whole
from tides.data.dataset import IrregularDataset
from tides.data.series import IrregularSeries
from tides.errors import ConfigError, DataError

Masks = Literal["fresh", "per-series", "one"]


@dataclass(frozen=True)
class RandomDrop:
    """Drops a share `rate` of the steps, chosen uniformly without replacement; at least one step stays.

    `masks` says when a new choice is made:

    - "fresh": at every access, from torch's global generator (seeded per worker and epoch by a DataLoader);
    - "per-series": once per series, from `seed` and the series' id: for evaluation;
    - "one": once per `seed` and length, the same steps for every series.

    `apply(dataset, first_channel=True)` also keeps the first channel only. In SelfRegulationSCP1, SelfRegulationSCP2
    and MotorImagery the other channels are copies of that channel, shifted in time: a step dropped from one of them is
    still there in another, so otherwise nothing would be hidden.
    """

    rate: float
    masks: Masks = "fresh"
    seed: int = 0

    def __post_init__(self) -> None:
        _check_rate(self.rate)
        if self.masks not in ("fresh", "per-series", "one"):
            raise ConfigError(f"masks={self.masks!r}; wanted 'fresh', 'per-series' or 'one'")
        require_whole("seed", self.seed, 0)

    def __call__(self, series: IrregularSeries) -> IrregularSeries:
        """The series without the dropped steps."""
        if self.masks == "per-series" and series.id is None:
            raise DataError("masks='per-series' tells series apart by their id, and a series has none")
        kept = self.kept_steps(len(series), series.id)
        return series.replace(values=series.values[kept], times=series.times[kept], observed=series.observed[kept])

    def apply(self, dataset: IrregularDataset, *, first_channel: bool = False) -> IrregularDataset:
        """The data set seen through this transform."""
        return (keep_first_channel(dataset) if first_channel else dataset).map(self)

    def kept_steps(self, length: int, key: object = None) -> NDArray[np.int64]:
        """Indices of the steps that stay, in order; `key` tells series apart when masks are fixed per series."""
        if self.masks == "fresh":
            return kept_steps(1, length, self.rate)[0].numpy()
        # numpy's numbers print otherwise than the plain ones that they equal.
        key = key.item() if isinstance(key, np.generic) else key
        words = [self.seed, zlib.crc32(repr(key).encode())] if self.masks == "per-series" else [self.seed]
        chosen = np.random.default_rng(words).permutation(length)[: _count(length, self.rate)]
        return np.sort(chosen).astype(np.int64)


def kept_steps(
    batch: int,
    length: int,
    rate: float,
    *,
    generator: torch.Generator | None = None,
    device: torch.device | str = "cpu",
) -> Int[Tensor, "b k"]:
    """For each of `batch` sequences the steps that stay, drawn anew; on a GPU without leaving it."""
    _check_rate(rate)
    scores = torch.rand(batch, length, generator=generator, device=device)
    return scores.topk(_count(length, rate), dim=1).indices.sort(dim=1).values


def drop_steps(
    values: Float[Tensor, "b l c"], times: Float[Tensor, "b l"], kept: Int[Tensor, "b k"]
) -> tuple[Float[Tensor, "b k c"], Float[Tensor, "b k"]]:
    """Values and original timestamps of the steps that stay."""
    rows = kept[..., None].expand(-1, -1, values.shape[-1])
    return values.gather(1, rows), times.gather(1, kept)


def keep_first_channel(dataset: IrregularDataset) -> IrregularDataset:
    """The same series, and what they are asked, with their first channel only."""
    fields = ("values", "observed", "target", "target_observed")
    narrow = []
    for series in dataset:
        found = {field: getattr(series, field) for field in fields}
        narrow.append(series.replace(**{field: x[:, :1] for field, x in found.items() if x is not None}))
    return IrregularDataset(narrow, schema=replace(dataset.schema, channels=dataset.channels[:1]))


def _check_rate(rate: Any) -> None:
    if not isinstance(rate, Real) or not 0.0 <= float(rate) < 1.0:
        raise ConfigError(f"rate={rate!r}; wanted a share from 0 up to, but not including, 1")


def _count(length: int, rate: float) -> int:
    return min(length, max(1, length - round(rate * length)))
