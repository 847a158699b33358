"""Folds of Physiome-ODE, of systems of your own and of embedded ones in the same form; a batch holds a whole part."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from tides.data import IrregularBatch, cache, collate, physiome, systems
from tides.data.physiome.archive import find_archive_fold
from tides.data.physiome.trajectories import find_trajectories, read_trajectories
from tides.errors import ConfigError

EMBEDDED = "embedded-"
_SPLIT = (0.7, 0.2, 0.1)
# Embedded systems are simulated on the spot; this many instances are a matter of seconds.
_EMBEDDED_INSTANCES = 600


class FoldParts(NamedTuple):
    """Everything of one fold, standardised, with times as fractions of the whole interval."""

    train: IrregularBatch
    val: IrregularBatch
    test: IrregularBatch


def names(datasets: Sequence[str]) -> list[str]:
    """The datasets that are meant, "all" being the fifty of the benchmark; one of your own is known by its file."""
    known = [*physiome.names(), *(EMBEDDED + name for name in systems.SYSTEMS)]
    chosen = [name for entry in datasets for name in (physiome.names() if entry == "all" else [entry])]
    for name in chosen:
        if name not in known and _own_file(name) is None:
            raise ConfigError(
                f"datasets: found {name!r}, wanted 'all', some of {', '.join(known)}, or the name of a file of "
                f"trajectories under {cache.data_root(None, 'physiome')}"
            )
    return list(dict.fromkeys(chosen))


def channels(dataset: str) -> int:
    """How many channels a dataset has."""
    if dataset.startswith(EMBEDDED):
        return len(systems.SYSTEMS[dataset.removeprefix(EMBEDDED)].channels)
    own = _own_file(dataset)
    return physiome.system(dataset).channels if own is None else read_trajectories(own).values.shape[-1]


def identity(dataset: str) -> dict[str, str]:
    """What the result of a cell depends on besides its dataset's name: the trajectories of a system of your own."""
    own = _own_file(dataset)
    return {} if own is None else {"trajectories": hashlib.sha256(own.read_bytes()).hexdigest()[:16]}


def _own_file(dataset: str) -> Path | None:
    """The trajectories of a system that does not belong to the benchmark."""
    if dataset in physiome.names() or dataset.startswith(EMBEDDED):
        return None
    return find_trajectories(dataset, cache.data_root(None, "physiome"))


def obstacle(dataset: str) -> str | None:
    """Why a dataset cannot be read on this machine, or None."""
    if dataset.startswith(EMBEDDED) or _own_file(dataset) is not None:
        return None
    folder = cache.data_root(None, "physiome")
    if find_trajectories(dataset, folder) or find_archive_fold(physiome.system(dataset).model, 0, folder):
        return None
    return f"no trajectories and no published fold under {folder}; see `tides data get physiome`"


@lru_cache(maxsize=1)
def load(dataset: str, folds: int, *, parity: bool, instances: int) -> list[FoldParts]:
    """Folds 0 … `folds` − 1; with `instances` only the first ones of every part.

    What was loaded last is kept for the next cell."""
    if dataset.startswith(EMBEDDED):
        name = dataset.removeprefix(EMBEDDED)
        return [_embedded(name, fold, instances or _EMBEDDED_INSTANCES) for fold in range(folds)]

    def one(fold: int) -> FoldParts:
        made = physiome.load_fold(dataset, fold, parity=parity)
        parts = (made.train, made.val, made.test)
        counts = part_sizes(instances) if instances else [len(part) for part in parts]
        return FoldParts(*(part.batch(slice(count)) for part, count in zip(parts, counts, strict=True)))

    with ThreadPoolExecutor(folds) as pool:
        return list(pool.map(one, range(folds)))


def training_gaps(part: IrregularBatch) -> Tensor:
    """All gaps between observations of one series, for a model's time scale."""
    return part.times.diff(dim=1)[part.valid[:, 1:]]


def part_sizes(instances: int) -> list[int]:
    """How many instances are for training, validation and testing."""
    train, val = (round(share * instances) for share in _SPLIT[:2])
    counts = [train, val, instances - train - val]
    if min(counts) < 1:
        raise ConfigError(f"instances: found {instances}, wanted 0 or enough for three parts")
    return counts


def _embedded(name: str, fold: int, instances: int) -> FoldParts:
    whole = collate(systems.forecasting(name, instances, seed=fold))
    assert whole.targets is not None
    assert whole.target_observed is not None
    assert whole.query_times is not None
    known = torch.cat([whole.observed, whole.target_observed], dim=1)
    seen = torch.cat([whole.values, whole.targets], dim=1).masked_fill(~known, torch.nan).flatten(0, 1)
    mean = seen.nanmean(0)
    std, span = (seen - mean).square().nanmean(0).sqrt(), systems.SYSTEMS[name].span
    scaled = replace(
        whole,
        values=((whole.values - mean) / std).masked_fill(~whole.observed, 0),
        targets=((whole.targets - mean) / std).masked_fill(~whole.target_observed, 0),
        times=whole.times / span,
        query_times=whole.query_times / span,
        gaps=whole.gaps / span,
    )
    bounds = torch.tensor([0, *part_sizes(instances)]).cumsum(0).tolist()
    return FoldParts(*(scaled.rows(slice(a, b)) for a, b in pairwise(bounds)))
