"""What a model folder knows about its training data: names, unit, classes, static columns."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tides.errors import DataError
from tides.units import as_float, duration_in


@dataclass(frozen=True)
class StaticField:
    """A static column: a number, or one of `categories` as one-hot columns (`ordinal`: as its position)."""

    name: str
    categories: tuple[str, ...] | None = None
    ordinal: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """One for each of the numbers it is encoded as."""
        if self.categories is None or self.ordinal:
            return (self.name,)
        return tuple(f"{self.name}={category}" for category in self.categories)

    @property
    def width(self) -> int:
        return 1 if self.categories is None or self.ordinal else len(self.categories)

    def encode(self, value: Any) -> list[float]:
        if _is_missing(value) or value != value:
            return [float("nan")] * self.width
        if self.categories is None:
            return [_number(value, f"static {self.name!r}")]
        if str(value) not in self.categories:
            known = ", ".join(self.categories)
            raise DataError(
                f"static {self.name!r}: found {value!r}, the model knows {known}; None counts as not recorded"
            )
        position = self.categories.index(str(value))
        return [float(position)] if self.ordinal else [float(k == position) for k in range(len(self.categories))]


class StaticRow(NamedTuple):
    """Static covariates as they were given: encoded numbers, and which of them were named."""

    values: NDArray[np.float64]
    named: NDArray[np.bool_]

    def over(self, before: NDArray[np.float64]) -> NDArray[np.float64]:
        """These covariates, completed by earlier ones."""
        return np.where(self.named, self.values, before)


@dataclass(frozen=True)
class Profile:
    """Read from the metadata of a model folder. Every field may be missing; positions then take the place of names."""

    channels: tuple[str, ...] | None = None
    unit: str | None = None
    origin: str | None = None
    classes: tuple[str, ...] | None = None
    spread: tuple[float, ...] | None = None
    """For forecasters that predict a spread beside every mean: the unit of each channel's spread."""
    static: tuple[StaticField, ...] = field(default=())
    offset: int = 0
    cut: float | None = None
    """Answers come from the last stretch of this duration, in the unit; None: from everything."""

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> "Profile":
        """`metadata` holds a data set's schema under "schema", or channels, unit, origin and classes themselves."""
        try:
            source: Mapping[str, Any] = {**metadata, **metadata.get("schema", {})}
            return cls(
                channels=_names(source.get("channels")),
                unit=source.get("unit"),
                origin=source.get("origin"),
                classes=_names(source.get("classes") or source.get("class_names")),
                spread=_spread_units(source),
                static=tuple(
                    StaticField(column["name"], _names(column.get("categories")), bool(column.get("ordinal")))
                    for column in source.get("static") or ()
                ),
                offset=int(source.get("offset", 0)),
                cut=_span(source.get("cut"), source.get("unit")),
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise DataError(f"the model's metadata does not describe data: {error!r}") from None

    @property
    def static_width(self) -> int:
        """Numbers that a stream's static columns are encoded as."""
        return sum(column.width for column in self.static)

    def row(self, x: Any, width: int) -> NDArray[np.float64]:
        """One observation (width,): a sequence, or a mapping from channel names; None, NaN and absent are missing."""
        if not isinstance(x, Mapping) and self.channels is not None and _is_text(getattr(x, "index", ())):
            x = dict(zip(x.index, x, strict=True))  # a row of a table
        if isinstance(x, Mapping):
            if self.channels is None:
                raise DataError("x: found names, but the model folder names no channels; give a list")
            unknown = [name for name in x if name not in self.channels]
            if unknown:
                raise DataError(f"x: found channel {unknown[0]!r}, the model knows {', '.join(self.channels)}")
            x = [x.get(name) for name in self.channels]
        if isinstance(x, np.ndarray) and x.dtype.kind == "f":
            row = _unmasked(x).astype(np.float64, copy=False)
        else:
            try:
                entries = np.atleast_1d(_plain(x)).tolist()
                row = np.array([_entry(v, "x") for v in entries])
            except TypeError:
                raise DataError(f"x: found {x!r}, wanted {width} numbers or a mapping of channels") from None
            except DataError:
                raise self._odd_entry(entries) from None
        row = np.atleast_1d(row)
        if row.shape != (width,):
            raise DataError(f"x: found {row.size} values, wanted {width}, one per channel (NaN = missing)")
        return row

    def _odd_entry(self, entries: list[Any]) -> DataError:
        """What is wrong with an observation in which something is no number."""
        at = next(i for i, value in enumerate(entries) if not _is_missing(value) and not _reads_as_number(value))
        names = self.channels or ()
        where = f" in channel {names[at]!r}" if at < len(names) else ""
        return DataError(f"x: found {entries[at]!r}{where}, wanted a number")

    def rows(self, X: Any) -> NDArray[np.float64]:
        """Observations (n, width): numbers, or a frame whose columns are channels in any order."""
        names = getattr(X, "columns", None)
        if names is not None and self.channels is not None and _is_text(names):
            unknown = [name for name in names if name not in self.channels]
            if unknown:
                raise DataError(f"X: found column {unknown[0]!r}, the model knows {', '.join(self.channels)}")
            absent = [np.nan] * len(X)
            X = np.stack([np.asarray(X[name] if name in names else absent) for name in self.channels], axis=-1)
        if hasattr(X, "detach"):  # a tensor
            X = X.detach().cpu()
        try:
            X = _unmasked(X) if isinstance(X, np.ndarray) else np.asarray(X)
            if X.dtype == object:
                X = np.array([np.nan if _is_missing(v) else v for v in X.flat], object).reshape(X.shape)
            return np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"X: wanted rows of numbers, one per channel (NaN = missing): {error}") from None

    def static_row(self, static: Any, width: int) -> StaticRow:
        """Static covariates (width,): encoded numbers, or a mapping from some of the table's static columns."""
        if not isinstance(static, Mapping):
            named = np.ones(width, bool)
            row = np.array([_entry(v, "static") for v in np.atleast_1d(_plain(static)).tolist()])
        else:
            known = [column.name for column in self.static]
            unknown = [name for name in static if name not in known]
            if unknown:
                names = ", ".join(known) or "no names"
                raise DataError(f"static: found column {unknown[0]!r}, the model knows {names}")
            row = np.array([number for column in self.static for number in column.encode(static.get(column.name))])
            named = np.array([column.name in static for column in self.static for _ in range(column.width)], bool)
        if row.shape != (width,):
            raise DataError(f"static: found {row.size} numbers, wanted {width}")
        return StaticRow(row, named)


