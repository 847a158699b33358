"""Journal, snapshots and numbers: nothing is lost and nothing is counted twice, wherever the process ends."""

import errno
import os
import re
import stat
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.streaming.test_session import classifier, forecaster
from tides.errors import ConfigError, DataError
from tides.streaming import DurableSession, StreamSession, durable
from tides.streaming.events import Event, make_event
from tides.streaming.journal import Journal

MODEL = classifier()


def events(session: StreamSession, first: int, last: int) -> list[Event]:
    generator = np.random.default_rng(5)
    values = generator.normal(size=(100, 2)).tolist()
    return [make_event({"t": float(n), "x": values[n], "key": f"k{n % 3}"}, n, session) for n in range(first, last + 1)]


def uninterrupted(last: int) -> StreamSession:
    session = StreamSession(MODEL)
    for event in events(session, 1, last):
        session.step(event.time, event.x, key=event.key)
    return session


def assert_same(found: StreamSession, wanted: StreamSession) -> None:
    assert sorted(map(str, found.keys)) == sorted(map(str, wanted.keys))
    for key in wanted.keys:
        np.testing.assert_allclose(found.answer(key), wanted.answer(key), rtol=1e-12)
        rows = [one.intake.table.row(key) for one in (found, wanted)]
        assert found.intake.table.count[rows[0]] == wanted.intake.table.count[rows[1]]


@pytest.mark.parametrize("every", [1, 4, 1000])
@pytest.mark.parametrize("confirmed", [True, False])
def test_a_process_that_ends_anywhere_goes_on(tmp_path: Path, every: int, confirmed: bool) -> None:
    before = DurableSession(StreamSession(MODEL), tmp_path, every=every)
    before.take(events(before.session, 1, 7))
    before.confirm()
    lost = before.take(events(before.session, 8, 10))
    assert [one.event.number for one in lost] == [8, 9, 10]
    if confirmed:
        before.confirm()
    before._release()  # What the system does when a process is killed.

    after = DurableSession(StreamSession(MODEL), tmp_path, every=every)
    assert after.applied == 10
    assert [one.event.number for one in after.unanswered] == ([] if confirmed else [8, 9, 10])
    for again, first in zip(after.unanswered, lost, strict=confirmed is False):
        np.testing.assert_allclose(again.answer, first.answer, rtol=1e-12)
    assert_same(after.session, uninterrupted(10))
    # The source begins again: what was counted is left out.
    taken = after.take(events(after.session, 1, 20))
    assert [one.event.number for one in taken] == list(range(11, 21))
    after.confirm()
    assert_same(after.session, uninterrupted(20))
    after.close()
    with DurableSession(StreamSession(MODEL), tmp_path) as last:
        assert (last.applied, last.unanswered) == (20, [])
        assert_same(last.session, uninterrupted(20))


def test_a_journal_that_outlived_its_snapshot_is_not_counted_twice(tmp_path: Path) -> None:
    session = DurableSession(StreamSession(MODEL), tmp_path, every=1000)
    session.take(events(session.session, 1, 6))
    session.confirm()
    journal = (tmp_path / "journal.jsonl").read_bytes()
    session.snapshot()
    session._release()
    (tmp_path / "journal.jsonl").write_bytes(journal)
    after = DurableSession(StreamSession(MODEL), tmp_path)
    assert after.applied == 6
    assert_same(after.session, uninterrupted(6))


@pytest.mark.parametrize("torn", [b"[4", b'[4,{"t":4.0', b'[4,{"t":4.0,"x":[1.0,2.0]}]'])
def test_a_torn_line_was_never_taken(tmp_path: Path, torn: bytes) -> None:
    session = DurableSession(StreamSession(MODEL), tmp_path)
    session.take(events(session.session, 1, 3))
    session._release()
    with (tmp_path / "journal.jsonl").open("ab") as file:
        file.write(torn)
    after = DurableSession(StreamSession(MODEL), tmp_path)
    assert after.applied == 3
    after.take(events(after.session, 1, 5))
    after.close()
    assert_same(DurableSession(StreamSession(MODEL), tmp_path).session, uninterrupted(5))


