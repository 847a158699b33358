"""What a run leaves on disk: one JSON record per cell, written whole or not at all.

Reports read these files and nothing else, so this module imports no torch.
"""

import hashlib
import json
import math
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from tides.atomic import atomic_write
from tides.errors import DataError

SCHEMA = 1


@dataclass(frozen=True)
class Record:
    """The result of one cell and everything needed to know how it came about."""

    experiment: str
    cell_id: str
    """`cell_id(config)`; checked on reading."""
    config: dict[str, Any]
    """The resolved configuration: all that the result depends on."""
    results: dict[str, Any]
    seconds: float
    """Wall time; cells that were trained side by side share their stack's time equally."""
    quick: bool
    """Made by `--quick`: the code path was exercised, the numbers mean nothing. Report tables refuse it."""
    environment: dict[str, str]
    finished: str
    schema: int = SCHEMA


def cell_id(config: Mapping[str, Any]) -> str:
    """Sixteen hexadecimal digits that depend on the content of `config`, not on the order of its keys."""
    text = json.dumps(config, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def environment() -> dict[str, str]:
    """Versions and machine, for the record."""
    found = {"python": sys.version.split()[0], "machine": platform.machine(), "system": platform.system()}
    found["cpus"] = str(os.cpu_count())
    for name in ("tides-ssm", "torch", "numpy"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def timestamp() -> str:
    """The current time in UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON; a reader sees the old file or the new one, never a part. NaN and ±inf become null."""
    with atomic_write(path) as file:
        file.write(f"{json_text(value, indent=1)}\n".encode())


def json_text(value: Any, *, indent: int | None = None) -> str:
    """`value` as JSON, which has no NaN and no infinity: they become null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def write_record(path: Path, record: Record) -> None:
    """Write one record atomically."""
    write_json(path, asdict(record))


def read_record(path: Path) -> Record:
    """Read one record; anything but a complete, unaltered one raises `DataError`."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not a readable record ({error}); delete it to have it recomputed") from error
    record = to_record(content, str(path))
    if record.cell_id != cell_id(record.config):
        raise DataError(f"{path}: cell_id {record.cell_id} does not belong to its config ({cell_id(record.config)})")
    return record


def to_record(content: Any, place: str) -> Record:
    """The record in what was read as JSON at `place`, with all its fields, a configuration and results."""
    names = {field.name for field in fields(Record)}
    if not isinstance(content, dict) or set(content) != names:
        found = sorted(content) if isinstance(content, dict) else type(content).__name__
        raise DataError(f"{place}: found fields {found}, wanted {sorted(names)}")
    record = Record(**content)
    if record.schema != SCHEMA:
        raise DataError(f"{place}: found record schema {record.schema}, wanted {SCHEMA}")
    for name in ("config", "results"):
        if not isinstance(content[name], dict) or not content[name]:
            raise DataError(f"{place}: {name}: found {content[name]!r}, wanted a table that is not empty")
    return record


def read_records(folder: Path) -> list[Record]:
    """All records below `folder`, in the order of their file names."""
    return [read_record(path) for path in sorted(folder.rglob("*.json"))]


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return value
