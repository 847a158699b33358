"""TIDES in the manner of other libraries: aeon's classifiers and PyPOTS's dictionaries. Names load on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tides.estimators.adapters.aeon import AeonTIDESClassifier
    from tides.estimators.adapters.pypots import PyPOTSTIDESClassifier

_HOME = {"AeonTIDESClassifier": "aeon", "PyPOTSTIDESClassifier": "pypots"}

__all__ = ["AeonTIDESClassifier", "PyPOTSTIDESClassifier"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"tides.estimators.adapters.{_HOME[name]}"), name)
    raise AttributeError(f"module 'tides.estimators.adapters' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