def test_steps_are_counted_once(tmp_path: Path) -> None:
    session, plain = DurableSession(StreamSession(MODEL), tmp_path, every=2), StreamSession(MODEL)
    for n, t in enumerate((1.0, 2.0, 3.0), start=1):
        np.testing.assert_allclose(session.step(t, [t, None], number=n), plain.step(t, [t, None]), rtol=1e-12)
    assert session.step(3.0, [3.0, None], number=3) is None
    assert session.step(3.0, [3.0, None], number=np.int64(3)) is None
    with pytest.raises(DataError, match="late"):
        session.step(1.0, [0.0, 0.0])
    assert session.applied == 4
    session.step(4.0, [1.0, 1.0], number=np.int64(5))
    assert session.applied == 5
    session.close()


def test_one_folder_one_process(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    with DurableSession(StreamSession(MODEL), tmp_path), pytest.raises(DataError, match="another process"):
        DurableSession(StreamSession(MODEL), tmp_path)
    DurableSession(StreamSession(MODEL), tmp_path).close()


def test_a_disk_without_locks_is_no_other_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(durable, "lock_file", refuse)
    with DurableSession(StreamSession(MODEL), tmp_path) as session:
        session.step(1.0, [1.0, 1.0])
    assert DurableSession(StreamSession(MODEL), tmp_path).applied == 1


def test_another_models_folder_is_refused(tmp_path: Path) -> None:
    with DurableSession(StreamSession(MODEL), tmp_path) as session:
        session.step(1.0, [1.0, 1.0])
    with pytest.raises(DataError, match=r"snapshot\.safetensors: state: it belongs to another model") as refused:
        DurableSession(StreamSession(classifier(pool="last")), tmp_path)
    # The folder is free at once, while somebody still looks at the error.
    DurableSession(StreamSession(MODEL), tmp_path).close()
    assert refused.tb is not None
    with pytest.raises(ConfigError, match="every"):
        DurableSession(StreamSession(MODEL), tmp_path, every=0)


def test_a_folder_knows_its_model_before_the_first_observation(tmp_path: Path) -> None:
    session = DurableSession(StreamSession(MODEL), tmp_path)
    session.step(1.0, [1.0, 1.0])
    session._release()  # killed: there is a journal, and nothing else was stored since
    with pytest.raises(DataError, match="it belongs to another model"):
        DurableSession(StreamSession(classifier(pool="last")), tmp_path)


def test_a_journal_alone_does_not_say_whose_it_is(tmp_path: Path) -> None:
    with DurableSession(StreamSession(MODEL), tmp_path) as session:
        session.step(1.0, [1.0, 1.0])
        session.snapshot()
        session.step(2.0, [1.0, 1.0])
        journal = (tmp_path / "journal.jsonl").read_bytes()
    (tmp_path / "journal.jsonl").write_bytes(journal)
    (tmp_path / "snapshot.safetensors").unlink()
    with pytest.raises(DataError, match=r"a journal without snapshot\.safetensors"):
        DurableSession(StreamSession(classifier(pool="last")), tmp_path)
    assert (tmp_path / "journal.jsonl").read_bytes() == journal


def test_a_forgotten_stream_stays_forgotten_after_a_snapshot(tmp_path: Path) -> None:
    session = DurableSession(uninterrupted(4), tmp_path)
    session.session.forget("k1")
    session.snapshot()
    session._release()
    again = DurableSession(StreamSession(MODEL), tmp_path)
    assert sorted(map(str, again.session.keys)) == ["k0", "k2"]
    again.close()


def test_streams_that_a_session_brings_along_survive_a_kill(tmp_path: Path) -> None:
    session = DurableSession(uninterrupted(4), tmp_path)
    session.take(events(session.session, 5, 6))
    session._release()
    again = DurableSession(StreamSession(MODEL), tmp_path)
    assert_same(again.session, uninterrupted(6))
    again.close()


def test_an_error_leaves_no_snapshot_of_a_half_taken_observation(tmp_path: Path) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    def follow() -> None:
        with DurableSession(StreamSession(MODEL), tmp_path) as session:
            session.take(events(session.session, 1, 2))
            session.confirm()
            session.session.intake.bank.step = stop  # type: ignore[method-assign, assignment]
            session.take(events(session.session, 3, 3))

    DurableSession(StreamSession(MODEL), tmp_path).close()
    first = (tmp_path / "snapshot.safetensors").read_bytes()
    with pytest.raises(KeyboardInterrupt):
        follow()
    assert (tmp_path / "snapshot.safetensors").read_bytes() == first
    assert_same(DurableSession(StreamSession(MODEL), tmp_path).session, uninterrupted(3))


def test_a_damaged_journal_is_named(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl", sync=True)
    journal.append([(1, {"t": 1.0, "x": [1.0, 2.0]})])
    journal.mark(1)
    assert journal.read() == ([(1, {"t": 1.0, "x": [1.0, 2.0]})], 1)
    journal.close()
    (tmp_path / "journal.jsonl").write_text("nonsense\n[1]\n")
    with pytest.raises(DataError, match="line 1 is damaged"):
        DurableSession(StreamSession(MODEL), tmp_path)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"t": float("nan")}, "t: found nan"),
        ({"x": [1e300, 1.0]}, "x: found"),
        ({"t": 1e39}, "larger|longer"),
        ({"at": "6h"}, "at: found"),
        ({"key": ("a", 1)}, "key: found"),
        ({"key": True}, "key: found"),
        ({"static": {"age": object()}}, "static: found"),
        ({"number": 2.5}, "number: found 2.5"),
        ({"number": "3"}, "number: found '3'"),
    ],
    ids=["nan", "huge", "far", "at", "tuple", "bool", "object", "half", "text"],
)
def test_a_bad_observation_does_not_lock_the_folder(tmp_path: Path, bad: dict[str, Any], reason: str) -> None:
    model = classifier().float()
    session = DurableSession(StreamSession(model), tmp_path)
    session.step(0.0, [1.0, 1.0])
    with pytest.raises(DataError, match=reason):
        session.step(**{"t": 1.0, "x": [1.0, 1.0], **bad})
    session._release()
    again = DurableSession(StreamSession(model), tmp_path)
    np.testing.assert_allclose(again.session.answer(), session.session.answer(), rtol=1e-6)
    again.step(2.0, [1.0, 1.0])
    again.close()


