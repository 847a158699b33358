"""Weights of series: how much each counts relative to the others."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tides.data.dataset import IrregularDataset
from tides.data.series import unmasked
from tides.errors import DataError
from tides.estimators.inputs import is_table
from tides.estimators.labels import in_order_of, is_missing

Weights = NDArray[np.float64]


def sample_weights(given: Any, data: IrregularDataset, X: Any, id: str | None) -> Weights:
    """`sample_weight` (n,), matched to the series of X as `y` is; 1 for the largest."""
    if is_table(X) and id is not None:
        given = in_order_of(data.ids, given, X, id, name="sample_weight")
    weights = _numbers(given)
    if weights is None:
        raise DataError(f"sample_weight: found other things than numbers, wanted one for each of {len(data)} series")
    if weights.shape != (len(data),):
        raise DataError(f"sample_weight: found shape {weights.shape}, wanted one weight for each of {len(data)} series")
    odd = np.flatnonzero(~((weights >= 0) & (weights < np.inf)))
    if len(odd):
        place = int(odd[0])
        raise DataError(f"sample_weight: series {data.ids[place]!r} has {weights[place]}, wanted a finite number ≥ 0")
    return _relative(weights, "sample_weight")


def _numbers(given: Any) -> Weights | None:
    """As float64, with NaN for missing values; None if something is not a number."""
    try:
        plain = unmasked(given)
        if plain.dtype == object:
            plain = np.array([np.nan if is_missing(one) else one for one in plain.flat]).reshape(plain.shape)
        return plain.astype(np.float64) if plain.dtype.kind in "biuf" else None
    except (TypeError, ValueError):
        return None


def own_weights(data: IrregularDataset) -> Weights | None:
    """The weights that the series have themselves, if any; 1 for the largest."""
    weights = data.weights
    return None if weights is None else _relative(weights, "weight")


def counted(data: IrregularDataset) -> IrregularDataset:
    """The series that count, with these weights."""
    weights = own_weights(data)
    if weights is None:
        return data
    rows = np.flatnonzero(weights)
    series = [one.replace(weight=weight) for one, weight in zip(data[rows], weights[rows].tolist(), strict=True)]
    return IrregularDataset(series, schema=data.schema)


def _relative(weights: Weights, name: str) -> Weights:
    """Weights divided by the largest: only ratios count, and these overflow in no precision."""
    largest = weights.max()
    if largest == 0:
        raise DataError(f"{name}: every weight is zero, wanted some above zero")
    ratios: Weights = weights / largest
    return ratios
