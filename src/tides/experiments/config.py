"""Strict TOML configurations: shipped files, `--set` overrides, and dataclasses built from them.

A configuration is a plain mapping until an experiment turns it into its own frozen dataclass with `build`.
The optional table `quick` holds overrides for `--quick` and is never part of the result.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from tides.errors import ConfigError

T = TypeVar("T")


def variants(experiment: str) -> list[str]:
    """The variants shipped for an experiment, by name."""
    folder = resources.files("tides.experiments") / "configs" / experiment
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))


def default_variant(experiment: str) -> str:
    """`paper` where there is one, else the first."""
    known = variants(experiment)
    return "paper" if "paper" in known else known[0]


def load(experiment: str, variant: str, *, quick: bool, settings: Sequence[str]) -> dict[str, Any]:
    """The shipped configuration, then its `quick` overrides if asked for, then `a.b=value` settings."""
    known = variants(experiment)
    if variant not in known:
        raise ConfigError(f"variant: found {variant!r}, {experiment} has {', '.join(known)}")
    file = resources.files("tides.experiments") / "configs" / experiment / f"{variant}.toml"
    return _resolve(tomllib.loads(file.read_text(encoding="utf-8")), quick, settings)


def load_file(path: Path, *, quick: bool, settings: Sequence[str]) -> dict[str, Any]:
    """The same from a user's own file, such as one chosen by a sweep."""
    return _resolve(read_toml(path, "--config "), quick, settings)


def read_toml(path: Path, option: str = "") -> dict[str, Any]:
    """The contents of a user's own file; `option` is the option that named it, for errors."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{option}{path}: {error}") from error
    _check_finite(found)
    return found


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """`a.b=value` settings by their dotted names."""
    found = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting}: wanted name=value, for example train.steps=500")
        try:
            found[key.strip()] = _parse(text.strip())
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(
                f"--set {setting}: not a TOML value ({error}); wanted one such as 3, true, [1, 2] or {{depth = 2}}"
            ) from error
    _check_finite(found)
    return found


def _check_finite(value: Any, where: str = "") -> None:
    """Raise for a number that a record could not hold; TOML allows infinities and NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{where}: found {value}, wanted a finite number")
    if isinstance(value, Mapping):
        for name, entry in value.items():
            _check_finite(entry, f"{where}.{name}" if where else name)
    elif isinstance(value, list):
        for entry in value:
            _check_finite(entry, where)


def _resolve(config: dict[str, Any], quick: bool, settings: Sequence[str]) -> dict[str, Any]:
    hurried = config.pop("quick", {})
    if not isinstance(hurried, dict):
        raise ConfigError(f"quick: found {hurried!r}, wanted a table of settings")
    for key, value in hurried.items():
        if quick:
            assign(config, key, value)
    for key, value in parse_settings(settings).items():
        assign(config, key, value)
    return config


def assign(config: dict[str, Any], key: str, value: Any) -> None:
    """Set the dotted `key`, which must exist, in place."""
    table = config
    *folders, last = key.split(".")
    for index, folder in enumerate(folders):
        table = _entry(table, folder, ".".join(folders[:index]))
        if isinstance(table, list) and table and all(isinstance(row, dict) for row in table):
            raise ConfigError(
                f"{key}: {folder} is a list of {len(table)} tables; wanted a setting outside of it, or a file of your "
                "own (--config) with other rows"
            )
        if not isinstance(table, dict):
            raise ConfigError(f"{key}: {folder} is a value, not a table")
    _entry(table, last, ".".join(folders))
    table[last] = value


def put(config: dict[str, Any], key: str, value: Any) -> None:
    """Set the dotted `key` in place; missing tables are created."""
    table = config
    *folders, last = key.split(".")
    for folder in folders:
        table = table.setdefault(folder, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{key}: {folder} is a value, not a table")
    table[last] = value


def build(kind: type[T], mapping: Mapping[str, Any], where: str = "") -> T:
    """A dataclass from a mapping: unknown, missing or ill-typed fields raise `ConfigError` with their path."""
    hints = get_type_hints(kind)
    wanted = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    for name in mapping:
        if name not in wanted:
            raise ConfigError(f"{where}{name}: unknown field{_nearest(name, wanted)}")
    values = {}
    for name, field in wanted.items():
        if name in mapping:
            values[name] = _convert(hints[name], mapping[name], where + name)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ConfigError(f"{where}{name}: missing field of type {_name(hints[name])}")
    return kind(**values)


def _convert(kind: Any, value: Any, where: str) -> Any:
    origin = get_origin(kind)
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(value, Mapping):
        return build(kind, value, f"{where}.")
    if origin is tuple and isinstance(value, list | tuple):
        inner = get_args(kind)
        if inner[-1] is Ellipsis:
            inner = (inner[0],) * len(value)
        if len(inner) == len(value):
            pairs = enumerate(zip(inner, value, strict=True))
            return tuple(_convert(part, entry, f"{where}[{i}]") for i, (part, entry) in pairs)
    if origin in (Union, UnionType):
        tables = [part for part in get_args(kind) if is_dataclass(part)]
        if len(tables) == 1 and isinstance(value, Mapping):
            # Only this type can be meant, so the error lies inside.
            return _convert(tables[0], value, where)
        for part in get_args(kind):
            try:
                return _convert(part, value, where)
            except ConfigError:
                continue
    if origin is Literal and value in get_args(kind):
        return value
    if kind is type(None) and value is None:
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is int and type(value) is int and value < 0:
        raise ConfigError(f"{where}: found {value}, wanted a whole number ≥ 0")
    if kind is float and type(value) is float and not math.isfinite(value):
        raise ConfigError(f"{where}: found {value}, wanted a finite number")
    if kind in (bool, int, float, str) and type(value) is kind:
        return value
    raise ConfigError(f"{where}: found {value!r}, wanted {_name(kind)}")


def _parse(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        # A bare word such as `cosine` is no TOML value; it is read as a string. A list or table is not meant as a word.
        if text.startswith(("[", "{", '"', "'")):
            raise
        return text


def _entry(table: dict[str, Any], name: str, where: str) -> Any:
    if name not in table:
        place = f" in {where}" if where else ""
        raise ConfigError(f"{name}: no such setting{place}{_nearest(name, table)}")
    return table[name]


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    close = get_close_matches(name, known, n=1, cutoff=0.4)
    return f"; did you mean {close[0]}?" if close else f"; known are {', '.join(known)}"


def _name(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    return kind.__name__ if isinstance(kind, type) and get_origin(kind) is None else str(kind)
