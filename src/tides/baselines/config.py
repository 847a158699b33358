"""Typed, strict configurations of baselines: unknown, missing or ill-typed fields raise `ConfigError`."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from tides.errors import ConfigError
from tides.fields import check_names, check_types, require


@dataclass(frozen=True, kw_only=True)
class BaselineConfig:
    """What every baseline has. Subclasses add their fields and check ranges in `__post_init__`."""

    input_size: int
    """Data channels; mask, time and query channels are added inside."""
    first_gap: float | Literal["median", "start"] = "median"
    """Gap before the first observation: the training median, a number, or the time since 0 (`start`)."""
    time_scale: float | Literal["median"] = "median"
    """Gaps are divided by it: the training median gap, or a number."""

    def __post_init__(self) -> None:
        check_types(self)
        self.require_sizes("input_size")
        require(self, ("first_gap",), lambda value: isinstance(value, str) or value >= 0, "a policy or a number ≥ 0")
        require(self, ("time_scale",), lambda value: isinstance(value, str) or value > 0, "'median' or a number > 0")

    @classmethod
    def from_dict(cls, mapping: Mapping[str, Any]) -> Self:
        """The strict inverse of `to_dict` (lists are read as tuples, as JSON and TOML have no others)."""
        check_names(cls, mapping)
        for field in dataclasses.fields(cls):
            if field.name not in mapping and field.default is dataclasses.MISSING:
                raise ConfigError(f"{field.name}: missing field of {cls.__name__}")
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in mapping.items()}
        return cls(**fields)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in vars(self).items()}

    def replace(self, **fields: Any) -> Self:
        """A copy with some fields changed, checked again."""
        check_names(type(self), fields)
        return dataclasses.replace(self, **fields)

    def require_sizes(self, *names: str) -> None:
        require(self, names, lambda value: value >= 1, "an integer ≥ 1")

    def require_shares(self, *names: str) -> None:
        require(self, names, lambda value: 0 <= value < 1, "a probability in [0, 1)")

    def require_ring(self, low: str, high: str) -> None:
        """Two radii inside the unit disc."""
        inner, outer = getattr(self, low), getattr(self, high)
        if not 0 <= inner < outer <= 1:
            raise ConfigError(f"{low}, {high}: found {inner}, {outer}, wanted 0 ≤ {low} < {high} ≤ 1")


@dataclass(frozen=True, kw_only=True)
class ClassificationConfig(BaselineConfig):
    """What every classifier has."""

    classes: int
    time_channel: Literal["none", "index", "elapsed", "gap"] = "none"
    """A channel in front of the data: k/n of step k of n (as published), the elapsed share of the series' own
    duration, or the gap before the step in units of the time scale (models of paths carry the sum of the gaps)."""
    mask_channels: bool | Literal["auto"] = "auto"
    """Observation flags as extra channels; `auto` has none and refuses data with missing values."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_sizes("classes")

    @property
    def width(self) -> int:
        """Channels that the model reads."""
        flags = self.input_size if self.mask_channels is True else 0
        return self.input_size + flags + int(self.time_channel != "none")


@dataclass(frozen=True, kw_only=True)
class StackConfig(ClassificationConfig):
    """Encoder, blocks around a sequence mixer, mean over time, linear head: the frame of all state-space baselines."""

    hidden_size: int = 64
    depth: int = 4
    dropout: float = 0.1
    steps: Literal["unit", "physical"] = "unit"
    """Every step lasts one unit, as published, or the gap before it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_sizes("hidden_size", "depth")
        self.require_shares("dropout")
