"""Which records a report may draw from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tides.errors import DataError
from tides.records import Record, read_records


def load_records(folder: Path, where: Sequence[str] = ()) -> tuple[list[Record], int]:
    """Complete, real records below `folder` and the number of `--quick` ones that were left out.

    `where` drops those whose configuration has another value than `key=value` says at any given dotted key.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; run the experiment first")
    found = read_records(folder / "records")
    kept = [record for record in found if not record.quick and all(_matches(record, text) for text in where)]
    quick = sum(record.quick for record in found)
    if not kept:
        raise DataError(
            f"{folder}: found {len(found)} records, {quick} of them made by --quick; "
            "none is a result that a report may show"
        )
    return kept, quick


def lookup(config: dict[str, Any], key: str) -> Any:
    """The value at a dotted key, or None."""
    value: Any = config
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _matches(record: Record, text: str) -> bool:
    key, separator, wanted = text.partition("=")
    if not separator:
        raise DataError(f"--where {text}: wanted key=value, for example train.steps=3000")
    return str(lookup(record.config, key)) in (wanted, "None")
