"""TIDES: selective state-space models whose step size stays physical time.

The names below load on first use, so `import tides` and `tides --help` do not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tides.errors import (
    BackendUnavailable,
    ConfigError,
    DataError,
    Diverged,
    NotStreamable,
    ShapeError,
    TidesError,
)

if TYPE_CHECKING:
    from tides import artefacts, baselines, data, estimators, explain, functional, kernels, nn, streaming, training
    from tides.artefacts import load, save
    from tides.nn import Backbone, Forecaster, SequenceClassifier, SequenceRegressor, TIDESConfig

__version__ = "0.1.0"

_ROOMS = (
    "artefacts",
    "baselines",
    "data",
    "estimators",
    "explain",
    "functional",
    "kernels",
    "nn",
    "streaming",
    "training",
)
_HOME = {
    "Backbone": "nn",
    "Forecaster": "nn",
    "SequenceClassifier": "nn",
    "SequenceRegressor": "nn",
    "TIDESConfig": "nn",
    "load": "artefacts",
    "save": "artefacts",
}

__all__ = [
    "Backbone",
    "BackendUnavailable",
    "ConfigError",
    "DataError",
    "Diverged",
    "Forecaster",
    "NotStreamable",
    "SequenceClassifier",
    "SequenceRegressor",
    "ShapeError",
    "TIDESConfig",
    "TidesError",
    "artefacts",
    "baselines",
    "data",
    "estimators",
    "explain",
    "functional",
    "kernels",
    "load",
    "nn",
    "save",
    "streaming",
    "training",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"tides.{name}")
    if name in _HOME:
        return getattr(import_module(f"tides.{_HOME[name]}"), name)
    raise AttributeError(f"module 'tides' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
