"""`undone_on_error`: what happens to a stream happens whole or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from tides.streaming.table import Key

if TYPE_CHECKING:
    from tides.streaming.intake import Intake


@contextmanager
def undone_on_error(intake: "Intake", key: Key) -> Iterator[None]:
    """Should anything raise inside, the stream is as it was before, or unknown again."""
    row = intake.table.row(key)
    if row < 0:
        try:
            yield
        except BaseException:
            if key in intake.table:
                intake.forget(key)
            raise
        return
    rows = np.array([row])
    table, leaves = intake.table.get(rows), intake.bank.get(rows)
    history = intake.histories[row].copy() if row in intake.histories else None
    try:
        yield
    except BaseException:
        intake.table.put(rows, table)
        intake.bank.put(rows, leaves)
        if history is not None:
            intake.histories[row] = history
        raise
