"""Tables of any kind (pandas, polars, Arrow, Parquet, Feather, CSV) as a stream of Arrow columns."""

import difflib
import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from tides.errors import DataError

Columns = dict[str, Any]  # column name -> pyarrow.ChunkedArray or pyarrow.Array
# A column without a name in a CSV file, and what pandas calls it after reading that.
_NAMELESS = re.compile(r"\s*|Unnamed: \d+")
# What pandas calls an index without a name in Arrow's formats; in a frame it is no column either.
_INDEX = re.compile(r"__index_level_\d+__")


@dataclass(frozen=True)
class Table:
    """A named table: `chunks(wanted, numeric)` yields its columns piece by piece.

    `text` says that the columns hold text whose types must still be found (CSV); there, only the columns named in
    `numeric` are read as numbers. `keys` are columns from the names of folders: they can have a role, but are not
    channels.
    """

    name: str
    columns: tuple[str, ...]
    chunks: Callable[[Sequence[str], Sequence[str]], Iterator[Columns]]
    text: bool = False
    keys: tuple[str, ...] = ()

    def require(self, name: str, role: str) -> str:
        """`name`, if the table has such a column; `role` is the argument that asked for it."""
        known = self.columns + self.keys
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise DataError(f"{self.name}: {role}={name!r} is not a column; {hint}the table has {shown(known)}")
        return name

    def others(self, taken: Container[str | None]) -> list[str]:
        """The columns that are not `taken`. A column without a name is refused: it is probably pandas' row numbers."""
        found = [name for name in self.columns if name not in taken]
        nameless = next((name for name in found if _NAMELESS.fullmatch(name)), None)
        if nameless is not None:
            raise DataError(
                f"{self.name}: column {self.columns.index(nameless)} has no name ({nameless!r}): row numbers? "
                "Write the table without its index (index=False), name the column, or say which columns are channels"
            )
        return found


def shown(names: Sequence[str]) -> str:
    """The first few names, for errors about tables of thousands of columns."""
    return ", ".join(map(repr, names[:12])) + (", …" if len(names) > 12 else "")


def open_table(source: Any) -> Table:
    """A pandas or polars frame, an Arrow table, or the path of a Parquet, Feather or CSV file."""
    try:
        import pyarrow as pa
    except ImportError:
        raise DataError("reading tables needs pyarrow: pip install 'tides-ssm[tables]'") from None
    if isinstance(source, (str, Path)):
        return _open_path(Path(source))
    if isinstance(source, pa.Table):
        return _arrow(source, "table")
    library = type(source).__module__.partition(".")[0]
    if library == "polars":
        return _lazy(source) if hasattr(source, "collect") else _arrow(source.to_arrow(), "table")
    if library == "pandas" and hasattr(source, "columns"):
        return _pandas(source)
    raise DataError(
        f"table: found {type(source).__module__}.{type(source).__qualname__}; wanted a pandas or polars frame, "
        "an Arrow table, or the path of a .parquet, .feather or .csv file"
    )


def _arrow(table: Any, name: str) -> Table:
    refuse_repeats(table.column_names, name)

    def chunks(wanted: Sequence[str], numeric: Sequence[str]) -> Iterator[Columns]:
        yield {column: table.column(column) for column in wanted}

    return Table(name, measured(table.column_names), chunks)


def _lazy(frame: Any) -> Table:
    """A lazy polars query, which is asked only for the wanted columns."""

    def chunks(wanted: Sequence[str], numeric: Sequence[str]) -> Iterator[Columns]:
        found = frame.select(wanted).collect().to_arrow()
        yield {column: found.column(column) for column in wanted}

    return Table("table", tuple(frame.collect_schema().names()), chunks)


def _pandas(frame: Any) -> Table:
    """A pandas frame. Named index levels count as columns, so that frames grouped by (id, time) can be passed as they
    are.

    A level that is also a column (`set_index(…, drop=False)`) is that column.
    """
    levels = [level for level in frame.index.names if level is not None and level not in frame.columns]
    if levels:
        frame = frame.reset_index(level=levels)
    names = [str(column) for column in frame.columns]
    refuse_repeats(names, "table")
    position = {name: i for i, name in enumerate(names)}

    def chunks(wanted: Sequence[str], numeric: Sequence[str]) -> Iterator[Columns]:
        yield {name: _pandas_column(frame.iloc[:, position[name]], name) for name in wanted}

    return Table("table", tuple(names), chunks)


