"""`Intake`: decides about every observation by the policy and passes the accepted ones to the model."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tides.nn import Backbone, Forecaster, SequenceClassifier
from tides.streaming.banks import Mask, Numbers, Rows, StreamModel, make_bank
from tides.streaming.clock import StreamClock
from tides.streaming.history import History, Past, Saved, Window
from tides.streaming.leaves import Leaves
from tides.streaming.policy import Answers, Status, StreamPolicy
from tides.streaming.profile import Profile, StaticRow
from tides.streaming.round import Positions, Round
from tides.streaming.table import Floats, Key, StreamTable, are_different
from tides.streaming.undo import undone_on_error

# As in training, a predicted spread is at least this share of the target's scale.
SMALLEST_SPREAD = 1e-3


class Intake:
    """The streams of a session: their table, their states, and how an observation changes them."""

    def __init__(
        self,
        model: StreamModel,
        policy: StreamPolicy,
        profile: Profile,
        clock: StreamClock,
        *,
        silence: float,
        capacity: int,
        compiled: bool | None,
    ) -> None:
        self.model, self.policy, self.profile = model, policy, profile
        self.clock, self.silence = clock, silence
        self.bank = make_bank(model, capacity, compiled)
        config, self.calibration = self.bank.backbone.config, self.bank.backbone.calibration
        self.joins_static = _joins_static(model, profile)
        self.channels = config.input_size - (profile.static_width if self.joins_static else 0)
        self.complete_rows = config.mask_channels == "auto"
        self.largest_gap = largest_number(self.bank.real, self.calibration.time_scale)
        self.largest_value = largest_number(self.bank.real, self.calibration.scale)[: self.channels]
        self.static_size = profile.static_width if self.joins_static else getattr(model, "static_size", 0)
        width = 0 if isinstance(model, Forecaster) else _width(model)
        self.table = StreamTable(capacity, self.channels, self.static_size, width)
        self.merges = policy.same_time == "merge"
        self.coincident = 0
        """Observations that were steps of their own at the time of the one before."""
        self.histories: dict[int, Past] = {}

    def add(self, key: Key) -> int:
        """A row for a new stream."""
        if self.table.is_full:
            self.table.grow(2 * self.table.capacity)
            self.bank.grow(self.table.capacity)
        row = self.table.add(key)
        self.bank.reset(np.array([row]))
        self.begin_history(row, -np.inf)
        return row

    @property
    def keeps_history(self) -> bool:
        """Whether observations are kept: for late ones, for others of their time, or as only the last ones count."""
        return self.profile.cut is not None or self.policy.late == "replay" or self.merges

    def begin_history(self, row: int, floor: float) -> None:
        """Start keeping observations; late ones before `floor` are still refused."""
        if self.profile.cut is not None:
            self.histories[row] = Window(base=self._save(row), floor=floor, span=self.profile.cut)
        elif self.keeps_history:
            size = self.policy.history if self.policy.late == "replay" else 1
            self.histories[row] = History(base=self._save(row), floor=floor, size=size)

    def forget(self, key: Key) -> None:
        self.table.require(key)
        self.histories.pop(self.table.remove(key), None)

    def take(
        self,
        keys: Sequence[Key],
        times: Floats,
        values: Floats,
        static: Sequence[Any] | None,
        offsets: Floats,
        *,
        all_or_none: bool = False,
    ) -> Answers:
        """Take in observations in this order; each ends with a status, and rejected ones change nothing.

        With `all_or_none`, for keys that are all different, a rejected one raises an error and none of them changes
        anything.
        """
        status: list[Status] = ["taken"] * len(keys)
        reasons: dict[int, str] = {}
        found = np.full((len(keys), *self._answer_shape(offsets)), np.nan)
        for positions in _rounds(keys):
            names = [keys[i] for i in positions]
            given = None if static is None else [static[i] for i in positions]
            one = Round(self, names, times[positions], values[positions], given)
            one.decide()
            if all_or_none:
                one.require_all()
            rows = one.act()
            known = np.flatnonzero(rows >= 0)
            found[positions[known]] = self.answers(rows[known], offsets)
            for i in one.repair(found[positions]):
                found[positions[i]] = self.answers(rows[[i]], offsets)[0]
            for i, verdict in one.verdicts.items():
                status[positions[i]] = verdict
            reasons |= {int(positions[i]): reason for i, reason in one.reasons.items()}
        return Answers(*self.split(found), status, reasons)

    def answers(self, rows: Rows, offsets: Floats) -> Floats:
        """The answers of these streams as they are; NaN where nothing was observed."""
        if not isinstance(self.model, Forecaster):
            return self.table.answers[rows]
        elapsed = np.tile(offsets.reshape(1, -1).astype(self.bank.real), (len(rows), 1))
        found = self.finish(self.bank.peek(rows, elapsed, None)) if len(rows) else np.zeros((0, 1, self.model.channels))
        found[self.table.count[rows] == 0] = np.nan
        return found if offsets.ndim else found[:, 0]

    def split(self, found: Floats) -> tuple[Floats, Floats | None]:
        """Answers, and their standard deviations where the model predicts them."""
        if self.profile.spread is None or not isinstance(self.model, Forecaster):
            return found, None
        c = len(self.profile.spread)
        return found[..., :c], found[..., c:]

    def _answer_shape(self, offsets: Floats) -> tuple[int, ...]:
        if isinstance(self.model, Forecaster):
            return (*offsets.shape, self.model.channels)
        return self.table.answers.shape[1:]

    def finish(self, raw: Numbers) -> Floats:
        """A model's output as the task's answer, in float64."""
        found = raw.astype(np.float64)
        if isinstance(self.model, SequenceClassifier):
            return _softmax(found)
        if isinstance(self.model, Forecaster) and self.profile.spread is not None:
            spread = found[..., len(self.profile.spread) :]
            # Softplus, as in training.
            spread[:] = (np.logaddexp(0.0, spread) + SMALLEST_SPREAD) * self.profile.spread
        return found

    def first_gap(self, t: Floats) -> Floats:
        """The gap before first observations, by the model's policy."""
        if self.calibration.first_policy == "start":
            return t
        return np.full_like(t, self.calibration.first_gap.item())

    def static(self, rows: Rows) -> Numbers | None:
        """Static features that go into the head; a forecaster reads them as channels."""
        if self.joins_static or not self.static_size:
            return None
        static: Numbers = self.table.static[rows].astype(self.bank.real)
        return static

    def step(
        self, rows: Rows, t: Floats, x: Floats, gaps: Floats, static: Sequence[StaticRow | None] | None = None
    ) -> None:
        """Accepted observations, one per row, with their static covariates (None: nothing)."""
        answer = self.bank.step(rows, *self._arrays(x, self.table.static[rows], gaps), self.static(rows))
        self.table.last[rows], self.table.newest[rows] = t, x
        self.table.count[rows] += 1
        if answer is not None:
            self.table.answers[rows] = self.finish(answer)
        if self.histories:
            told = static or [None] * len(rows)
            for row, time, value, given in zip(rows.tolist(), t.tolist(), x, told, strict=True):
                history = self.histories[row]
                if history.append(time, value.copy(), given):
                    self._read_again(row)
                history.reach(len(history.times), partial(self._save, row))

    def is_too_large(self, values: Floats) -> NDArray[np.bool_]:
        """Whether values (n, d) are too large for the model's arithmetic."""
        large: NDArray[np.bool_] = np.abs(values) > self.largest_value
        return large

    def read(self, row: int, times: Floats, values: Floats) -> bool:
        """A stretch of one stream at once; False, with nothing changed, if its answer is not finite."""
        before, answer, history = self._leaves(row), self.table.answers[row].copy(), self.histories.get(row)
        if isinstance(history, Window):
            self.histories[row] = history.extended(times, values)
            self._read_again(row)
        else:
            self._read(row, times, values, np.tile(self.table.static[row], (len(times), 1)), self.table.last[row])
        if not np.isfinite(self.answers(np.array([row]), np.array(0.0))).all():
            self.bank.put(np.array([row]), before)
            self.table.answers[row] = answer
            if history is not None:
                self.histories[row] = history
            return False
        self.table.last[row], self.table.newest[row] = times[-1], values[-1]
        self.table.count[row] += len(times)
        if not isinstance(history, Window):
            self.begin_history(row, float(times[-1]))
        return True

    def replay(self, key: Key, t: float, x: Floats, given: StaticRow | None) -> Status:
        """Put an observation where it belongs and take in again what came after it; an error changes nothing."""
        with undone_on_error(self, key):
            row = self.table.row(key)
            history = self.histories[row]
            merged = self.merges and history.merge(t, x, given)
            if not merged:
                history.insert(t, x, given)
            self._read_again(row)
            self.table.newest[row] = history.values[-1]
            self.table.count[row] += not merged
        return "merged" if merged else "replayed"

    def _read_again(self, row: int) -> None:
        """The state of a stream from all that is kept of it."""
        history = self.histories[row]
        self.bank.put(np.array([row]), history.base.leaves)
        times, values, static = np.array(history.times), np.stack(history.values), history.static_rows()
        self.table.static[row] = static[-1]
        begin, since = 0, history.since
        for end in history.stops():
            self._read(row, times[begin:end], values[begin:end], static[begin:end], since)
            begin, since = end, times[end - 1]
            history.reach(end, partial(self._save_as, row, times[end - 1], static[end - 1]))

    def _read(self, row: int, times: Floats, values: Floats, static: Floats, since: float) -> None:
        gaps = np.diff(times, prepend=since)
        if np.isnan(since):
            gaps[0] = self.first_gap(times[:1])[0]
        answer = self.bank.read(row, *self._arrays(values, static, gaps), self.static(np.array([row])))
        if answer is not None:
            self.table.answers[row] = self.finish(answer)[0]

    def _arrays(self, x: Floats, static: Floats, gaps: Floats) -> tuple[Numbers, Mask, Numbers]:
        if self.joins_static:
            x = np.concatenate([x, static], axis=1)
        seen, real = ~np.isnan(x), self.bank.real
        return np.where(seen, x, 0.0).astype(real), seen, gaps.astype(real)

    def _save(self, row: int) -> Saved:
        return self._save_as(row, float(self.table.last[row]), self.table.static[row].copy())

    def _save_as(self, row: int, last: float, static: Floats) -> Saved:
        return Saved(self._leaves(row), last, static)

    def _leaves(self, row: int) -> Leaves:
        return {name: leaf.clone() for name, leaf in self.bank.get(np.array([row])).items()}


