"""Standard scores: statistics of the observed training entries, applied to every other data set."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tides.data.dataset import IrregularDataset
from tides.data.series import IrregularSeries
from tides.errors import DataError


@dataclass(frozen=True, eq=False)
class Scaling:
    """x ↦ (x − mean) / std per channel, and the same for numeric static features.

    `Scaling.fit(train)` counts observed entries only; a channel that never varies, or was never observed, gets std 1.
    Forecast targets are scaled with their channels; labels are unchanged.
    """

    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    static_mean: NDArray[np.float64]
    static_std: NDArray[np.float64]
    channels: tuple[str, ...]

    @classmethod
    def fit(cls, train: IrregularDataset) -> "Scaling":
        c = len(train.channels)
        count, total = np.zeros(c), np.zeros(c)
        for channel, value in train.entries():
            count += np.bincount(channel, minlength=c)
            total += np.bincount(channel, value, minlength=c)
        unseen = [name for name, seen in zip(train.channels, count, strict=True) if not seen]
        if unseen:
            warnings.warn(
                f"channel {unseen[0]!r} is never observed in the training data: a model's answers to later values of "
                "it are arbitrary; leave the channel out",
                stacklevel=2,
            )
        mean = total / np.maximum(count, 1)
        # A second pass about the mean: the textbook sum of squares cancels where the mean is large.
        square = np.zeros(c)
        for channel, value in train.entries():
            square += np.bincount(channel, (value - mean[channel]) ** 2, minlength=c)
        std = np.sqrt(square / np.maximum(count, 1))
        for name, moment in zip(train.channels, mean + std, strict=True):
            if not np.isfinite(moment):
                raise DataError(f"channel {name!r}: its values are too large for a mean and a spread")
        static_mean, static_std = _static_moments(train)
        return cls(mean, _safe(std, mean), static_mean, static_std, train.channels)

    def apply(self, data: IrregularDataset) -> IrregularDataset:
        """`data` in standard scores, computed at each access."""
        if data.channels != self.channels:
            raise DataError(f"scaling is for channels {list(self.channels)}; found {list(data.channels)}")
        return data.map(self.apply_series)

    def apply_series(self, series: IrregularSeries) -> IrregularSeries:
        """One series in standard scores; float32 values stay float32."""
        changes: dict[str, Any] = {"values": self.scale(series.values)}
        if series.static is not None and len(self.static_mean):
            changes["static"] = (series.static - self.static_mean) / self.static_std
        if series.target is not None:
            if series.target.shape[1] != len(self.mean):
                raise DataError(
                    f"series {series.id!r}: {series.target.shape[1]} target channels; scaling knows {len(self.mean)}"
                )
            changes["target"] = self.scale(series.target)
        return series.replace(**changes)

    def scale(self, values: ArrayLike) -> NDArray[np.floating[Any]]:
        """Values (…, c) to standard scores."""
        array = np.asarray(values)
        return ((array - self.mean) / self.std).astype(array.dtype, copy=False)

    def invert(self, scores: ArrayLike) -> NDArray[np.floating[Any]]:
        """Standard scores (…, c) back to values."""
        array = np.asarray(scores)
        return (array * self.std + self.mean).astype(array.dtype, copy=False)

    def to_dict(self) -> dict[str, list[float] | list[str]]:
        """Plain JSON; float64 survives the round trip."""
        return {
            "channels": list(self.channels),
            "mean": self.mean.tolist(),
            "std": self.std.tolist(),
            "static_mean": self.static_mean.tolist(),
            "static_std": self.static_std.tolist(),
        }

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> "Scaling":
        try:
            arrays = [_vector(plain[name]) for name in ("mean", "std", "static_mean", "static_std")]
            return cls(arrays[0], arrays[1], arrays[2], arrays[3], tuple(plain["channels"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"not a scaling: {error!r}") from None


def _vector(numbers: Sequence[float]) -> NDArray[np.float64]:
    return np.asarray(numbers, np.float64)


def _safe(std: NDArray[np.float64], mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 where a channel is constant up to rounding: dividing by rounding errors would make noise look like signal."""
    constant = std <= 1e-12 * np.abs(mean)
    return np.where(constant | (std == 0), 1.0, std)


def _static_moments(train: IrregularDataset) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and std of numeric static columns; 0 and 1 for encoded categories, which stay as they are."""
    names, static = train.static_names, train.static
    if static is None:
        return np.zeros(0), np.ones(0)
    mean, std = np.zeros(static.shape[1]), np.ones(static.shape[1])
    numeric = [column.numeric for column in train.schema.static for _ in column.feature_names]
    numeric = numeric if names else [True] * static.shape[1]
    for i, is_numeric in enumerate(numeric):
        known = static[~np.isnan(static[:, i]), i]
        if is_numeric and len(known):
            mean[i] = known.mean()
            std[i] = _safe(known.std()[None], mean[i][None])[0]
    return mean, std