def _pandas_column(series: Any, name: str) -> Any:
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    kind = series.cat.categories.dtype if isinstance(series.dtype, pd.CategoricalDtype) else series.dtype
    if isinstance(kind, (pd.IntervalDtype, pd.PeriodDtype)):  # as pd.cut makes them; a file holds their text
        series = series.map(str, na_action="ignore")
    if isinstance(kind, pd.SparseDtype):
        series = series.sparse.to_dense()
    # Plain numbers are shared, not copied; NaN stays NaN instead of becoming a null with a bitmap.
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "fiub" and series.dtype != np.float16:
        return pa.array(series.to_numpy(), from_pandas=False)
    if series.dtype == object and pd.api.types.infer_dtype(series) not in ("string", "integer", "floating"):
        _refuse_mixed_clocks(series, name)
    try:
        return pa.array(series, from_pandas=True)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        # Whole numbers beyond 64 bits keep their digits; not every Arrow knows UUIDs.
        if any(all(isinstance(value, kind) for value in series) for kind in (int, UUID)):
            return pa.array([str(value) for value in series])
        row, value = _odd_one_out(series)
        raise DataError(f"table: column {name!r}, row {row}: found {value!r} among other types ({error})") from None


def _refuse_mixed_clocks(series: Any, name: str) -> None:
    """Refuse times with and without a zone in one column: Arrow would read the naive ones as if they had the zone."""
    zoned: bool | None = None
    for row, value in enumerate(series):
        if not hasattr(value, "tzinfo") or value != value:
            continue
        if zoned is None:
            zoned = value.tzinfo is not None
        elif zoned != (value.tzinfo is not None):
            raise DataError(f"table: column {name!r}, row {row}: times with and without a time zone are mixed")


def _odd_one_out(series: Any) -> tuple[int, Any]:
    first = next((value for value in series if value is not None and value == value), None)
    for row, value in enumerate(series):
        if value is not None and value == value and type(value) is not type(first):
            return row, value
    return 0, first


def _open_path(path: Path) -> Table:
    import pyarrow as pa

    if not path.exists():
        raise DataError(f"{path}: no such file")
    kind = next((s.lower() for s in reversed(path.suffixes) if s.lower() not in (".gz", ".bz2", ".zst")), "")
    try:
        if path.is_dir() or kind in (".parquet", ".pq"):
            from tides.data.parquet_source import open_parquet_table

            return open_parquet_table(path)
        if kind in (".feather", ".arrow", ".ipc"):
            return _feather(path)
        if kind in (".csv", ".tsv", ".txt"):
            from tides.data.csv_source import open_csv_table

            return open_csv_table(path, "\t" if kind == ".tsv" else ",")
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path.name}: cannot be read: {error}") from None
    raise DataError(f"{path.name}: unknown kind of file; wanted .parquet, .feather, .csv or a folder of Parquet files")


def _feather(path: Path) -> Table:
    import pyarrow as pa

    with pa.memory_map(str(path)) as opened:
        names = tuple(pa.ipc.open_file(opened).schema.names)
    refuse_repeats(names, path.name)

    def chunks(wanted: Sequence[str], numeric: Sequence[str]) -> Iterator[Columns]:
        with pa.memory_map(str(path)) as opened:
            reader = pa.ipc.open_file(opened)
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
            yield from columns_of((batch.select(list(wanted)) for batch in batches), path.name)

    return Table(path.name, measured(names), chunks)


def columns_of(batches: Iterable[Any], name: str) -> Iterator[Columns]:
    import pyarrow as pa

    try:
        for batch in batches:
            if batch.num_rows:
                yield {column: batch.column(column) for column in batch.schema.names}
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{name}: cannot be read: {error}") from None


def measured(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if not _INDEX.fullmatch(name))


def refuse_repeats(names: Sequence[str], table: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(f"{table}: two columns are called {name!r}")
        seen.add(name)
