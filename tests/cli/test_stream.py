"""`tides stream` as a process: answers while the source is open, killed and started again."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import tides
from tests.streaming.test_following import assert_answers, lines
from tides.cli import main
from tides.streaming import StreamSession

COMMAND = [sys.executable, "-c", "from tides.cli.main import main; main()", "stream"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
CLASSES = ("well", "ill")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    config = tides.TIDESConfig(input_size=2, hidden_size=6, state_size=4, rank=2, depth=1, mask_channels=True)
    classifier = tides.SequenceClassifier(config, classes=2)
    metadata = {"channels": ["hr", "spo2"], "classes": list(CLASSES), "unit": "h"}
    return tides.save(classifier, tmp_path_factory.mktemp("stream") / "model", metadata=metadata)


def direct(model: Path, text: list[str]) -> list[dict[str, float]]:
    session, found = StreamSession.load(model), []
    for event in map(json.loads, text):
        answer = session.step(event["t"], event["x"], key=event["key"])
        found.append(dict(zip(CLASSES, answer.tolist(), strict=True)))
    return found


@pytest.fixture
def stream(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command in this process, on a file as stdin."""
    before = signal.getsignal(signal.SIGTERM)

    def run(text: list[str], *options: str) -> None:
        (tmp_path / "events").write_text("\n".join(text))
        with (tmp_path / "events").open() as source:
            monkeypatch.setattr(sys, "stdin", source)
            main.app(["stream", str(model), *options], prog_name="tides", standalone_mode=False)

    yield run
    signal.signal(signal.SIGTERM, before)


def test_lines_of_one_time(stream: Any, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    text = ['{"t": 1.0, "x": {"hr": 80}}', '{"t": 1.0, "x": {"spo2": 97}}', '{"t": 2.0, "x": [81, 96]}']
    stream(text)
    assert b"note: 1 observations came at the time of the one before" in capfdbinary.readouterr().err
    stream(text, "--same-time", "merge")
    out, said = capfdbinary.readouterr()
    assert [json.loads(line)["status"] for line in out.splitlines()] == ["taken", "merged", "taken"]
    assert b"3 lines, 1 streams: 1 merged, 2 taken" in said
    assert b"note" not in said


def test_a_file_of_events(stream: Any, model: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    stream([*lines(5), "{", "[]", '{"t": 1e400, "x": [1, 2]}'], "--batch", "2")
    out, said = capfdbinary.readouterr()
    assert_answers([json.loads(line) for line in out.splitlines()], direct(model, lines(5)))
    assert said.decode().splitlines() == [
        "tides stream: line 6 skipped: not JSON: Expecting property name enclosed in double quotes: "
        "line 1 column 2 (char 1)",
        'tides stream: line 7 skipped: found list, wanted an object such as {"t": 0.5, "x": [1.0, null]}',
        "tides stream: line 8 skipped: t: found inf, wanted a finite time",
        "tides stream: 8 lines, 4 streams: 5 taken, 3 malformed",
    ]


def test_predictions_in_a_file_appear_once(stream: Any, model: Path, tmp_path: Path) -> None:
    out, state = tmp_path / "deep" / "out.jsonl", tmp_path / "state"
    options = ["--state", str(state), "--out", str(out), "--every", "2", "--quiet"]
    stream(lines(4), *options)
    # Killed while it wrote: the last line is cut, and its observation had not been confirmed.
    out.write_bytes(out.read_bytes() + b'{"line": 5, "ke')
    stream(lines(7), *options)
    assert_answers([json.loads(line) for line in out.read_text().splitlines()], direct(model, lines(7)))
    stream(lines(2), "--out", str(out), "--quiet")
    assert len(out.read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--live"], "--state"),
        (["--fsync"], "--state"),
        (["--batch", "0"], "--batch"),
        (["--late", "maybe"], "late: found 'maybe'"),
    ],
)
def test_bad_options(stream: Any, options: list[str], words: str) -> None:
    with pytest.raises(tides.ConfigError, match=words):
        stream([], *options)


@pytest.mark.parametrize("closed", ["stdin", "stdout"])
def test_a_closed_end_is_named(closed: str, monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    monkeypatch.setattr(sys, closed, None)
    with pytest.raises(tides.ConfigError, match="stdin, stdout: found one closed"):
        main.app(["stream", str(model)], prog_name="tides", standalone_mode=False)


def test_predictions_of_another_state_are_not_added_to(stream: Any, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    stream(lines(3), "--state", str(tmp_path / "state"), "--out", str(out), "--quiet")
    before = out.read_bytes()
    with pytest.raises(tides.DataError, match=r"out\.jsonl: found predictions, but .*other knows of no observation"):
        stream(lines(3), "--state", str(tmp_path / "other"), "--out", str(out))
    assert out.read_bytes() == before


def test_a_pipe_has_no_end_to_go_on_from(stream: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(tides.DataError, match="pipe: with --state wanted a file"):
        stream(lines(1), "--state", str(tmp_path / "state"), "--out", str(tmp_path / "pipe"))


@pytest.mark.parametrize("content", ["garbage\n", "[]\n", '{"loss": 3}\n'])
def test_a_file_of_something_else_is_no_file_to_go_on_from(stream: Any, tmp_path: Path, content: str) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text(content)
    with pytest.raises(tides.DataError, match=r"out\.jsonl: found .* at its end"):
        stream(lines(2), "--state", str(tmp_path / "state"), "--out", str(out))
    assert out.read_text() == content


@pytest.mark.slow
def test_a_process_answers_at_once_is_killed_and_goes_on(model: Path, tmp_path: Path) -> None:
    options = ["--state", str(tmp_path / "state"), "--every", "2"]
    process = subprocess.Popen(
        [*COMMAND, str(model), *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    assert process.stdin is not None
    assert process.stdout is not None
    found = []
    for line in lines(5):
        process.stdin.write(line + "\n")
        process.stdin.flush()
        # The answer is there before the source says anything else.
        found.append(json.loads(process.stdout.readline()))
    process.kill()
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    process.stdout.close()
    assert process.wait() == -signal.SIGKILL
    done = subprocess.run(
        [*COMMAND, str(model), *options],
        input="\n".join(lines(8)),
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=True,
    )
    more = {line["line"]: line for line in map(json.loads, done.stdout.splitlines())}
    # The fifth may not have been confirmed when the process died; nothing else is said again.
    assert set(more) - {5} == {6, 7, 8}
    assert_answers([*found, more[6], more[7], more[8]], direct(model, lines(8)))
    assert "counted before" in done.stderr


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error(model: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, str(model)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stdin is not None
    process.stdin.write("\n".join(lines(4)).encode())
    process.stdin.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait() == 141
    process.stderr.close()
