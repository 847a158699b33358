"""Physiome-ODE: fifty ordinary differential equations of physiology as irregular forecasting tasks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tides.data.physiome.facts import System, channels, constants, names, system

_HOME = {
    "System": "facts",
    "channels": "facts",
    "constants": "facts",
    "names": "facts",
    "system": "facts",
}

__all__ = [
    "System",
    "channels",
    "constants",
    "names",
    "system",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"tides.data.physiome.{_HOME[name]}"), name)
    raise AttributeError(f"module 'tides.data.physiome' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