def largest_number(real: Any, scale: Tensor) -> Floats:
    """The largest number allowed for this scale: the layer squares values, and a square must not overflow."""
    largest = float(np.finfo(real).max)
    bound: Floats = np.minimum(np.sqrt(largest) * scale.double().numpy(force=True), largest)
    return bound


def _rounds(keys: Sequence[Key]) -> Iterator[Positions]:
    """Positions in groups, in order, in which every key occurs at most once."""
    if are_different(keys):
        yield np.arange(len(keys))
        return
    groups: list[list[int]] = []
    times_seen: dict[Key, int] = {}
    for position, key in enumerate(keys):
        number = times_seen.get(key, 0)
        times_seen[key] = number + 1
        if number == len(groups):
            groups.append([])
        groups[number].append(position)
    yield from (np.array(group) for group in groups)


def _softmax(logits: Floats) -> Floats:
    """Softmax in float64, of numbers of any size."""
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    shares: Floats = powers / powers.sum(-1, keepdims=True)
    return shares


def _joins_static(model: StreamModel, profile: Profile) -> bool:
    """Whether static columns are additional channels of every row, as in estimators' forecasters."""
    if not isinstance(model, Forecaster) or profile.channels is None or not profile.static:
        return False
    return len(profile.channels) + profile.static_width == model.config.input_size


def _width(model: StreamModel) -> int:
    if isinstance(model, Backbone):
        return model.config.hidden_size
    return int(model.head.out_features)
