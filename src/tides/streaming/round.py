"""`Round`: one observation of each of several streams; the policy decides which are accepted."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tides.errors import DataError
from tides.streaming.banks import Rows
from tides.streaming.policy import Status
from tides.streaming.profile import StaticRow
from tides.streaming.table import Floats, Key, check_new, same_rows

if TYPE_CHECKING:
    from tides.streaming.intake import Intake

Positions = NDArray[np.int64]


class Round:
    """Which observations are accepted, and why not: `verdicts` other than "taken" and `reasons`, by position."""

    def __init__(self, intake: "Intake", keys: list[Key], t: Floats, x: Floats, static: list[Any] | None) -> None:
        self.intake, self.keys, self.t, self.x, self.static = intake, keys, t, x, static
        self.verdicts: dict[int, Status] = {}
        self.reasons: dict[int, str] = {}
        self.open: NDArray[np.bool_] = np.ones(len(keys), bool)
        self.given: dict[int, StaticRow] = {}
        table = intake.table
        self.rows = table.rows(keys)
        self.known = self.rows >= 0
        check_new(key for key, known in zip(keys, self.known.tolist(), strict=True) if not known)
        self.last = np.where(self.known, table.last[self.rows], np.nan)
        self.gap = t - self.last
        self.silent = self.gap > intake.silence
        fresh = self.silent | np.isnan(self.last)
        self.elapsed = np.where(fresh, intake.first_gap(t), self.gap) if fresh.any() else self.gap

    def decide(self) -> None:
        """Decide for every observation whether it is accepted; nothing changes yet."""
        intake, policy = self.intake, self.intake.policy
        self._close(~np.isfinite(self.t), "rejected", lambda i: f"t: found {self.t[i]}, wanted a finite time")
        self._close(intake.is_too_large(self.x).any(1), "rejected", self._describe_large)
        self._close(self.elapsed > intake.largest_gap, "rejected", self._describe_silence)
        if intake.complete_rows:
            self._close(np.isnan(self.x).any(1), "rejected", lambda i: "x: missing, but the model has no mask channels")
        if intake.calibration.first_policy == "start":
            # Without replay, such a time in a known stream is refused as late.
            early = (self.t < 0) & (np.isnan(self.last) | (policy.late == "replay"))
            self._close(early, "rejected", lambda i: f"t: found {self._when(i)}, before the start of time at 0")
        if intake.static_size or self.static is not None:
            self._take_static()
        if (self.gap <= 0).any():
            self._decide_about_order()

    def _decide_about_order(self) -> None:
        """Observations that are not later than the newest one of their stream."""
        policy, late = self.intake.policy, self.gap < 0
        if policy.late == "replay":
            self._refuse_unplaceable(np.flatnonzero(late & self.open))
        else:
            verdict: Status = "ignored" if policy.late == "ignore" else "rejected"
            self._close(late, verdict, lambda i: f"late: found t = {self._when(i)} after {self._newest(i)}")
        if policy.duplicate != "take":
            self._close(self._is_repeated(), *self._duplicate())

    def require_all(self) -> None:
        """Raise for the first observation that is rejected."""
        refused = [i for i, verdict in self.verdicts.items() if verdict == "rejected"]
        if refused:
            raise DataError(f"stream {self.keys[min(refused)]!r}: {self.reasons[min(refused)]}")

    def act(self) -> Rows:
        """Pass accepted observations to the model; returns the rows of all streams that are known afterwards."""
        placed = self.open & (self.gap <= 0)
        for i in np.flatnonzero(placed & (self.gap == 0)).tolist():
            placed[i] = self.intake.merges and len(self.intake.histories[int(self.rows[i])].times) > 0
            self.intake.coincident += not placed[i]
        for i in np.flatnonzero(placed).tolist():
            self.verdicts[i] = self.intake.replay(self.keys[i], float(self.t[i]), self.x[i].copy(), self.given.get(i))
        self._step(np.flatnonzero(self.open & ~placed))
        return self.rows

    def _step(self, taken: Positions) -> None:
        intake = self.intake
        if not len(taken):
            return
        for i in taken[~self.known[taken]].tolist():
            self.rows[i] = intake.add(self.keys[i])
        self._keep_static(taken)
        for i in taken[self.silent[taken]].tolist():
            self.verdicts[i] = "reset"
            self._restart(i)
        static = [self.given.get(i) for i in taken.tolist()] if self.given else None
        intake.step(self.rows[taken], self.t[taken], self.x[taken], self.elapsed[taken], static)

    def repair(self, answers: Floats) -> list[int]:
        """Restart streams whose answers (n, …) are not finite; returns their positions.

        They start again with this observation, or without it if it alone is more than the model can take.
        """
        intake = self.intake
        broken: list[int] = []
        whole = np.isfinite(answers)
        if whole.all():
            return broken
        finite = whole.reshape(len(answers), -1).all(1)
        for i in np.flatnonzero(~finite & (self.rows >= 0)).tolist():
            # A stream with a finite answer for now is sound, whatever it answers far ahead.
            if self.verdicts.get(i) in ("ignored", "rejected") or self._answers_now(i):
                continue
            broken.append(i)
            self._restart(i)
            intake.step(self.rows[[i]], self.t[[i]], self.x[[i]], intake.first_gap(self.t[[i]]))
            self.verdicts[i], self.reasons[i] = "reset", "the answer was no finite number; the stream starts anew"
            if not self._answers_now(i):
                self._restart(i)
                self._refuse(i, "rejected", f"x: the answer to {self.x[i].tolist()} is no finite number")
        return broken

    def _answers_now(self, i: int) -> bool:
        return bool(np.isfinite(self.intake.answers(self.rows[[i]], np.array(0.0))).all())

    def _restart(self, i: int) -> None:
        row = self.rows[[i]]
        self.intake.bank.reset(row)
        self.intake.table.clear(row)
        self.intake.begin_history(int(row[0]), float(self.t[i]))

    def _take_static(self) -> None:
        """Static features of a stream's first observation; later ones replace what they name."""
        intake = self.intake
        for i in np.flatnonzero(self.open).tolist():
            static, row = None if self.static is None else self.static[i], self.rows[i]
            if static is None and intake.static_size and (row < 0 or not intake.table.told[row]):
                known = ", ".join(column.name for column in intake.profile.static) or f"{intake.static_size} numbers"
                self._refuse(i, "rejected", f"static: wanted with the first observation of a stream ({known})")
            elif static is not None and not intake.static_size:
                self._refuse(i, "rejected", "static: the model takes no static covariates")
            elif static is not None:
                try:
                    self.given[i] = intake.profile.static_row(static, intake.static_size)
                except DataError as error:
                    self._refuse(i, "rejected", str(error))

    def _keep_static(self, taken: Positions) -> None:
        table = self.intake.table
        for i in taken.tolist() if self.given else ():
            if i in self.given:
                row = self.rows[i]
                table.static[row], table.told[row] = self.given[i].over(table.static[row]), True

    def _refuse_unplaceable(self, late: Positions) -> None:
        for i in late.tolist():
            t, history = float(self.t[i]), self.intake.histories[int(self.rows[i])]
            too_late = self._describe_too_late(i)
            if too_late is not None:
                self._refuse(i, "rejected", f"late: found t = {self._when(i)}, {too_late}")
            elif self.intake.policy.duplicate != "take" and history.holds(t, self.x[i], partly=self.intake.merges):
                verdict, reason = self._duplicate()
                self._refuse(i, verdict, reason(i))

    def _describe_too_late(self, i: int) -> str | None:
        """Why an observation cannot be inserted where it belongs; None if it can."""
        intake, t, history = self.intake, float(self.t[i]), self.intake.histories[int(self.rows[i])]
        if t < history.floor:
            return f"the earliest state kept is of {intake.clock.decode(history.floor)}"
        following = history.following(t)
        if following - t > intake.silence:
            return f"but the stream starts anew at {intake.clock.decode(following)}, after a silence"
        if following - t > intake.largest_gap:
            return f"a gap of {following - t:g} before the next is longer than the model can calculate with"
        return None

    def _is_repeated(self) -> NDArray[np.bool_]:
        """Whether this is the newest observation again, or another one at its time that is still kept."""
        intake, now = self.intake, self.gap == 0
        newest = intake.table.newest[self.rows]
        same: NDArray[np.bool_] = now & same_rows(
            np.where(np.isnan(self.x), newest, self.x) if intake.merges else self.x, newest
        )
        if intake.policy.late == "replay":
            for i in np.flatnonzero(now & ~same).tolist():
                same[i] = intake.histories[int(self.rows[i])].holds(float(self.t[i]), self.x[i])
        return same

    def _duplicate(self) -> tuple[Status, Callable[[int], str]]:
        verdict: Status = "ignored" if self.intake.policy.duplicate == "ignore" else "rejected"
        return verdict, lambda i: f"duplicate: the same values were taken at t = {self._when(i)}"

    def _describe_large(self, i: int) -> str:
        if np.isinf(self.x[i]).any():
            return f"x: found infinity in {self.x[i].tolist()}"
        channel = int(np.argmax(self.intake.is_too_large(self.x[[i]])[0]))
        return f"x: found {self.x[i, channel]:g} in channel {channel}, larger than the model can calculate with"

    def _describe_silence(self, i: int) -> str:
        return f"t: found {self._when(i)}, a gap of {self.elapsed[i]:g} is longer than the model can calculate with"

    def _when(self, i: int) -> str:
        return self.intake.clock.decode(float(self.t[i]))

    def _newest(self, i: int) -> str:
        return self.intake.clock.decode(float(self.last[i]))

    def _close(self, mask: Any, verdict: Status, reason: Callable[[int], str]) -> None:
        if not mask.any():
            return
        for i in np.flatnonzero(mask & self.open).tolist():
            self._refuse(i, verdict, reason(i))

    def _refuse(self, i: int, verdict: Status, reason: str) -> None:
        self.verdicts[i], self.reasons[i] = verdict, reason
        self.open[i] = False
