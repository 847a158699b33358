"""CSV files as a stream of columns, with errors that name the row."""

import codecs
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from tides.data.columns import MISSING_TEXT
from tides.data.sources import Columns, Table, refuse_repeats
from tides.errors import DataError

_BLOCK_BYTES = 1 << 24
_HEAD_BYTES = 1 << 16


def open_csv_table(path: Path, delimiter: str) -> Table:
    """Columns asked for as numbers are read as float64, the others as text.

    A type guessed from the first rows could be contradicted by later ones (ids 1, 2, 3, … then "A12").
    """
    with path.open("rb") as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            raise DataError(f"{path.name}: found text in UTF-16; save it as UTF-8")
    _check_header(path, delimiter)
    try:
        names = tuple(_reader(path, delimiter, None, ()).schema.names)
    except UnicodeDecodeError:
        raise DataError(f"{path.name}: found a header that is not UTF-8; save the file as UTF-8") from None
    refuse_repeats(names, path.name)

    def chunks(wanted: Sequence[str], numeric: Sequence[str]) -> Iterator[Columns]:
        import pyarrow as pa

        done = 0
        try:
            for batch in _reader(path, delimiter, wanted, numeric):
                done += 1
                if batch.num_rows:
                    yield {column: batch.column(column) for column in wanted}
            return
        except pa.ArrowInvalid:
            pass
        # Arrow says what is not a number, but not where. Read as text, it is missing (blanks) or its row is named.
        try:
            for batch in islice(_reader(path, delimiter, wanted, ()), done, None):
                if batch.num_rows:
                    yield {column: batch.column(column) for column in wanted}
        except pa.ArrowInvalid as error:
            hint = "; save the file as UTF-8" if "invalid UTF8" in str(error) else ""
            raise DataError(f"{path.name}: cannot be read: {error}{hint}") from None

    return Table(path.name, names, chunks, text=True)


def _check_header(path: Path, delimiter: str) -> None:
    """Refuse files with another delimiter, which would become one wide column.

    In many countries spreadsheets use semicolons; some write the delimiter into a line of its own.
    """
    import pyarrow as pa

    with pa.input_stream(str(path), compression="detect") as file:
        head = file.read(_HEAD_BYTES)
    header = next(iter(head.lstrip(b"\r\n ").splitlines()), b"").decode(errors="replace").strip("\ufeff")
    if not header:
        raise DataError(f"{path.name}: the file is empty")
    if header.strip('"').startswith("sep="):
        raise DataError(f"{path.name}: found {header!r} in the first line, wanted the names of the columns there")
    if len(head) < _HEAD_BYTES and len(head.strip().splitlines()) == 1:
        raise DataError(f"{path.name}: the table has no rows")
    other = next((mark for mark in ",;\t|" if mark in header), None)
    if other is not None and delimiter not in header:
        raise DataError(
            f"{path.name}: found columns separated by {other!r}, wanted {delimiter!r}; change the file, or "
            f"read it with pandas (sep={other!r}) and give the frame"
        )


def _reader(path: Path, delimiter: str, wanted: Sequence[str] | None, numeric: Sequence[str]) -> Any:
    import pyarrow as pa
    import pyarrow.csv as pacsv

    header = None if wanted is None else {n: pa.float64() if n in numeric else pa.string() for n in wanted}
    return pacsv.open_csv(
        pa.input_stream(str(path), compression="detect"),
        read_options=pacsv.ReadOptions(block_size=_BLOCK_BYTES),
        parse_options=pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=pacsv.ConvertOptions(
            column_types=header,
            include_columns=None if wanted is None else list(wanted),
            null_values=sorted(MISSING_TEXT),
            strings_can_be_null=False,
        ),
    )
