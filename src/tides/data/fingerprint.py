"""A short text that tells two data sets apart by what is in them."""

import hashlib
import re
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tides.data.schema import Schema
from tides.data.series import IrregularSeries
from tides.data.store import MappedStore, SeriesStore


def fingerprint(store: SeriesStore, index: NDArray[np.int64], schema: Schema) -> str:
    """Equal if channels, unit and classes, the chosen series, their order and everything in them are equal.

    A transform may be random, so the series before it count, and of the transform the fields if it is a data class.
    """
    digest = hashlib.sha256(repr(schema).encode())
    while isinstance(store, MappedStore):
        owner = getattr(store.transform, "__self__", store.transform)
        # A memory address in a field's text, such as a generator's, differs between processes.
        said = re.sub(r" at 0x[0-9a-f]+", "", repr(owner)) if is_dataclass(owner) else "transform"
        digest.update(said.encode())
        store = store.source
    chosen, order = np.unique(index, return_inverse=True)
    digest.update(order.astype(np.int64).tobytes())
    for i in chosen:
        _add(digest, store.series(int(i)))
    return digest.hexdigest()[:16]


def _add(digest: Any, series: IrregularSeries) -> None:
    for field in fields(series):
        value = getattr(series, field.name)
        observed = {"values": series.observed, "target": series.target_observed}.get(field.name)
        if observed is not None:
            # Values that were not observed never count.
            value = np.where(observed, value, 0)
        if isinstance(value, np.ndarray) and value.dtype != np.object_:
            digest.update(f"{field.name} {value.dtype} {value.shape}".encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        else:
            digest.update(f"{field.name} {value!r}".encode())