def test_dates_numpy_keys_and_offsets_come_back_from_the_journal(tmp_path: Path) -> None:
    model, metadata = forecaster(), {"unit": "h", "origin": "2031-05-01"}
    session = DurableSession(StreamSession(model, metadata=metadata), tmp_path)
    wanted = session.step("2031-05-01T06:00:00Z", [1.0, 2.0], key=np.int64(3), at=["30min", timedelta(hours=6)])
    session._release()
    again = DurableSession(StreamSession(model, metadata=metadata), tmp_path)
    assert again.session.keys == [3]
    np.testing.assert_allclose(again.session.answer(3, at=[0.5, 6.0]), wanted, rtol=1e-12)
    again.close()


OFFSET = 1_700_000_000_000_000_123


@pytest.mark.parametrize("journalled_by_an_earlier_version", [False, True])
@pytest.mark.parametrize("in_lines", [True, False])
def test_times_that_count_from_an_offset_come_back(
    tmp_path: Path, in_lines: bool, journalled_by_an_earlier_version: bool
) -> None:
    def session() -> DurableSession:
        return DurableSession(StreamSession(MODEL, metadata={"unit": "ns", "offset": OFFSET}), tmp_path)

    first, plain = session(), StreamSession(MODEL)
    for n in (1, 2):
        if in_lines:
            first.take([make_event({"t": OFFSET + n, "x": [1.0, 2.0]}, n, first.session)])
        else:
            first.step(OFFSET + n, [1.0, 2.0])
        plain.step(float(n), [1.0, 2.0])
    first._release()
    if journalled_by_an_earlier_version:
        path = tmp_path / "journal.jsonl"
        path.write_text(re.sub(r'"time":[^,]*,|(?m: [0-9a-f]{8}$)', "", path.read_text()))
    again = session()
    assert again.session.intake.table.last[0] == 2.0
    np.testing.assert_allclose(again.step(OFFSET + 3, [0.0, 1.0]), plain.step(3.0, [0.0, 1.0]), rtol=1e-12)
    again.close()


