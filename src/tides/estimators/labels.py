"""Labels beside a table: to which series does each of them belong?"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tides.errors import DataError

# The column of a table that can take the place of an argument.
_COLUMNS = {"y": "label", "sample_weight": "weight"}


def in_order_of(ids: Sequence[Any], y: Any, table: Any, id: str, name: str = "y") -> Any:
    """`y`, or another argument called `name`, in the order of `ids`, the series of `table`.

    A pandas object is matched by its index: either the ids, as in a frame grouped by id (an index called `id` may hold
    further ones), or rows of the table, one per series, as left by `drop_duplicates`. Row numbers, and an index
    unrelated to either, keep their order. An index with only some of the ids is refused, since series would get the
    labels of others.
    """
    _refuse_rows(ids, y, table, id, name)
    index = getattr(y, "index", None)
    if not hasattr(y, "loc") or index is None:
        return y
    if index.name == id and len(y) > len(ids) and index.is_unique and set(ids) <= set(index):
        return y.loc[ids]
    if len(y) != len(ids):
        return y
    by_id = set(index) == set(ids)
    if by_id and index.name == id:
        return y.loc[ids]
    owners = _owners(index, table, id)
    by_row = set(owners) == set(ids)
    numbered = list(index) == list(range(len(index)))
    if by_row and owners != list(index if by_id else ids) and (by_id or numbered):
        raise DataError(
            f"{name}: its index could mean rows of the table or {'ids' if by_id else 'places among the sorted ids'}, "
            f"which disagree; wanted an index of ids called {id!r}, or {_COLUMNS[name]}=… for a column of the table"
        )
    if by_id:
        return y.loc[ids]
    if by_row:
        return y.set_axis(owners).loc[ids]
    if numbered:
        return y
    if not {str(one) for one in index} & {str(one) for one in ids}:
        _refuse_other_rows(index, table, name)
        return y
    known = set(index)
    missing = next(one for one in ids if one not in known)
    raise DataError(
        f"{name}: found an index without {missing!r}, the id of a series; wanted all ids as in the table (the "
        f"number 1 is not the text '1'), or {name} in their order without an index"
    )


def _refuse_rows(ids: Sequence[Any], y: Any, table: Any, id: str, name: str) -> None:
    """Refuse a label for every row: cross-validation by rows would put rows of one series on both sides."""
    if not hasattr(y, "__len__") or not hasattr(table, "__len__") or isinstance(table, str):
        return
    if len(y) == len(table) != len(ids):
        column = _COLUMNS[name]
        raise DataError(
            f"{name}: found {len(y)} {column}s, one for each row of the table; wanted one for each of the {len(ids)} "
            f"series that {id!r} names, or {column}=… for a column of {column}s"
        )


def _refuse_other_rows(index: Any, table: Any, name: str) -> None:
    """Refuse an index of rows that are no longer in the table, or of two rows of one series: it is unclear whose labels
    these are.
    """
    rows = getattr(table, "index", None)
    if hasattr(table, "loc") and rows is not None and index.isin(rows).any():
        raise DataError(
            f"{name}: its index names rows of the table, but not one of each series; wanted one row for each, or the "
            "ids"
        )


def is_missing(one: Any) -> bool:
    """None, NaN, and the missing values of pandas."""
    return one is None or type(one).__name__ in ("NAType", "NaTType") or (isinstance(one, float) and one != one)


def stated(y: Any) -> NDArray[np.bool_]:
    """Whether `y`, (n,) or (n, targets), gives a value for each series (n,)."""
    entries = np.asarray(y, object)
    missing = np.array([is_missing(one) for one in entries.flat], np.bool_)
    return np.logical_not(missing.reshape(len(entries), -1).all(axis=1))


def refuse_dates(y: Any) -> None:
    """Refuse dates and durations: as numbers they would depend on their resolution."""
    kind = np.asarray(y).dtype.kind
    if kind in "mM":
        found, unit = ("durations", "y / pd.Timedelta('1h')") if kind == "m" else ("dates", "hours since a date")
        raise DataError(f"y: found {found}, wanted classes or numbers in a unit, such as {unit}")


def _owners(index: Any, table: Any, id: str) -> list[Any]:
    """The ids of these rows of a frame; none if the index does not name rows of it."""
    rows = getattr(table, "index", None)
    if rows is None or not hasattr(table, "loc") or id not in table.columns:
        return []
    if not rows.is_unique or rows.nlevels > 1 or not index.isin(rows).all():
        return []
    owners: list[Any] = table.loc[index, id].tolist()
    return owners
