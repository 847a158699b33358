"""Arrow columns to numpy: numbers and category codes, with errors that name column and row."""

import re
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from tides.errors import DataError

# Text that stands for "not recorded" in a CSV: the words of pandas, so that a frame and its file agree ("none" may be a
# category). In ids and channel names only the empty text is missing.
MISSING_TEXT = frozenset(
    {"", "NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "<NA>", "NULL", "null", "None"}
    | {"NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"}
)
_PADDED = re.compile(r"[+-]?0\d")


def numbers(array: Any, where: str, row: int = 0, *, hint: str = "") -> NDArray[np.floating[Any]]:
    """A column as float32 (if it is) or float64, NaN where null.

    `row` is the table row of its first entry. `hint` is added to the error about a column of another kind.
    """
    import pyarrow as pa

    kind = plain(array).type
    if pa.types.is_null(kind):
        return np.full(len(array), np.nan)
    if is_text(kind):
        values = _numbers_from_text(plain(array), where, row, hint)
    elif pa.types.is_float32(kind) or pa.types.is_float64(kind):
        values = _to_numpy(plain(array))
    elif any(
        test(kind) for test in (pa.types.is_integer, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_float16)
    ):
        # safe=False: integers beyond 2**53 are rounded to the nearest float64 like any other number.
        values = _to_numpy(plain(array).cast(pa.float64(), safe=False))
    else:
        raise DataError(f"{where} holds {kind}; wanted numbers{hint}")
    infinite = np.isinf(values)
    if infinite.any():
        at = int(np.argmax(infinite))
        raise DataError(f"{where}, row {row + at}: found {values[at]}; wanted a finite number or nothing")
    return values


def is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def plain(array: Any) -> Any:
    """Dictionary-encoded (categorical) columns as ordinary ones."""
    import pyarrow as pa

    return array.cast(array.type.value_type) if pa.types.is_dictionary(array.type) else array


def _to_numpy(array: Any) -> NDArray[Any]:
    numpy: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return numpy


def _numbers_from_text(array: Any, where: str, row: int, hint: str) -> NDArray[np.float64]:
    import pyarrow as pa
    import pyarrow.compute as pc

    blank = pc.is_in(pc.utf8_trim_whitespace(array), value_set=pa.array(sorted(MISSING_TEXT), array.type))
    trimmed = pc.if_else(blank, pa.scalar(None, array.type), pc.utf8_trim_whitespace(array))
    try:
        return _to_numpy(trimmed.cast(pa.float64()))
    except pa.ArrowInvalid:
        pass
    try:
        # Truth values, as a frame's column of them is written to a file.
        return _to_numpy(trimmed.cast(pa.bool_()).cast(pa.float64()))
    except pa.ArrowInvalid:
        pass
    odd = _no_numbers(trimmed)
    # Show the others too, so that all can be mended at once.
    more = f" and further on {', '.join(map(repr, odd[1:4]))}{', …' if len(odd) > 4 else ''}" if odd[1:] else ""
    at = pc.index(trimmed, odd[0]).as_py()
    raise DataError(f"{where}, row {row + at}: found {odd[0]!r}{more}; wanted a number{comma_hint(odd[0])}{hint}")


def _no_numbers(column: Any) -> list[str]:
    """The distinct entries that do not convert, in order of appearance."""
    import pyarrow.compute as pc

    distinct = column.unique().drop_null()
    # Numbers in the usual form need not be tried one by one.
    rest = distinct.filter(pc.invert(pc.match_substring_regex(distinct, r"^[+-]?\d+(\.\d*)?$")))
    return [text for text in rest.to_pylist() if not _converts(text)]


def _converts(text: str) -> bool:
    import pyarrow as pa

    try:
        pa.scalar(text, pa.string()).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def comma_hint(text: str) -> str:
    """A hint for text that would be a number but for its commas."""
    for written in (text.replace(",", "."), text.replace(",", "")):
        try:
            float(written)
        except ValueError:
            continue
        if written != text:
            return " (a decimal comma, or thousands? Let pandas read the file, with decimal=',' or thousands=',')"
    return ""


class Coder:
    """Small integers for the distinct values of a column, in order of appearance, over all its chunks."""

    def __init__(self, where: str, *, text: bool = False, required: bool = False) -> None:
        self.where = where
        self.text = text
        self.required = required
        self.values: list[Any] = []
        self._code: dict[Any, int] = {}

    def encode(self, array: Any, row: int) -> NDArray[np.int32]:
        """Codes of one chunk, -1 where missing; a missing entry of a required column raises."""
        import pyarrow as pa

        chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
        codes = np.concatenate([self._encode_chunk(chunk) for chunk in chunks] or [np.empty(0, np.int32)])
        if self.required and (codes < 0).any():
            raise DataError(
                f"{self.where}, row {row + int(np.argmax(codes < 0))}: nothing recorded; wanted a value, or no such row"
            )
        return codes

    def _encode_chunk(self, chunk: Any) -> NDArray[np.int32]:
        import pyarrow as pa

        kind = chunk.type.value_type if pa.types.is_dictionary(chunk.type) else chunk.type
        uuids = getattr(kind, "extension_name", "") == "arrow.uuid"
        if uuids and chunk.type == kind:
            chunk, kind = chunk.storage, kind.storage_type
        if pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
            raise DataError(f"{self.where} holds {kind}; wanted single values")
        encoded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        if uuids:
            distinct = [None if value is None else str(UUID(bytes=value)) for value in distinct]
        index = encoded.indices.fill_null(len(distinct)) if encoded.indices.null_count else encoded.indices
        rows: NDArray[Any] = index.to_numpy(zero_copy_only=False)
        occurs = np.zeros(len(distinct) + 1, np.bool_)
        occurs[rows] = True
        # Distinct values of a chunk are looked up one by one, its rows only through their index; categories that were
        # declared but do not occur are no values of the column.
        found = [self._look_up(value) if here else -1 for value, here in zip(distinct, occurs[:-1], strict=True)]
        codes: NDArray[np.int32] = np.array([*found, -1], np.int32)[rows]
        return codes

    def _look_up(self, value: Any) -> int:
        if value is None or value != value:
            return -1
        if self.text:
            value = value.strip()
        if self.text and (value == "" or (not self.required and value in MISSING_TEXT)):
            return -1
        code = self._code.get(value)
        if code is None:
            code = self._code[value] = len(self.values)
            self.values.append(value)
        return code

    def typed(self, *, names: bool = False) -> list[Any]:
        """The distinct values; those of a text file become numbers if all of them are.

        Names (ids, channels) become whole numbers only, and only from their plain form: "1", "01" and "1.0" are three
        names.
        """
        if self.text:
            for parse in (whole,) if names else (whole, number):
                try:
                    return [parse(value) for value in self.values]
                except ValueError:
                    continue
        return list(self.values)


def whole(text: str) -> int:
    """A whole number from its plain form; ValueError for other text."""
    number = int(text)
    if str(number) != text:
        raise ValueError(f"{text!r} is not the plain form of {number}")
    return number


def number(text: str) -> float:
    """A number as written in tables; ValueError for other text."""
    # Python reads 1_000 as a number and 01 as well; a table means a name, and a frame keeps it as one.
    if "_" in text or _PADDED.match(text):
        raise ValueError(f"{text!r} is not a number")
    return float(text)


def ranked(values: Sequence[Any], where: str) -> NDArray[np.int64]:
    """Rank of each distinct value in sorted order, so that results do not depend on the order of rows."""
    try:
        order = sorted(range(len(values)), key=lambda i: values[i])
    except TypeError as error:
        raise DataError(f"{where} mixes values that cannot be ordered: {error}") from None
    rank = np.empty(len(values), np.int64)
    rank[order] = np.arange(len(values))
    return rank
