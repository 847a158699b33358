"""Physiome-ODE: fifty ordinary differential equations of physiology as irregular forecasting tasks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tides.data.physiome.facts import System, channels, constants, names, system
    from tides.data.physiome.fold import Fold, Part, Window
    from tides.data.physiome.folds import load_fold, make_fold
    from tides.data.physiome.jgd import channel_scores, dataset_score
    from tides.data.physiome.search import best_spread, rank
    from tides.data.physiome.simulation import Simulation, simulate
    from tides.data.physiome.trajectories import Trajectories, save_trajectories, standardise

_HOME = {
    "Fold": "fold",
    "Part": "fold",
    "Simulation": "simulation",
    "System": "facts",
    "Trajectories": "trajectories",
    "Window": "fold",
    "best_spread": "search",
    "channel_scores": "jgd",
    "channels": "facts",
    "constants": "facts",
    "dataset_score": "jgd",
    "load_fold": "folds",
    "make_fold": "folds",
    "names": "facts",
    "rank": "search",
    "save_trajectories": "trajectories",
    "simulate": "simulation",
    "standardise": "trajectories",
    "system": "facts",
}

__all__ = [
    "Fold",
    "Part",
    "Simulation",
    "System",
    "Trajectories",
    "Window",
    "best_spread",
    "channel_scores",
    "channels",
    "constants",
    "dataset_score",
    "load_fold",
    "make_fold",
    "names",
    "rank",
    "save_trajectories",
    "simulate",
    "standardise",
    "system",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"tides.data.physiome.{_HOME[name]}"), name)
    raise AttributeError(f"module 'tides.data.physiome' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
