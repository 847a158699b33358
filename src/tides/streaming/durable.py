"""`DurableSession`: a session that survives a killed process without losing an observation or counting one twice."""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from tides.errors import ConfigError, DataError
from tides.locking import lock_file
from tides.streaming.events import Event, Outcome, apply_events, check_key, plain_json, remember_event
from tides.streaming.journal import Journal
from tides.streaming.session import StreamSession
from tides.streaming.snapshot import read_snapshot, write_snapshot

# Journalled events are taken in again in pieces of this size.
_PIECE = 1024


class DurableSession:
    """Keeps a session's streams in `folder`: a journal of observations, and a snapshot after every `every` of them.

    The source numbers its observations, and numbers grow. Each observation is written to the journal, taken in,
    answered and confirmed, in this order. After a kill, the snapshot is loaded and the journal is taken in again;
    `applied` is then the number of the newest observation, and `unanswered` are the outcomes that were never confirmed.
    Observations with numbers up to `applied` have been counted: `take` skips them when the source sends them again.
    With `sync`, the journal survives a power failure as well.
    """

    def __init__(self, session: StreamSession, folder: str | Path, *, every: int = 1000, sync: bool = False) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ConfigError(f"every: found {every!r}, wanted an integer ≥ 1")
        self.session, self.folder, self.every = session, Path(folder), every
        self.folder.mkdir(parents=True, exist_ok=True)
        self._snapshot = self.folder / "snapshot.safetensors"
        self.applied = self.answered = 0
        self.numbered: bool | None = None
        """Whether events came with numbers of their own; None before the first."""
        self.unanswered: list[Outcome] = []
        with ExitStack() as opened:
            opened.enter_context(_lock(self.folder / "lock"))
            self._journal = opened.enter_context(closing(Journal(self.folder / "journal.jsonl", sync=sync)))
            self._recover()
            # A folder that cannot be followed is released at once, this one by `close`.
            self._opened = opened.pop_all()

    def _recover(self) -> None:
        if self._snapshot.exists():
            notes = read_snapshot(self.session, self._snapshot)
            self.applied = self.answered = int(notes["applied"])
            self.numbered = notes["numbered"]
        journalled, answered = self._journal.read()
        if journalled and not self._snapshot.exists():
            raise DataError(
                f"{self.folder}: found a journal without {self._snapshot.name}, which it continues; "
                "put that file back, or start again in another folder"
            )
        self.answered = max(self.answered, answered)
        # The process may have been killed between a snapshot and the clearing of its journal.
        newer = [(number, content) for number, content in journalled if number > self.applied]
        fresh = [remember_event(content, number, self.session) for number, content in newer]
        for begin in range(0, len(fresh), _PIECE):
            outcomes = apply_events(self.session, fresh[begin : begin + _PIECE])
            self.unanswered += [outcome for outcome in outcomes if outcome.event.number > self.answered]
        self._since = len(fresh)
        if fresh:
            self.applied, self.numbered = fresh[-1].number, fresh[-1].numbered
        elif not self._snapshot.exists():
            # The journal alone names neither the model nor the streams that the session already has.
            self.snapshot()

    def take(self, events: Sequence[Event]) -> list[Outcome]:
        """Write down and take in what has not been counted yet; the outcomes then wait for `confirm`."""
        if self._journal.closed:
            raise DataError(f"{self.folder}: the session was closed; open the folder again with another one")
        fresh, newest = [], self.applied
        for event in events:
            if event.number > newest:
                fresh.append(event)
                newest = event.number
        if not fresh:
            return []
        self._journal.append([(event.number, event.to_json()) for event in fresh])
        self.applied, self.numbered = newest, fresh[-1].numbered
        outcomes = apply_events(self.session, fresh)
        self._since += len(fresh)
        return outcomes

    def confirm(self) -> None:
        """Say that all outcomes so far have reached whoever asked for them."""
        self.unanswered.clear()
        if self.answered == self.applied:
            return
        self.answered = self.applied
        if self._since >= self.every:
            self.snapshot()
        else:
            self._journal.mark(self.applied)

    def step(
        self, t: Any, x: Any, key: Any = None, *, number: Any = None, static: Any = None, at: Any = None
    ) -> NDArray[np.float64] | None:
        """`StreamSession.step` with a memory; None if `number` has been counted already.

        Without `number`, observations are counted here, and the source must know what it has sent: read `applied` after
        a restart.
        """
        number = self.applied + 1 if number is None else number
        if isinstance(number, np.integer):
            number = int(number)
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise DataError(f"number: found {number!r}, wanted a whole number ≥ 1")
        outcomes = self.take([self._event(number, t, x, key, static, at)])
        self.confirm()
        if not outcomes:
            return None
        if outcomes[0].status == "rejected":
            raise DataError(str(outcomes[0].reason))
        return outcomes[0].answer

    def _event(self, number: int, t: Any, x: Any, key: Any, static: Any, at: Any) -> Event:
        """Check as for a line of JSON: what could not be read back from the journal is not written to it."""
        session = self.session
        time, row = session.clock.encode(t), session.profile.row(x, session.channels)
        if not np.isfinite(time):
            raise DataError(f"t: found {time}, wanted a finite time")
        if isinstance(key, np.generic):
            key = key.item()
        offsets = None if at is None else session.check_offsets(at).tolist()
        return Event(number, time, time, row, check_key(key), plain_json(static, "static"), offsets)

    def snapshot(self) -> None:
        """Store all streams and begin a new journal. Raises an error while outcomes are unanswered, since only the
        journal has them.
        """
        if self.answered != self.applied:
            raise DataError(
                f"{self.folder}: outcomes {self.answered + 1} to {self.applied} are not confirmed, and a snapshot "
                "would forget them; call `confirm` first"
            )
        write_snapshot(self.session, self._snapshot, {"applied": self.applied, "numbered": self.numbered})
        self._journal.clear()
        self._since = 0

    def close(self) -> None:
        """Leave a snapshot, unless outcomes are still unanswered, and release the folder."""
        if self._since and self.answered == self.applied:
            self.snapshot()
        self._release()

    def _release(self) -> None:
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error the session may have taken in half an observation; the journal is right.
        if kind is None:
            self.close()
        else:
            self._release()


def _lock(path: Path) -> BinaryIO:
    file = path.open("ab")
    try:
        lock_file(file)
    except BlockingIOError:
        file.close()
        raise DataError(f"{path.parent}: another process follows streams with this folder") from None
    except OSError:
        pass  # on a disk that knows no locks nothing is locked
    return file
