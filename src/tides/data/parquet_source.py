"""Parquet files, one or a folder of them, as a stream of columns."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tides.data.columns import whole
from tides.data.sources import Columns, Table, columns_of, measured, refuse_repeats
from tides.errors import DataError

_ROWS_PER_CHUNK = 1 << 18
_NOTHING = "__HIVE_DEFAULT_PARTITION__"  # how a missing value is written in the name of a folder


def open_parquet_table(path: Path) -> Table:
    """One file, or all files of a folder and its subfolders in the order of their names.

    A folder called `patient=17` says that in the column `patient` of its files 17 stands in every row. Names that begin
    with a dot or an underscore are left out: writers keep what is unfinished, and their own notes, under such names.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = sorted(file for file in path.rglob("*.parquet") if _is_data(file, path)) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path.name}: the folder holds no .parquet file")
    owner: dict[str, str] = {}  # column -> the first file that has it
    for file in files:
        names = pq.read_schema(file).names
        refuse_repeats(names, file.name)
        for name in names:
            owner.setdefault(name, file.name)
    keys = _keys(path, files)

    def chunks(wanted: Sequence[str], numeric: Sequence[str]) -> Iterator[Columns]:
        for file in files:
            # Arrow's scanner reads ahead without bound while rows are being processed; this reader does not.
            with pq.ParquetFile(file, pre_buffer=False) as opened:
                inside = [name for name in wanted if name in opened.schema_arrow.names]
                named = {name: value for name, value in keys[file].items() if name in wanted and name not in inside}
                missing = next((name for name in wanted if name not in inside and name not in named), None)
                if missing is not None:
                    raise DataError(
                        f"{file.name}: column {missing!r} is missing; {owner.get(missing, 'another')} has it"
                    )
                read = inside or opened.schema_arrow.names[:1]  # some column, to know how many rows there are
                for columns in columns_of(opened.iter_batches(_ROWS_PER_CHUNK, columns=read), file.name):
                    rows = len(columns[read[0]])
                    yield columns | {name: pa.repeat(value, rows) for name, value in named.items()}

    found = dict.fromkeys(name for one in keys.values() for name in one if name not in owner)
    return Table(path.name, measured(tuple(owner)), chunks, keys=tuple(found))


def _is_data(file: Path, root: Path) -> bool:
    return not any(part.startswith((".", "_")) for part in file.relative_to(root).parts)


def _keys(root: Path, files: Sequence[Path]) -> dict[Path, dict[str, Any]]:
    """For each file the values in the names of its folders: whole numbers where all values of a key are, else text."""
    import pyarrow as pa

    texts: dict[Path, dict[str, str | None]] = {}
    for file in files:
        folders = file.relative_to(root).parts[:-1] if file != root else ()
        parts = [folder.partition("=") for folder in folders if "=" in folder]
        texts[file] = {unquote(name): None if value == _NOTHING else unquote(value) for name, _, value in parts}
    kinds: dict[str, Any] = {}
    for key in dict.fromkeys(key for one in texts.values() for key in one):
        values = [one[key] for one in texts.values() if one.get(key) is not None]
        kinds[key] = pa.int64() if all(_is_whole(value) for value in values) else pa.string()
    return {
        file: {key: pa.scalar(value, pa.string()).cast(kinds[key]) for key, value in one.items()}
        for file, one in texts.items()
    }


def _is_whole(text: str | None) -> bool:
    try:
        return abs(whole(text or "")) < 2**63
    except ValueError:
        return False