@pytest.mark.parametrize("name", ["journal.jsonl", "snapshot.safetensors"])
def test_a_bit_that_the_disk_has_changed_is_found(name: str, tmp_path: Path) -> None:
    """Wherever it is: a digit of a value would be believed, and a weight of a state too."""
    with DurableSession(StreamSession(MODEL, compiled=False), tmp_path) as session:
        for n in range(1, 5):
            session.step(float(n), [0.5 * n, -1.0], key="ü" * n)
    session = DurableSession(StreamSession(MODEL, compiled=False), tmp_path)
    session.step(6.0, [1.0, 2.0], key="ü")
    wanted = [session.session.answer("ü" * n) for n in range(1, 5)]
    session._release()
    content, damaged = (tmp_path / name).read_bytes(), 0
    generator = np.random.default_rng(0)
    for position in generator.integers(0, len(content) - 1, 60).tolist():
        changed = bytearray(content)
        changed[position] ^= 1 << int(generator.integers(8))
        (tmp_path / name).write_bytes(changed)
        follower = StreamSession(MODEL, compiled=False)
        try:
            DurableSession(follower, tmp_path)._release()
        except DataError as error:
            damaged += name in str(error)
            continue
        # The bit was in the name of a checksum.
        np.testing.assert_allclose([follower.answer("ü" * n) for n in range(1, 5)], wanted, rtol=1e-12)
    assert damaged > 45


def test_what_is_not_answered_is_not_forgotten_by_a_snapshot(tmp_path: Path) -> None:
    session = DurableSession(StreamSession(MODEL), tmp_path)
    session.take(events(session.session, 1, 3))
    with pytest.raises(DataError, match="outcomes 1 to 3 are not confirmed"):
        session.snapshot()
    session._release()
    again = DurableSession(StreamSession(MODEL), tmp_path)
    assert [outcome.event.number for outcome in again.unanswered] == [1, 2, 3]
    again.confirm()
    again.snapshot()
    again.close()
    with pytest.raises(DataError, match="the session was closed"):
        again.step(9.0, [1.0, 2.0])


def test_what_must_survive_a_loss_of_power_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[str] = []

    def wait(descriptor: int) -> None:
        folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        waits.append(f"folder, journal of {(tmp_path / 'journal.jsonl').stat().st_size > 0}" if folder else "file")

    monkeypatch.setattr(os, "fsync", wait)
    with DurableSession(StreamSession(MODEL), tmp_path, sync=True) as session:
        # The journal's name, the first snapshot's content and name.
        assert waits == ["folder, journal of False", "file", "folder, journal of False"]
        session.step(1.0, [1.0, 2.0])
        # The observation and its mark.
        assert waits[3:] == ["file", "file"]
    # The snapshot's content and name, before the journal is given up.
    assert waits[5:] == ["file", "folder, journal of True"]


def test_an_observation_that_never_reached_the_disk_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = DurableSession(StreamSession(MODEL), tmp_path, sync=True)
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(5, "Input/output error")))
        with pytest.raises(OSError, match="Input/output"):
            session.step(1.0, [1.0, 2.0], number=1)
    session.step(1.0, [1.0, 2.0], number=1)
    session._release()
    again = DurableSession(StreamSession(MODEL, duplicate="take"), tmp_path)
    assert again.session.intake.table.count[0] == 1
    again.close()


def test_a_disk_that_was_full_for_a_while_leaves_whole_lines(tmp_path: Path) -> None:
    session = DurableSession(StreamSession(MODEL), tmp_path)
    session.take(events(session.session, 1, 2))
    journal = session._journal
    real = journal._file

    class Full:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def write(self, data: memoryview) -> int:
            if len(data) <= 10:
                raise OSError(28, "No space left on device")
            return real.write(data[: len(data) - 10])

    journal._file = Full()  # type: ignore[assignment]
    with pytest.raises(OSError, match="No space"):
        session.take(events(session.session, 3, 3))
    journal._file = real
    assert session.applied == 2
    session.take(events(session.session, 3, 4))
    session._release()
    assert_same(DurableSession(StreamSession(MODEL), tmp_path).session, uninterrupted(4))
