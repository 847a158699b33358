"""Whole numbers that a caller chooses: counts and seeds."""

from numbers import Integral
from typing import Any

from tides.errors import ConfigError


def require_whole(name: str, value: Any, least: int) -> None:
    """`value` must be a whole number of at least `least`; numpy integers are accepted, truth values are not."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ConfigError(f"{name}={value!r}; wanted a whole number of at least {least}")
