"""CSV files as a stream of columns, with errors that name the row."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tides.data.sources import Columns, Table, refuse_repeats
from tides.errors import DataError

_BLOCK_BYTES = 1 << 24


def open_csv_table(path: Path, delimiter: str) -> Table:
    """Columns asked for as numbers are read as float64, the others as text: a type guessed from the first rows
    would be contradicted by later ones (ids 1, 2, 3, … then "A12")."""
    names = tuple(_reader(path, delimiter, None, ()).schema.names)
    refuse_repeats(names, path.name)

    def chunks(wanted: Sequence[str], numeric: Sequence[str]) -> Iterator[Columns]:
        import pyarrow as pa

        try:
            for batch in _reader(path, delimiter, wanted, numeric):
                if batch.num_rows:
                    yield {column: batch.column(column) for column in wanted}
        except pa.ArrowInvalid as error:
            _find_bad_number(path, delimiter, numeric)
            raise DataError(f"{path.name}: {error}") from None

    return Table(path.name, names, chunks, text=True)


def _reader(path: Path, delimiter: str, wanted: Sequence[str] | None, numeric: Sequence[str]) -> Any:
    import pyarrow as pa
    import pyarrow.csv as pacsv

    header = None if wanted is None else {n: pa.float64() if n in numeric else pa.string() for n in wanted}
    return pacsv.open_csv(
        pa.input_stream(str(path), compression="detect"),
        read_options=pacsv.ReadOptions(block_size=_BLOCK_BYTES),
        parse_options=pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=pacsv.ConvertOptions(
            column_types=header, include_columns=None if wanted is None else list(wanted), strings_can_be_null=False
        ),
    )


def _find_bad_number(path: Path, delimiter: str, numeric: Sequence[str]) -> None:
    """Arrow says what it could not convert but not where: read those columns once more as text and look."""
    from tides.data.columns import numbers

    row = 0
    for batch in _reader(path, delimiter, list(numeric), ()):
        for column in numeric:
            numbers(batch.column(column), f"{path.name}: column {column!r}", row)
        row += batch.num_rows
