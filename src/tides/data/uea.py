"""Data sets of the UEA archive as irregular series, from an offline folder or through aeon.

A file is `<name>.npz` with X_train, y_train, X_test, y_test: values (cases, channels, length), labels as strings.
Series of unequal length lie end to end, (channels, steps), beside lengths_train and lengths_test.
"""

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tides.atomic import atomic_write
from tides.data import cache
from tides.data.attributes import class_name
from tides.data.dataset import IrregularDataset
from tides.data.npz import read_npz
from tides.data.schema import Schema
from tides.data.store import DenseCells, FlatStore
from tides.data.walker import WALKER_SEEDS, walker_permutation
from tides.errors import DataError

UNIT = "sample"


class UEAFacts(NamedTuple):
    """A data set of the paper; `unique` counts the cases without exact duplicates."""

    short: str
    name: str
    cases: int
    unique: int
    channels: int
    length: int
    classes: int


PAPER_DATASETS = (
    UEAFacts("EW", "EigenWorms", 259, 236, 6, 17984, 5),
    UEAFacts("SCP1", "SelfRegulationSCP1", 561, 561, 6, 896, 2),
    UEAFacts("SCP2", "SelfRegulationSCP2", 380, 380, 7, 1152, 2),
    UEAFacts("ETC", "EthanolConcentration", 524, 524, 3, 1751, 4),
    UEAFacts("HB", "Heartbeat", 409, 409, 61, 405, 2),
    UEAFacts("MI", "MotorImagery", 378, 378, 64, 3000, 2),
)


class UEADataset(IrregularDataset):
    """All available cases, the official training cases first; times count samples.

    `name` is the archive's name and `train_size` the number of official training cases. `missing` says in words what a
    file lacks (None: nothing). `positions` gives the place of each case among all `total` cases in the Walker order, if
    a partial file contains it.
    """

    def __init__(
        self,
        store: FlatStore,
        schema: Schema,
        name: str,
        train_size: int | None,
        missing: str | None = None,
        positions: NDArray[np.int64] | None = None,
        total: int | None = None,
    ) -> None:
        super().__init__(store, schema=schema)
        self.name = name
        self.train_size = train_size
        self.missing = missing
        self.positions = positions
        self.total = len(store) if total is None else total

    def __repr__(self) -> str:
        lacking = f", incomplete: {self.missing}" if self.missing else ""
        return f"UEADataset({self.name}, {len(self)} cases, {len(self.channels)} channels{lacking})"


def archive_name(name: str) -> str:
    """The archive's name of a data set, given that or the paper's abbreviation, in any case of letters."""
    for facts in PAPER_DATASETS:
        if name.lower() in (facts.short.lower(), facts.name.lower()):
            return facts.name
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise DataError(f"name={name!r}; wanted the name of a data set, such as SelfRegulationSCP1 or SCP1")
    return name


def load_uea(name: str, root: str | Path | None = None) -> UEADataset:
    """A data set of the UEA archive by its name, or by the paper's abbreviation (EW SCP1 SCP2 ETC HB MI).

    Looks for `<name>.npz` in `root` (None: the data folder of this machine), then for a file marked as incomplete
    (`<name>_TRAIN_only.npz`, `<name>_partial.npz`). Otherwise it downloads through aeon and keeps the result as
    `<name>.npz`. An incomplete data set says so in `missing`; protocols that need the rest raise an error.
    """
    name = archive_name(name)
    folder = cache.data_root(root, "uea")
    for suffix in ("", "_TRAIN_only", "_partial"):
        path = folder / f"{name}{suffix}.npz"
        if path.is_file():
            return read_uea(path, name)
    return read_uea(fetch_uea(name, folder), name)


