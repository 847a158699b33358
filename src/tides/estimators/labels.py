"""Labels beside a table: to which series does each of them belong?"""

from collections.abc import Sequence
from typing import Any

from tides.errors import DataError


def in_order_of(ids: Sequence[Any], y: Any, table: Any, id: str) -> Any:
    """`y` in the order of `ids`, the series of `table`.

    A pandas object is placed by its index: the ids, as a frame grouped by id has them, or rows of the table, one for
    each series, as `drop_duplicates` leaves them. Row numbers, and an index that has nothing to do with either, leave
    it as it is; one that has only some of the ids would give series the labels of others.
    """
    _refuse_rows(ids, y, table, id)
    index = getattr(y, "index", None)
    if not hasattr(y, "loc") or index is None or len(y) != len(ids):
        return y
    by_id = set(index) == set(ids)
    if by_id and index.name == id:
        return y.loc[ids]
    owners = _owners(index, table, id)
    by_row = set(owners) == set(ids)
    numbered = type(index).__name__ == "RangeIndex"
    if by_row and owners != list(index if by_id else ids) and (by_id or numbered):
        raise DataError(
            f"y: its index may mean rows of the table or {'ids' if by_id else 'places among the sorted ids'}, and they "
            f"disagree; wanted ids in an index called {id!r}, or a column of the table named as label"
        )
    if by_id:
        return y.loc[ids]
    if by_row:
        return y.set_axis(owners).loc[ids]
    if numbered or not {str(one) for one in index} & {str(one) for one in ids}:
        return y
    known = set(index)
    missing = next(one for one in ids if one not in known)
    raise DataError(
        f"y: found an index without {missing!r}, the id of a series; wanted all ids as the table has them (a number is "
        "no text), or y in their order without an index"
    )


def _refuse_rows(ids: Sequence[Any], y: Any, table: Any, id: str) -> None:
    """A label for every row would put rows of one series on both sides of a cross-validation that cuts by rows."""
    if not hasattr(y, "__len__") or not hasattr(table, "__len__") or isinstance(table, str):
        return
    if len(y) == len(table) != len(ids):
        raise DataError(
            f"y: found {len(y)} labels, one for each row of the table; wanted one for each of the {len(ids)} series "
            f"that {id!r} names, or label=… for a column of labels"
        )


def _owners(index: Any, table: Any, id: str) -> list[Any]:
    """The ids that stand in these rows of a frame; none where the index does not name rows of it."""
    rows = getattr(table, "index", None)
    if rows is None or not hasattr(table, "loc") or id not in table.columns:
        return []
    if not rows.is_unique or rows.nlevels > 1 or not index.isin(rows).all():
        return []
    owners: list[Any] = table.loc[index, id].tolist()
    return owners
