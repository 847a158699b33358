"""`StreamSession`: a trained model that follows one stream or many, observation by observation."""

import copy
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tides.artefacts import identify, load, read_metadata
from tides.errors import ConfigError, DataError
from tides.nn import Backbone, Forecaster, SequenceClassifier, SequenceRegressor
from tides.nn.checks import check_model_dtype
from tides.streaming.banks import StreamModel
from tides.streaming.clock import StreamClock
from tides.streaming.intake import Intake
from tides.streaming.policy import Answers, Duplicate, Late, SameTime, StreamPolicy
from tides.streaming.profile import Profile, read_facts
from tides.streaming.stretch import check_stretch, is_plain
from tides.streaming.table import Floats, Key
from tides.streaming.undo import undone_on_error

_FIRST_CAPACITY = 16


class StreamSession:
    """Follows streams with a causal model; `step` takes in an observation and returns the answer for now.

    A classifier answers with the class probabilities of everything seen so far, a regressor with its numbers, a
    forecaster with its forecasts at the offsets `at`, a backbone with its features. Times are numbers in the model's
    unit or dates; NaN (or None) is missing. With `streams=1` there is one nameless stream, with more they are called 0,
    1, 2, …, and any other `key` starts a stream of its own.

    `late`, `duplicate`, `same_time`, `reset_after` and `history` are the fields of `StreamPolicy`. `compiled=None` uses
    the compiled step if the model has one. A model in training mode is copied. A session belongs to one thread.
    """

    def __init__(
        self,
        model: StreamModel,
        streams: int = 1,
        *,
        metadata: dict[str, Any] | None = None,
        at: Any = 0.0,
        late: Late = "reject",
        duplicate: Duplicate = "ignore",
        same_time: SameTime = "step",
        reset_after: Any = None,
        history: int = 64,
        compiled: bool | None = None,
    ) -> None:
        if not isinstance(model, (Backbone, Forecaster, SequenceClassifier, SequenceRegressor)):
            raise ConfigError(f"model: {type(model).__name__} cannot be streamed")
        device = next(model.parameters()).device
        if device.type != "cpu":
            raise ConfigError(f"model: found on {device}, wanted model.cpu(): sessions run on the processor")
        check_model_dtype((model if isinstance(model, Backbone) else model.backbone).calibration.shift)
        if isinstance(streams, bool) or not isinstance(streams, int) or streams < 1:
            raise ConfigError(f"streams: found {streams!r}, wanted an integer ≥ 1")
        # In training mode the model is still in use elsewhere.
        self.model = copy.deepcopy(model).eval() if any(part.training for part in model.modules()) else model
        self.streams = streams
        self.policy = StreamPolicy(
            late=late, duplicate=duplicate, same_time=same_time, reset_after=reset_after, history=history
        )
        self.profile = Profile.from_metadata(metadata or {})
        self.clock = StreamClock(self.profile.unit, self.profile.origin, self.profile.offset)
        self.identity = identify(model, metadata)
        silence = float("inf") if reset_after is None else self.clock.duration(reset_after, "reset_after")
        capacity = max(_FIRST_CAPACITY, streams)
        self.intake = Intake(
            self.model, self.policy, self.profile, self.clock, silence=silence, capacity=capacity, compiled=compiled
        )
        self.channels = self.intake.channels
        self._at = self.check_offsets(at)

    @classmethod
    def load(cls, folder: str | Path, streams: int = 1, **options: Any) -> Self:
        """A session with the model that `tides.save`, an estimator or `tides train` wrote; options as in the
        constructor.
        """
        model: Any = load(folder)
        return cls(model, streams, metadata={**read_metadata(folder), **read_facts(folder)}, **options)

    @property
    def keys(self) -> list[Key]:
        """The streams that have been observed."""
        return list(self.intake.table)

    def step(self, t: Any, x: Any, key: Key = None, *, static: Any = None, at: Any = None) -> NDArray[np.float64]:
        """Take in the observation `x` (d,) at `t` and answer: (k,) or, for several offsets `at`, (q, c).

        With `streams` > 1 and no key, x (streams, d) is one observation of every stream, `t` one time or one each. A
        rejected observation raises `DataError` and changes nothing; an ignored one changes nothing. Give `static` with
        a stream's first observation; a later one replaces what it names from then on.
        """
        if key is None and self.streams > 1:
            return self._step_all(t, x, static, at)
        return self._step_one(self.clock.encode(t), self.profile.row(x, self.channels), key, static, at)

    def _step_one(self, time: float, row: Floats, key: Key, static: Any, at: Any) -> Floats:
        given = None if static is None else [static]
        answers = self.intake.take([key], np.array([time]), row[None], given, self.check_offsets(at))
        if answers.status[0] == "rejected":
            raise DataError(answers.reasons[0] if key is None else f"stream {key!r}: {answers.reasons[0]}")
        found: Floats = answers.values[0]
        return found

    def _step_all(self, t: Any, x: Any, static: Any, at: Any) -> Floats:
        times = self.clock.encode_all(t)
        times = np.repeat(times, self.streams) if times.size == 1 else times
        answers = self._take(list(range(self.streams)), times, x, static, at, all_or_none=True)
        if answers.reasons and "rejected" in answers.status:  # only the model could tell
            where = answers.status.index("rejected")
            raise DataError(f"stream {where}: {answers.reasons[where]}")
        return answers.values

    def step_many(
        self, keys: Sequence[Key], times: Any, X: Any, *, static: Sequence[Any] | None = None, at: Any = None
    ) -> Answers:
        """One observation of each key, X (n, d), in this order; a key may occur several times.

        A single bad observation raises nothing: its status and the reason are in the answers.
        """
        if not np.iterable(keys):
            raise DataError(f"keys: found {keys!r}, wanted one key for each observation")
        return self._take(list(keys), self.clock.encode_all(times), X, static, at)

    def _take(
        self,
        keys: list[Key],
        times: Floats,
        X: Any,
        static: Sequence[Any] | None,
        at: Any,
        *,
        all_or_none: bool = False,
    ) -> Answers:
        values, n = self.profile.rows(X), len(keys)
        if static is not None and (isinstance(static, (str, Mapping)) or not np.iterable(static)):
            raise DataError(f"static: found {static!r}, wanted one entry for each observation")
        if n == values.size == 0:
            values = values.reshape(0, self.channels)
        if values.shape != (n, self.channels) or times.shape != (n,) or (static is not None and len(static) != n):
            raise DataError(
                f"keys, times, X: found {n}, {times.shape}, {values.shape}, "
                f"wanted n keys, (n,) times and (n, {self.channels}) values"
            )
        return self.intake.take(keys, times, values, static, self.check_offsets(at), all_or_none=all_or_none)

    def catch_up(
        self, times: Any, values: Any, key: Key = None, *, static: Any = None, at: Any = None
    ) -> NDArray[np.float64]:
        """Take in a stretch of past observations at once, values (l, d) at times (l,); returns the answer after the
        last.

        If a row would be rejected, the error names it and nothing of the stretch is taken.
        """
        encoded, rows = self.clock.encode_all(times), self.profile.rows(values)
        if encoded.ndim != 1 or len(encoded) == 0 or rows.shape != (len(encoded), self.channels):
            raise DataError(
                f"values: found {rows.shape}, wanted (l, {self.channels}) with l = {len(encoded)} times ≥ 1"
            )
        if key is None and self.streams > 1:
            raise DataError("key: several streams are followed; say which one catches up")
        self.check_offsets(at)
        check_stretch(self.intake, self.intake.table.row(key), encoded, rows)
        with undone_on_error(self.intake, key):
            return self._catch_up(encoded, rows, key, static, at)

    def _catch_up(self, times: Floats, values: Floats, key: Key, static: Any, at: Any) -> Floats:
        # The first row goes through every check; the rest is read at once if nothing in it needs a decision.
        answer = self._step_stretch(times, values, 0, key, static, at)
        # A model that is cut keeps what it needs by itself; others keep what they step through.
        kept = 2 * self.policy.history if self.policy.late == "replay" else int(self.intake.merges)
        done, plain = 1, max(1, len(times) - (0 if self.profile.cut is not None else kept))
        row = self.intake.table.require(key)
        stretch = times[1:plain], values[1:plain]
        if plain > 1 and is_plain(self.intake, row, *stretch) and self.intake.read(row, *stretch):
            answer, done = self.answer(key, at=at), plain
        for k in range(done, len(times)):
            answer = self._step_stretch(times, values, k, key, None, at)
        return answer

    def _step_stretch(self, times: Floats, values: Floats, k: int, key: Key, static: Any, at: Any) -> Floats:
        try:
            return self._step_one(times[k], values[k], key, static, at)
        except DataError as error:
            raise DataError(f"row {k} of {len(times)}: {error}") from None

    def answer(self, key: Key = None, *, at: Any = None) -> NDArray[np.float64]:
        """The answer after the newest observation, again."""
        row = np.array([self.intake.table.require(key)])
        found, _ = self.intake.split(self.intake.answers(row, self.check_offsets(at))[0])
        return found

    def peek(self, t_future: Any, key: Key = None) -> NDArray[np.float64]:
        """The answer at a later time (or times) if nothing else is observed until then; nothing changes.

        (k,) for one time, (q, k) for several; "+6h" counts from the newest observation. Needs `hold="following"`, or a
        forecaster that asks by `steps`.
        """
        row = self.intake.table.require(key)
        since = self.intake.table.last[row]
        several = not isinstance(t_future, str) and np.ndim(t_future) > 0
        elapsed = np.array([self._elapsed(t, since) for t in (t_future if several else [t_future])])
        if not len(elapsed) or not ((elapsed >= 0) & (elapsed <= self.intake.largest_gap)).all():
            raise DataError(f"t_future: found {t_future!r}, wanted times at or after the newest observation")
        gaps = elapsed.astype(self.intake.bank.real)
        if isinstance(self.model, Forecaster):
            found = self.intake.bank.peek(np.array([row]), gaps[None], None)[0]
        else:
            rows = np.full(len(gaps), row)
            found = self.intake.bank.peek(rows, gaps, self.intake.static(rows))
        answers, _ = self.intake.split(self.intake.finish(found))
        return answers if several else answers[0]

    def _elapsed(self, t: Any, since: float) -> float:
        if isinstance(t, str) and t.lstrip().startswith("+"):
            return self.clock.duration(t, "t_future")
        return self.clock.encode(t) - since

    def forget(self, key: Key) -> None:
        """Drop a stream and its state."""
        self.intake.forget(key)

    def state_dict(self) -> dict[str, Tensor]:
        """All streams as tensors that safetensors can store; see `load_state_dict`."""
        from tides.streaming.snapshot import session_state

        return session_state(self)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue where `state_dict` was taken. A state that does not fit the model raises and changes nothing."""
        from tides.streaming.snapshot import restore_session

        restore_session(self, state)

    def check_offsets(self, at: Any) -> Floats:
        """Offsets after the newest observation in the model's unit: a number or (q,)."""
        if at is None:
            return self._at
        if isinstance(self.model, Forecaster):
            several = not isinstance(at, str) and np.ndim(at) > 0
            found = [self.clock.duration(one, "at") for one in (at if several else [at])]
            if not found:
                raise DataError("at: found no offset, wanted at least one")
            if max(found) > self.intake.largest_gap:
                raise DataError(f"at: found {at!r}, later than the model can calculate with")
            return np.array(found if several else found[0])
        if not isinstance(at, Real) or at != 0:
            raise DataError(f"at: found {at!r}, but a {type(self.model).__name__} answers for now; see `peek`")
        return np.array(0.0)