def read_uea(path: Path, name: str) -> UEADataset:
    """Read one file; what it holds decides whether it counts as complete."""
    arrays = read_npz(path, "an npz file of plain arrays")
    if {"X_train", "y_train", "X_test", "y_test"} <= arrays.keys():
        cases, labels = _cases(arrays, "_train", path)
        rest, rest_labels = _cases(arrays, "_test", path)
        return _dataset(name, cases + rest, labels + rest_labels, len(cases))
    if {"X_train", "y_train"} <= arrays.keys():
        cases, labels = _cases(arrays, "_train", path)
        return _dataset(name, cases, labels, len(cases), missing="the official test cases")
    if {"X", "y"} <= arrays.keys():
        return _read_partial(arrays, path, name)
    raise DataError(f"{path} holds {sorted(arrays)}; wanted X_train, y_train, X_test, y_test")


def fetch_uea(name: str, folder: Path) -> Path:
    """Download through aeon and keep plain arrays; returns the file written."""
    path = folder / f"{name}.npz"
    try:
        from aeon.datasets import load_classification
    except ImportError:
        raise DataError(
            f'no {name}.npz in {folder}; put it there, or `pip install "tides-ssm[uea]"` to download it through aeon'
        ) from None
    with cache.lock(path):
        if path.is_file():
            return path
        arrays: dict[str, NDArray[Any]] = {}
        with tempfile.TemporaryDirectory() as scratch:
            for part in ("train", "test"):
                try:
                    x, y = load_classification(name, split=part, extract_path=scratch)
                except Exception as error:  # aeon passes on whatever the network or its parser raises
                    reason = " ".join(str(error).split())
                    raise DataError(
                        f"aeon could not get {name} ({type(error).__name__}: {reason}); go online, or put {name}.npz"
                        f" (X_train, y_train, X_test, y_test) into {folder}"
                    ) from error
                arrays |= _plain(x, y, part)
        with atomic_write(path) as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return path


