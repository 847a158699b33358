"""The two published ways to split a UEA data set into training, validation and test cases."""

import math
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from tides.data.dataset import IrregularDataset
from tides.data.scaling import Scaling
from tides.data.uea import UEADataset, make_store
from tides.data.walker import WALKER_SEEDS, walker_permutation
from tides.errors import ConfigError, DataError

RFORMER_SEEDS = (42, 43, 44, 45, 46)
PROTOCOL_SEEDS = {"walker": WALKER_SEEDS, "rformer": RFORMER_SEEDS}

# Both generators, JAX's and that of scikit-learn, take seeds of 32 bits.
_SEEDS = 2**32
_Rows = NDArray[np.int64]
_ORDERS: WeakKeyDictionary[UEADataset, NDArray[np.int64]] = WeakKeyDictionary()


def uea_split(
    dataset: UEADataset,
    protocol: Literal["walker", "rformer"] = "walker",
    seed: int = 2345,
    *,
    scaling: Literal["zscore", "raw"] = "zscore",
    allow_partial: bool = False,
) -> tuple[IrregularDataset, IrregularDataset, IrregularDataset]:
    """Training, validation and test cases (70/15/15); the ids of the series are rows of `dataset`.

    `walker`: official training and test cases together, duplicates removed, in the sorted order of `numpy.unique`,
    divided by a threefry permutation; published seeds 2345 3456 4567 5678 6789.

    `rformer`: the original order without duplicates, split by two calls of scikit-learn's `train_test_split` (70 % and
    30 %, then the rest in halves, test before validation); published seeds 42 to 46.

    `scaling="zscore"` uses the training cases' mean and standard deviation per channel, "raw" keeps the archive's
    values. `allow_partial` accepts a file that lacks some training cases; validation and test are always complete.
    """
    if scaling not in ("zscore", "raw"):
        raise ConfigError(f"scaling={scaling!r}; wanted 'zscore' or 'raw'")
    parts = uea_rows(dataset, protocol, seed, allow_partial=allow_partial)
    scores = Scaling.fit(dataset[parts[0]]) if scaling == "zscore" else None
    train, val, test = (_take(dataset, rows, scores) for rows in parts)
    return train, val, test


def uea_rows(
    dataset: UEADataset,
    protocol: Literal["walker", "rformer"] = "walker",
    seed: int = 2345,
    *,
    allow_partial: bool = False,
) -> tuple[_Rows, _Rows, _Rows]:
    """The rows of `dataset` that `uea_split` deals to training, validation and test."""
    if not isinstance(dataset, UEADataset):
        raise DataError(f"uea_split wants what load_uea returns; found {type(dataset).__name__}")
    _check_seed(seed)
    match protocol:
        case "walker":
            parts = _walker_rows(dataset, seed, allow_partial)
        case "rformer":
            if dataset.missing:
                raise DataError(f"{dataset.name}: the rformer protocol needs every case; missing: {dataset.missing}")
            parts = _rformer_rows(np.sort(sorted_unique_rows(dataset)), seed)
        case _:
            raise ConfigError(f"protocol={protocol!r}; wanted 'walker' or 'rformer'")
    sizes = [len(rows) for rows in parts]
    if not all(sizes):
        raise DataError(f"{dataset.name}: {sum(sizes)} distinct cases are too few for training, validation and test")
    return parts


def sorted_unique_rows(dataset: UEADataset) -> _Rows:
    """Rows in the order of `numpy.unique(values, axis=0)` over (cases, length, channels); of equal cases the first.

    Found once per data set, because every seed of both protocols starts from it.
    """
    if dataset not in _ORDERS:
        _ORDERS[dataset] = _sort_unique(dataset)
    return _ORDERS[dataset]


def _sort_unique(dataset: UEADataset) -> _Rows:
    lengths = np.unique(dataset.lengths)
    if len(lengths) != 1:
        raise DataError(f"{dataset.name}: both protocols need series of one length; found {lengths.tolist()}")
    keys = [_sort_key(series.values) for series in dataset]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return np.array([row for i, row in enumerate(order) if i == 0 or keys[row] != keys[order[i - 1]]], np.int64)


def _sort_key(values: NDArray[np.floating[Any]]) -> bytes:
    """Bytes that compare as the floats do: numpy would build a record type with one field per number instead."""
    # Adding zero turns −0 into +0, which compare as equal.
    bits = (values.astype(np.float32) + np.float32(0)).view(np.uint32)
    negative = bits >> np.uint32(31) == 1
    return np.where(negative, ~bits, bits | np.uint32(1 << 31)).astype(">u4").tobytes()


def _check_seed(seed: Any) -> None:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < _SEEDS:
        raise ConfigError(f"seed: found {seed!r}, wanted a whole number from 0 to {_SEEDS - 1}")


def _cuts(size: int) -> tuple[int, int]:
    return int(0.7 * size), int(0.85 * size)


def _walker_rows(dataset: UEADataset, seed: int, allow_partial: bool) -> tuple[_Rows, _Rows, _Rows]:
    if dataset.missing is None:
        order = sorted_unique_rows(dataset)
        dealt = order[walker_permutation(seed, len(order))]
        first, second = _cuts(len(order))
        return dealt[:first], dealt[first:second], dealt[second:]
    if dataset.positions is None:
        raise DataError(f"{dataset.name}: the walker protocol needs every case; missing: {dataset.missing}")

    row_of = np.full(dataset.total, -1, dtype=np.int64)
    row_of[dataset.positions] = np.arange(len(dataset.positions))
    dealt = row_of[walker_permutation(seed, dataset.total)]
    first, second = _cuts(dataset.total)
    train, val, test = dealt[:first], dealt[first:second], dealt[second:]
    for part, rows in (("validation", val), ("test", test)):
        if (rows < 0).any():
            raise DataError(
                f"{dataset.name}: {int((rows < 0).sum())} {part} cases of walker seed {seed} are not in the file"
            )
    if (train < 0).any() and not allow_partial:
        raise DataError(
            f"{dataset.name}: {int((train < 0).sum())} of {len(train)} training cases of walker seed {seed} are not in"
            " the file; allow_partial=True trains on the others"
        )
    return train[train >= 0], val, test


def _rformer_rows(order: _Rows, seed: int) -> tuple[_Rows, _Rows, _Rows]:
    train, rest = _shuffle_split(order, 0.3, seed)
    test, val = _shuffle_split(rest, 0.5, seed)
    return train, val, test


def _shuffle_split(rows: _Rows, share: float, seed: int) -> tuple[_Rows, _Rows]:
    """What `sklearn.model_selection.train_test_split(rows, test_size=share, random_state=seed)` returns."""
    shuffled = rows[np.random.RandomState(seed).permutation(len(rows))]
    held = math.ceil(share * len(rows))
    return shuffled[held:], shuffled[:held]


def _take(dataset: UEADataset, rows: _Rows, scaling: Scaling | None) -> IrregularDataset:
    cases = [dataset[int(row)].values for row in rows]
    scaled = [case if scaling is None else scaling.scale(case) for case in cases]
    labels = dataset.labels
    assert labels is not None  # a UEA file always has them
    return IrregularDataset(make_store(scaled, labels[rows], rows), schema=dataset.schema)
