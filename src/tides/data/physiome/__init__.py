"""Physiome-ODE: fifty ordinary differential equations of physiology as irregular forecasting tasks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tides.data.physiome.facts import System, channels, constants, names, system
    from tides.data.physiome.fold import Fold, Part, Window
    from tides.data.physiome.folds import load_fold, make_fold
    from tides.data.physiome.trajectories import Trajectories, save_trajectories, standardise

_HOME = {
    "Fold": "fold",
    "Part": "fold",
    "System": "facts",
    "Trajectories": "trajectories",
    "Window": "fold",
    "channels": "facts",
    "constants": "facts",
    "load_fold": "folds",
    "make_fold": "folds",
    "names": "facts",
    "save_trajectories": "trajectories",
    "standardise": "trajectories",
    "system": "facts",
}

__all__ = [
    "Fold",
    "Part",
    "System",
    "Trajectories",
    "Window",
    "channels",
    "constants",
    "load_fold",
    "make_fold",
    "names",
    "save_trajectories",
    "standardise",
    "system",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"tides.data.physiome.{_HOME[name]}"), name)
    raise AttributeError(f"module 'tides.data.physiome' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
