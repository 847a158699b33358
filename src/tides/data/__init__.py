"""Irregular series: from tables, arrays, archives and simulators to batches. Names load on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tides.data import fading_flash, physiome, physionet, systems, uea
    from tides.data.arrays import from_arrays
    from tides.data.batch import IrregularBatch, PackedBatch
    from tides.data.collation import collate
    from tides.data.dataset import IrregularDataset
    from tides.data.long_series import pieces, split_latest
    from tides.data.physionet import load_physionet2012
    from tides.data.random_drop import RandomDrop
    from tides.data.sampler import LengthBucketSampler
    from tides.data.scaling import Scaling
    from tides.data.schema import Schema
    from tides.data.series import IrregularSeries
    from tides.data.splits import folds, split, temporal_split
    from tides.data.summary import describe
    from tides.data.tables import from_long, from_wide
    from tides.data.uea import load_uea
    from tides.data.uea_splits import uea_split
    from tides.data.windows import forecast_windows

_MODULES = ("fading_flash", "physiome", "physionet", "systems", "uea")
_HOME = {
    "IrregularBatch": "batch",
    "IrregularDataset": "dataset",
    "IrregularSeries": "series",
    "LengthBucketSampler": "sampler",
    "PackedBatch": "batch",
    "RandomDrop": "random_drop",
    "Scaling": "scaling",
    "Schema": "schema",
    "collate": "collation",
    "describe": "summary",
    "folds": "splits",
    "forecast_windows": "windows",
    "from_arrays": "arrays",
    "from_long": "tables",
    "from_wide": "tables",
    "load_physionet2012": "physionet",
    "load_uea": "uea",
    "pieces": "long_series",
    "split": "splits",
    "split_latest": "long_series",
    "temporal_split": "splits",
    "uea_split": "uea_splits",
}

__all__ = [
    "IrregularBatch",
    "IrregularDataset",
    "IrregularSeries",
    "LengthBucketSampler",
    "PackedBatch",
    "RandomDrop",
    "Scaling",
    "Schema",
    "collate",
    "describe",
    "fading_flash",
    "folds",
    "forecast_windows",
    "from_arrays",
    "from_long",
    "from_wide",
    "load_physionet2012",
    "load_uea",
    "physiome",
    "physionet",
    "pieces",
    "split",
    "split_latest",
    "systems",
    "temporal_split",
    "uea",
    "uea_split",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"tides.data.{_HOME[name]}"), name)
    if name in _MODULES:
        return import_module(f"tides.data.{name}")
    raise AttributeError(f"module 'tides.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
