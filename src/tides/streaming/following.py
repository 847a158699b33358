"""`follow`: events in, predictions out, line by line, until the source ends."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from tides.errors import DataError
from tides.streaming.durable import DurableSession
from tides.streaming.events import Event, Outcome, apply_events, describe_outcome, parse_event
from tides.streaming.lines import LONGEST_LINE, read_lines
from tides.streaming.session import StreamSession


@dataclass
class Tally:
    """Counts of what happened to the lines."""

    lines: int = 0
    malformed: int = 0
    counted_before: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)


@dataclass
class Following:
    """How lines are read and answered.

    `report(line, problem)` is called for malformed lines; with `strict` they are fatal. With `live`, the source
    continues where it was instead of beginning with its first line again.
    """

    session: StreamSession
    sink: BinaryIO
    report: Callable[[int, str], None]
    durable: DurableSession | None = None
    answered: int = 0
    """Predictions up to this number are in the sink already."""
    batch: int = 256
    strict: bool = False
    live: bool = False
    sync: bool = False
    """Predictions are on the disk before they count as answered."""

    def run(self, source: int) -> Tally:
        """Read until the source ends."""
        tally = Tally()
        if self.durable is not None:
            self._emit([one for one in self.durable.unanswered if one.event.number > self.answered], tally)
            self.durable.confirm()
            tally.lines = self.durable.applied if self.live else 0
        numbered = None if self.durable is None else self.durable.numbered
        for lines in read_lines(source, self.batch):
            events: list[Event] = []
            try:
                for event in self._parse(lines, tally):
                    if numbered is not None and event.numbered != numbered:
                        self._complain(tally, "seq: some lines have one and others have not")
                        continue
                    numbered = event.numbered
                    events.append(event)
            finally:
                # The good lines before a fatal one are still answered.
                self._answer(events, tally)
        return tally

    def _parse(self, lines: list[bytes | None], tally: Tally) -> Iterator[Event]:
        # Lines counted before are skipped unread; with `seq`, lines must be read to know their number.
        applied, numbered = (0, None) if self.durable is None else (self.durable.applied, self.durable.numbered)
        for line in lines:
            tally.lines += 1
            if line is not None and not line.strip():
                continue
            try:
                if line is None:
                    raise DataError(f"longer than {LONGEST_LINE} bytes")
                if tally.lines <= applied and not numbered:
                    tally.counted_before += 1
                    continue
                event = parse_event(line, tally.lines, self.session)
            except DataError as error:
                self._complain(tally, str(error))
                continue
            if event.number <= applied and event.numbered == numbered:
                tally.counted_before += 1
            else:
                yield event

    def _complain(self, tally: Tally, problem: str) -> None:
        if self.strict:
            raise DataError(f"line {tally.lines}: {problem}")
        tally.malformed += 1
        self.report(tally.lines, problem)

    def _answer(self, events: list[Event], tally: Tally) -> None:
        if not events:
            return
        if self.durable is None:
            self._emit(apply_events(self.session, events), tally)
            return
        self._emit(self.durable.take(events), tally)
        self.durable.confirm()

    def _emit(self, outcomes: list[Outcome], tally: Tally) -> None:
        if not outcomes:
            return
        lines = [json.dumps(describe_outcome(outcome, self.session), ensure_ascii=False) for outcome in outcomes]
        self.sink.write(("\n".join(lines) + "\n").encode())
        self.sink.flush()
        if self.sync:
            os.fsync(self.sink.fileno())
        tally.outcomes.update(outcome.status for outcome in outcomes)