def stack(dataset: IrregularDataset) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Values (cases, length, channels) and labels of a data set whose series all have one length."""
    lengths = np.unique(dataset.lengths)
    if len(lengths) != 1 or dataset.labels is None:
        raise DataError(f"stack needs labelled series of one length; these have lengths {lengths.tolist()}")
    return np.stack([series.values for series in dataset]).astype(np.float32), dataset.labels


def make_store(cases: Sequence[NDArray[Any]], labels: NDArray[np.int64], ids: NDArray[np.int64]) -> FlatStore:
    """Cases (length, channels) end to end, each on the clock 0, 1, 2, …"""
    bounds = np.concatenate([[0], np.cumsum([len(case) for case in cases])]).astype(np.int64)
    clock = np.arange(bounds[-1]) - np.repeat(bounds[:-1], np.diff(bounds))
    return FlatStore(bounds, clock.astype(np.float64), DenseCells(np.concatenate(cases)), ids, labels)


def _cases(arrays: dict[str, NDArray[Any]], part: str, path: Path) -> tuple[list[NDArray[np.float32]], list[str]]:
    """Cases (length, channels) and the names of their classes, from the arrays whose names end in `part`."""
    x, lengths = arrays[f"X{part}"], arrays.get(f"lengths{part}")
    if x.dtype.kind not in "fiub":
        raise DataError(f"{path}: X{part} holds {x.dtype}; wanted numbers")
    if lengths is not None:
        whole = lengths.dtype.kind in "iu" and lengths.ndim == 1
        if x.ndim != 2 or not whole or (lengths < 1).any() or lengths.sum() != x.shape[1]:
            raise DataError(
                f"{path}: lengths{part} begin with {lengths.ravel()[:4].tolist()} and add up to {lengths.sum()}, "
                f"beside X{part} of shape {x.shape}; wanted one whole number ≥ 1 for each case, and (channels, all "
                "steps)"
            )
        bounds = np.cumsum(lengths)[:-1]
        cases = [case.T.astype(np.float32) for case in np.split(x, bounds, axis=1)]
    elif x.ndim == 3 and x.shape[2] > 0:
        cases = list(np.ascontiguousarray(x.transpose(0, 2, 1), dtype=np.float32))
    else:
        raise DataError(f"{path}: X{part} has shape {x.shape}; wanted (cases, channels, length)")
    return cases, _labels(arrays[f"y{part}"], len(cases), part, path)


def _labels(y: NDArray[Any], cases: int, part: str, path: Path) -> list[str]:
    """Names of classes; a whole number has the same one as an integer and as a floating-point number."""
    if y.ndim != 1 or y.dtype.kind not in "USfiub":
        raise DataError(f"{path}: y{part} is {y.dtype} {y.shape}; wanted one label for each case, text or a number")
    if len(y) != cases:
        raise DataError(f"{path}: {cases} cases in X{part} but {len(y)} labels")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        row = int(np.argmin(np.isfinite(y)))
        raise DataError(f"{path}: label {row} in y{part} is {y[row]}; wanted a class")
    return [class_name(label) for label in (y.astype(str) if y.dtype.kind == "S" else y).tolist()]


def _read_partial(arrays: dict[str, NDArray[Any]], path: Path, name: str) -> UEADataset:
    """Cases without the official split. Where they belong in the Walker order follows from the rows that each
    seed's validation and test sets occupy in the file (idx_val_<seed>, idx_test_<seed>)."""
    cases, labels = _cases(arrays, "", path)
    known = next((facts for facts in PAPER_DATASETS if facts.name == name), None)
    if known is None:
        return _dataset(name, cases, labels, None, missing="an unknown number of cases")
    positions = np.full(len(cases), -1, dtype=np.int64)
    for seed in WALKER_SEEDS:
        held_out = walker_permutation(seed, known.unique)[int(0.7 * known.unique) :]
        keys = [f"idx_{part}_{seed}" for part in ("val", "test")]
        if not arrays.keys() >= set(keys):
            continue
        place = np.concatenate([arrays[key].ravel() for key in keys])
        if len(place) != len(held_out):
            raise DataError(f"{path}: {len(place)} held-out rows for seed {seed}; wanted {len(held_out)}")
        if place.dtype.kind not in "iu" or not ((place >= 0) & (place < len(cases))).all():
            raise DataError(f"{path}: {keys[0]}, {keys[1]} do not point into the {len(cases)} cases of the file")
        clash = (positions[place] >= 0) & (positions[place] != held_out)
        if clash.any():
            raise DataError(f"{path}: row {place[clash][0]} has two places in the Walker order; seed {seed} disagrees")
        positions[place] = held_out
    return _dataset(
        name,
        cases,
        labels,
        None,
        missing=f"{known.unique - len(cases)} of {known.unique} cases and the official split",
        positions=positions if (positions >= 0).all() else None,
        total=known.unique,
    )


def _dataset(
    name: str, cases: list[NDArray[np.float32]], labels: list[str], train_size: int | None, **rest: Any
) -> UEADataset:
    widths = sorted({case.shape[1] for case in cases})
    if len(widths) != 1:
        raise DataError(f"{name}: found cases with {widths} channels; wanted one number for all, and at least one case")
    classes, index = np.unique(labels, return_inverse=True)
    store = make_store(cases, index.astype(np.int64), np.arange(len(cases)))
    channels = tuple(f"channel_{c}" for c in range(cases[0].shape[1]))
    schema = Schema(channels, UNIT, class_names=tuple(str(c) for c in classes))
    return UEADataset(store, schema, name, train_size, **rest)


def _plain(x: Any, y: Any, part: str) -> dict[str, NDArray[Any]]:
    """What aeon returns, as arrays that need no pickle: series of unequal length are laid end to end."""
    arrays: dict[str, NDArray[Any]] = {f"y_{part}": np.asarray(y).astype(str)}
    if isinstance(x, np.ndarray):
        arrays[f"X_{part}"] = x.astype(np.float32)
    else:
        arrays[f"X_{part}"] = np.concatenate(x, axis=1).astype(np.float32)
        arrays[f"lengths_{part}"] = np.array([case.shape[1] for case in x], dtype=np.int64)
    return arrays
