"""Which records a report may draw from."""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tides.errors import DataError
from tides.records import Record, read_records


def load_records(folder: Path, where: Sequence[str] = (), *, experiments: Sequence[str]) -> tuple[list[Record], int]:
    """Complete, real records of `experiments` below `folder`, and the number of `--quick` ones that were left out.

    There must be at least one; `where` selects as in `choose`.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; run the experiment first")
    found, quick = real_records(folder, experiments)
    if not found:
        raise DataError(
            f"{folder}: found {quick} records, {quick} of them made by --quick; none is a result that a report may show"
        )
    return choose(found, where), quick


def real_records(folder: Path, experiments: Sequence[str]) -> tuple[list[Record], int]:
    """All complete, real records below `folder`, which may be none, and the number of those made by `--quick`."""
    found = read_records(folder / "records")
    check_experiments(found, experiments, folder)
    return [record for record in found if not record.quick], sum(record.quick for record in found)


def check_experiments(records: Sequence[Record], experiments: Sequence[str], place: Path) -> None:
    """Raise where a record is of another experiment than a report is about."""
    others = sorted({record.experiment for record in records} - set(experiments))
    if others:
        raise DataError(f"{place}: found records of {', '.join(others)}, wanted {' or '.join(experiments)}")


def choose(records: Sequence[Record], where: Sequence[str]) -> list[Record]:
    """Drop records whose configuration has another value than `key=value` says at a dotted key.

    A record without that key is kept; an error is raised if no record has the key, or the combination of values.
    """
    kept = [(record, settings(record.config)) for record in records]
    known = {key for _, found in kept for key in found}
    for text in where:
        key, separator, wanted = text.partition("=")
        if not separator:
            raise DataError(f"--where {text}: wanted key=value, for example train.steps=3000")
        if key not in known:
            close = get_close_matches(key, sorted(known), cutoff=0.5) or sorted(known)
            raise DataError(f"--where {text}: no record has the setting {key}; wanted one such as {', '.join(close)}")
        values = sorted({str(found[key]) for _, found in kept if key in found})
        kept = [(record, found) for record, found in kept if key not in found or str(found[key]) == wanted]
        if not kept:
            raise DataError(f"--where {text}: no record matches; found {', '.join(values)}")
    return [record for record, _ in kept]


def settings(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """All values of a configuration by dotted key."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        key = f"{prefix}{name}"
        found |= settings(value, f"{key}.") if isinstance(value, dict) and value else {key: value}
    return found


def lookup(config: dict[str, Any], key: str) -> Any:
    """The value at a dotted key, or None."""
    value: Any = config
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value
