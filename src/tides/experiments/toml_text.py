"""TOML text of a configuration; the standard library only reads it."""

import json
from collections.abc import Mapping
from typing import Any

from tides.errors import ConfigError


def to_toml(config: Mapping[str, Any], where: str = "") -> str:
    """Values first, then tables, then arrays of tables, as TOML wants them; `tomllib` reads the same mapping back."""
    values: list[str] = []
    tables: list[str] = []
    rows: list[str] = []
    for name, value in config.items():
        path = where + _key(name)
        if isinstance(value, Mapping):
            tables.append(f"\n[{path}]\n{to_toml(value, path + '.')}")
        elif isinstance(value, list | tuple) and value and all(isinstance(row, Mapping) for row in value):
            rows.extend(f"\n[[{path}]]\n{to_toml(row, path + '.')}" for row in value)
        else:
            values.append(f"{_key(name)} = {_value(value, where + name)}\n")
    return "".join(values + tables + rows)


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if bare else _quoted(name)


def _value(value: Any, where: str) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(entry, where) for entry in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, int | float):
        return repr(value)
    raise ConfigError(f"{where}: found {value!r}, which TOML cannot hold")


def _quoted(text: str) -> str:
    # A JSON string is a TOML string, but for the one control character that JSON leaves bare.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
