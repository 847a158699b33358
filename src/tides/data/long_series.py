"""Long series in pieces, for learning from a few of them or from one alone."""

from datetime import timedelta
from itertools import pairwise

import numpy as np

from tides.data.dataset import IrregularDataset
from tides.data.series import IrregularSeries
from tides.errors import DataError
from tides.rounding import slack
from tides.units import duration_in


def pieces(data: IrregularDataset, length: float | str | timedelta) -> IrregularDataset:
    """Every series in consecutive pieces of this duration, in order of time; each piece is a series of its own.

    `length` is a number in the data set's unit or a duration such as "7d". A piece is called after its series and its
    number, as in "pump/3", and has that series as its group, unless the series has a group already; a series that is
    not longer than a piece stays as it is. Times are not changed. Pieces in which nothing was observed are left out.
    Series with a label or a question raise `DataError`, because every piece would carry it.
    """
    span = duration_in(length, data.unit, "length")
    if span <= 0:
        raise DataError(f"length={length!r}; wanted a time span above 0")
    found: list[IrregularSeries] = []
    for position, series in enumerate(data):
        if series.label is not None or series.target is not None:
            what = "label" if series.label is not None else "question"
            raise DataError(f"series {series.id!r} has a {what}; each of its pieces would carry it")
        owner = position if series.id is None else series.id
        group = owner if series.group is None else series.group
        times = series.times
        number = np.floor((times - times[:1] + slack(times)) / span).astype(np.int64)
        bounds = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(times)]
        for begin, end in pairwise(bounds):
            if not series.observed[begin:end].any():
                continue
            if number[-1] == 0:
                found.append(series.replace(group=group))
                continue
            found.append(
                series.replace(
                    values=series.values[begin:end],
                    times=times[begin:end],
                    observed=series.observed[begin:end],
                    id=f"{owner}/{number[begin]}",
                    group=group,
                    start=None,
                )
            )
    return IrregularDataset(found, schema=data.schema)


def split_latest(data: IrregularDataset, share: float) -> tuple[IrregularDataset, IrregularDataset]:
    """Earlier and later pieces: of every group the last share, in the order in which they begin.

    At least one piece of a group is later, and at least one earlier; a group of a single piece is earlier.
    """
    if not 0 < share < 1:
        raise DataError(f"share={share!r}; wanted a number between 0 and 1")
    owners = data.groups or list(range(len(data)))
    begins = [data.times(i)[:1].sum() for i in range(len(data))]
    later = np.zeros(len(data), np.bool_)
    for owner in dict.fromkeys(owners):
        own = sorted((i for i, one in enumerate(owners) if one == owner), key=lambda i: begins[i])
        count = min(max(1, round(share * len(own))), len(own) - 1)
        later[own[len(own) - count :]] = True
    if not later.any():
        raise DataError("no group has two pieces, of which the later one could be held out; wanted shorter pieces")
    return data[~later], data[later]
