"""Observations and answers as JSON: what `tides stream` reads, keeps in its journal and writes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tides.errors import DataError
from tides.nn import Backbone, Forecaster, SequenceClassifier
from tides.streaming.policy import Status
from tides.streaming.session import StreamSession
from tides.streaming.table import unusable_key

_FIELDS = ("t", "x", "key", "static", "at", "seq")


@dataclass(frozen=True)
class Event:
    """One observation: `number` counts the lines of the source, or is the event's own `seq`."""

    number: int
    t: Any
    """As it was given: a number or ISO 8601 text."""
    time: float
    x: NDArray[np.float64]
    key: str | int | None = None
    static: Any = None
    at: Any = None
    """Offsets of its own; None: those of the session."""
    numbered: bool = False
    """Whether the number came with the event."""

    def to_json(self) -> dict[str, Any]:
        """As JSON for a journal, where `t` alone would not say whether a number counts from the clock's offset."""
        x = [None if np.isnan(value) else value for value in self.x.tolist()]
        seq = self.number if self.numbered else None
        optional = {"key": self.key, "static": self.static, "at": self.at, "seq": seq}
        told = {name: value for name, value in optional.items() if value is not None}
        return {"t": self.t, "time": self.time, "x": x} | told


@dataclass(frozen=True)
class Outcome:
    """The result of an event."""

    event: Event
    status: Status
    reason: str | None
    answer: NDArray[np.float64]
    spread: NDArray[np.float64] | None = None


def parse_event(text: bytes | str, number: int, session: StreamSession) -> Event:
    """The event in one line of JSON; `DataError` says what is wrong with it."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {error}") from None
    if not isinstance(content, dict):
        raise DataError(f'found {type(content).__name__}, wanted an object such as {{"t": 0.5, "x": [1.0, null]}}')
    return make_event(content, number, session)


def make_event(content: dict[str, Any], number: int, session: StreamSession) -> Event:
    """The event that an object describes, checked against the session's model: nothing else enters a journal."""
    unknown = [name for name in content if name not in _FIELDS]
    if unknown:
        raise DataError(f"found field {unknown[0]!r}, wanted {', '.join(_FIELDS)}")
    for name in ("t", "x"):
        if content.get(name) is None:
            raise DataError(f"field {name!r} is missing")
    key, seq = content.get("key"), content.get("seq")
    check_key(key)
    if seq is not None and (isinstance(seq, bool) or not isinstance(seq, int) or seq < 1):
        raise DataError(f"seq: found {seq!r}, wanted a whole number ≥ 1")
    time = session.clock.encode(content["t"])
    if not np.isfinite(time):  # JSON has no infinity, but 1e400 is one to Python
        raise DataError(f"t: found {content['t']}, wanted a finite time")
    row = session.profile.row(content["x"], session.channels)
    if content.get("at") is not None:
        session.check_offsets(content["at"])
    return Event(
        number=number if seq is None else seq,
        t=content["t"],
        time=time,
        x=row,
        key=key,
        static=content.get("static"),
        at=content.get("at"),
        numbered=seq is not None,
    )


def remember_event(content: dict[str, Any], number: int, session: StreamSession) -> Event:
    """The event that `Event.to_json` wrote down."""
    t, x = content["t"], content["x"]
    return Event(
        number=number,
        t=t,
        time=content["time"] if "time" in content else _recall_time(t, session),
        x=session.profile.row(x, session.channels),
        key=content.get("key"),
        static=content.get("static"),
        at=content.get("at"),
        numbered="seq" in content,
    )


def _recall_time(t: Any, session: StreamSession) -> float:
    """A time from a journal of earlier versions.

    There, `DurableSession.step` wrote encoded times, which are floats, and `tides stream` what its lines held.
    """
    return t if isinstance(t, float) else session.clock.encode(t)


def plain_json(value: Any, name: str) -> Any:
    """numpy numbers and arrays as plain JSON values; `DataError` if that is impossible."""
    try:
        return json.loads(json.dumps(value, default=lambda found: found.tolist()))
    except (AttributeError, TypeError, ValueError):
        raise DataError(f"{name}: found {value!r}, wanted numbers or text that JSON can hold") from None


def check_key(key: Any) -> str | int | None:
    """A stream's name, checked to survive a round trip through JSON."""
    if key is None or (isinstance(key, int) and not isinstance(key, bool)) or (isinstance(key, str) and _is_utf8(key)):
        return key
    raise unusable_key(key)


def _is_utf8(text: str) -> bool:
    """Whether text can be encoded: half of a surrogate pair alone cannot."""
    return text.isascii() or text.encode(errors="ignore").decode() == text


def apply_events(session: StreamSession, events: Sequence[Event]) -> list[Outcome]:
    """Take in events in this order, together if they ask for the same offsets."""
    outcomes: list[Outcome] = []
    for at, group in groupby(events, key=lambda event: event.at):
        batch = list(group)
        static = [event.static for event in batch]
        answers = session.intake.take(
            [event.key for event in batch],
            np.array([event.time for event in batch]),
            np.stack([event.x for event in batch]),
            static if any(one is not None for one in static) else None,
            session.check_offsets(at),
        )
        outcomes += [
            Outcome(
                event,
                answers.status[i],
                answers.reasons.get(i),
                answers.values[i],
                None if answers.spreads is None else answers.spreads[i],
            )
            for i, event in enumerate(batch)
        ]
    return outcomes


def describe_outcome(outcome: Outcome, session: StreamSession) -> dict[str, Any]:
    """A line of predictions: number, key, time and status, and the answer unless the event was rejected."""
    event = outcome.event
    line: dict[str, Any] = {"seq" if event.numbered else "line": event.number}
    if event.key is not None:
        line["key"] = event.key
    line |= {"t": event.t, "status": outcome.status}
    if outcome.reason is not None:
        line["reason"] = outcome.reason
    if outcome.status != "rejected":
        line |= _describe_answer(outcome, session)
    return line


def _describe_answer(outcome: Outcome, session: StreamSession) -> dict[str, Any]:
    answer, profile = outcome.answer, session.profile
    if isinstance(session.model, SequenceClassifier):
        return {"probabilities": _named(answer, profile.classes)}
    if isinstance(session.model, Forecaster):
        offsets = session.check_offsets(outcome.event.at)
        moments = np.atleast_1d(offsets).tolist()
        means = np.atleast_2d(answer)
        found: list[dict[str, Any]] = [
            {"at": at, **_beside(("at", "spread"), _named(row, profile.channels, "channel_"))}
            for at, row in zip(moments, means, strict=True)
        ]
        if outcome.spread is not None:
            for line, row in zip(found, np.atleast_2d(outcome.spread), strict=True):
                line["spread"] = _named(row, profile.channels, "channel_")
        return {"forecast": found}
    name = "features" if isinstance(session.model, Backbone) else "values"
    return {name: [_short(value) for value in answer.tolist()]}


def _named(values: NDArray[np.float64], names: Sequence[str] | None, prefix: str = "") -> dict[str, float | None]:
    if names is None or len(names) != len(values):
        names = [f"{prefix}{i}" for i in range(len(values))]
    return {name: _short(value) for name, value in zip(names, values.tolist(), strict=True)}


def _beside(taken: Sequence[str], values: dict[str, float | None]) -> dict[str, Any]:
    """Values by channel beside other fields, or under a field of their own if a channel has the name of one."""
    return {"values": values} if any(name in values for name in taken) else values


def _short(value: float) -> float | None:
    """Seven significant digits, as many as single precision holds; numbers that are not finite are null."""
    return float(f"{value:.7g}") if np.isfinite(value) else None
