"""Categories of static columns that the training data did not have: an error, or counted as not recorded."""

import warnings
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tides.data.attributes import class_name
from tides.data.schema import StaticColumn
from tides.data.sources import shown
from tides.data.table_reader import TableReader
from tides.errors import DataError

NewCategories = Literal["error", "missing"]
Codes = NDArray[np.integer[Any]]


def known_codes(
    reader: TableReader, column: StaticColumn, codes: Codes, ids: NDArray[Any], new: NewCategories
) -> Codes:
    """The codes of a column's values, one for each series; -1 where `new` lets an unknown category be missing."""
    coder = reader.codes[column.name]
    names = [class_name(value) for value in coder.typed()]
    unknown = np.array([column.categories is not None and name not in column.categories for name in names] + [False])
    strange = unknown[codes]
    if not strange.any():
        return codes
    at = int(np.argmax(strange))
    found = dict.fromkeys(names[code] for code in codes[strange].tolist())
    count = f"{strange.sum()} of {len(codes)} series"
    if new == "missing":
        warnings.warn(
            f"{coder.where}: {count} have a category that the model does not know ({shown(list(found))}); "
            "it counts as not recorded",
            stacklevel=6,
        )
        return np.where(strange, -1, codes)
    row, name = reader.first_row(column.name, int(codes[at])), names[codes[at]]
    series = "" if reader.roles.id is None else f" of {reader.roles.id} {ids[[at]].tolist()[0]!r}"
    raise DataError(
        f"{coder.where}, row {row}: category {name!r}{series} is not among {shown(column.categories or ())} "
        f"(in {count}); leave the cell empty, or let new_categories='missing' (`--ignore-new` in commands) count it "
        "as not recorded"
    )