def read_facts(folder: str | Path) -> dict[str, Any]:
    """The facts an estimator wrote beside its network; empty for a folder of `tides.save` alone."""
    path = Path(folder) / "estimator.json"
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    if not isinstance(facts, dict):
        raise DataError(f"{path}: found {type(facts).__name__}, wanted what an estimator has written")
    known = ["schema", "classes", "gaussian", "spread_scale", "stretch"]
    if facts.get("cut") is not None:
        known.append("cut")
    return {name: facts[name] for name in known if name in facts}


def _span(cut: Any, unit: str | None) -> float | None:
    if cut is None:
        return None
    span = duration_in(cut, unit, "cut")
    if span == 0:
        raise DataError(f"cut: found {cut!r}, wanted a duration above 0")
    return span


def _spread_units(source: Mapping[str, Any]) -> tuple[float, ...] | None:
    """The scale of the targets, times the factor by which calibration widened the spread."""
    if not source.get("gaussian"):
        return None
    scale = source["spread_scale"]
    return tuple(float(a) * float(b) for a, b in zip(scale, source.get("stretch") or [1.0] * len(scale), strict=True))


def _plain(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return _unmasked(x)
    return x.tolist() if hasattr(x, "tolist") else np.array(x, dtype=object)


def _unmasked(x: NDArray[Any]) -> NDArray[Any]:
    """Masked values as NaN, whatever is behind the mask."""
    return np.ma.filled(x.astype(np.float64), np.nan) if isinstance(x, np.ma.MaskedArray) else x


def _is_missing(value: Any) -> bool:
    """None, or a missing value of pandas."""
    pandas = sys.modules.get("pandas")
    return value is None or (pandas is not None and value is pandas.NA)


def _entry(value: Any, name: str) -> float:
    return float("nan") if _is_missing(value) else _number(value, name)


def _number(value: Any, name: str) -> float:
    if not _reads_as_number(value):
        raise DataError(f"{name}: found {value!r}, wanted a number")
    return as_float(value)


def _reads_as_number(value: Any) -> bool:
    return not isinstance(value, (str, bytes)) and hasattr(value, "__float__")


def _is_text(labels: Any) -> bool:
    return np.iterable(labels) and len(list(labels)) > 0 and all(isinstance(label, str) for label in labels)


def _names(names: Any) -> tuple[str, ...] | None:
    return None if names is None else tuple(str(name) for name in names)
