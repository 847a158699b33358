"""Lines of a source in whatever pieces they come, and files whose last line was cut."""

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tides.streaming import lines as module
from tides.streaming.lines import read_lines, repair_tail


def piped(pieces: list[bytes], at_most: int = 4) -> list[list[bytes | None]]:
    source, target = os.pipe()

    def write() -> None:
        for piece in pieces:
            os.write(target, piece)
        os.close(target)

    writer = threading.Thread(target=write)
    writer.start()
    found = list(read_lines(source, at_most))
    writer.join()
    os.close(source)
    return found


@given(st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\r", b"")), max_size=12), st.integers(1, 5))
def test_lines_survive_any_cutting(pieces: list[bytes], at_most: int) -> None:
    pieces = [piece for piece in pieces if piece]
    whole = b"".join(pieces)
    wanted = whole.split(b"\n")
    wanted = wanted if wanted[-1] else wanted[:-1]
    groups = piped(pieces, at_most)
    assert [line for group in groups for line in group] == wanted
    assert all(0 < len(group) <= at_most for group in groups)


def test_a_line_is_handed_on_before_the_next_one_comes() -> None:
    source, target = os.pipe()
    os.write(target, b"first\nsec")
    reader = read_lines(source, 10)
    assert next(reader) == [b"first"]
    os.write(target, b"ond\n")
    assert next(reader) == [b"second"]
    os.close(target)
    assert list(reader) == []
    os.close(source)


def test_a_line_that_never_ends_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_LINE", 100)
    long = [b"x" * 90] * 5
    found = [line for group in piped([b"a\n", *long, b"\nb\n"]) for line in group]
    assert found in ([b"a", None, b"b"], [b"a", b"x" * 450, b"b"])
    assert [line for group in piped([b"y" * 60_000, b"z" * 60_000]) for line in group][-1] is None


@pytest.mark.parametrize(
    ("content", "last", "kept"),
    [
        (b"", None, b""),
        (b"one", None, b""),
        (b"one\n", b"one", b"one\n"),
        (b"one\ntwo\nthr", b"two", b"one\ntwo\n"),
        (b"x" * 200_000 + b"\n" + b"y" * 200_000, b"x" * 200_000, b"x" * 200_000 + b"\n"),
    ],
)
def test_half_a_line_is_removed(tmp_path: Path, content: bytes, last: bytes | None, kept: bytes) -> None:
    path = tmp_path / "out"
    assert repair_tail(path) is None
    path.write_bytes(content)
    assert repair_tail(path) == last
    assert path.read_bytes() == kept
