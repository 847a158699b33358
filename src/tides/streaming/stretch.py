"""A stretch of past observations: what is wrong with it, and whether the model may read it in one piece."""

from typing import TYPE_CHECKING

import numpy as np

from tides.errors import DataError
from tides.streaming.table import Floats, same_rows

if TYPE_CHECKING:
    from tides.streaming.intake import Intake


def is_plain(intake: "Intake", row: int, times: Floats, values: Floats) -> bool:
    """Whether a stretch contains nothing that the policy must decide about."""
    before = np.concatenate([intake.table.last[[row]], times])
    gaps = np.diff(before)
    fine = (gaps >= 0) & (gaps <= min(intake.silence, intake.largest_gap)) & ~intake.is_too_large(values).any(1)
    if intake.complete_rows:
        fine &= ~np.isnan(values).any(1)
    if intake.merges:
        fine &= gaps > 0
    return bool(fine.all()) and (intake.policy.duplicate == "take" or not _has_repeats(intake, row, times, values))


def _has_repeats(intake: "Intake", row: int, times: Floats, values: Floats) -> bool:
    """Whether a stretch repeats an observation that a step would recognise."""
    before = np.concatenate([intake.table.newest[[row]], values])
    repeated = (np.diff(times, prepend=intake.table.last[row]) == 0) & same_rows(before[1:], before[:-1])
    if repeated.any() or intake.policy.late != "replay":
        return bool(repeated.any())
    now = np.flatnonzero(times == intake.table.last[row])
    rows = np.column_stack([times, values]) + 0.0  # no −0, and every NaN the same
    rows[np.isnan(rows)] = np.nan
    return len({one.tobytes() for one in rows}) < len(rows) or any(
        intake.histories[row].holds(float(times[k]), values[k]) for k in now.tolist()
    )


def check_stretch(intake: "Intake", row: int, times: Floats, values: Floats) -> None:
    """Raise for observations that can be seen at once to be rejected, for the stream in `row` (−1: a new one).

    The rest is left to the policy, row by row.
    """
    last = intake.table.last[row] if row >= 0 else np.nan
    problems = {
        "a time that is not finite": ~np.isfinite(times),
        "a value that is infinite or larger than the model can calculate with": intake.is_too_large(values).any(1),
    }
    if intake.complete_rows:
        problems["a missing value, but the model has no mask channels"] = np.isnan(values).any(1)
    if intake.policy.late == "reject":
        problems["a time before the one it follows"] = np.diff(times, prepend=last) < 0
    for problem, bad in problems.items():
        if bad.any():
            at = int(np.argmax(bad))
            raise DataError(f"row {at} of {len(times)}, t = {intake.clock.decode(times[at])}: found {problem}")
