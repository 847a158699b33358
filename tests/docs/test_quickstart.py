"""The five minutes, command by command, in an empty folder."""

import io
import shlex
import signal
import sys
import warnings
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, assert_printed, assert_same_output, blocks
from tides.cli.main import app

PAGE = ROOT / "docs" / "quickstart.md"


@pytest.mark.slow
def test_five_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    scope: dict[str, object] = {"__name__": "page"}
    printed, ran, shown = "", [], 0
    for block in blocks(PAGE):
        where = f"quickstart.md:{block.line}"
        if block.language == "python":
            out = io.StringIO()
            with redirect_stdout(out), warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                exec(compile("\n" * block.line + block.text, where, "exec"), scope)
            printed = out.getvalue()
        elif block.order == "output":
            assert_same_output(printed, block.text, block.note, where)
        elif block.language == "text":
            assert_printed(printed, block.text, "±0.1", where)
            shown += 1
        elif block.language == "console":
            out = io.StringIO()
            with redirect_stdout(out):
                ran += [run(line.removeprefix("$ "), monkeypatch) for line in block.text.splitlines()]
            printed = out.getvalue()
    signal.signal(signal.SIGTERM, before)
    assert [verb for verb in ran if verb] == ["train", "predict", "train", "predict", "stream"]
    assert shown == 2


def run(line: str, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """A command as the shell would run it; installing is left to the reader."""
    command, _, source = line.partition(" < ")
    program, *words = shlex.split(command)
    if program != "tides":
        return None
    with open(source or "cells.csv") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        app(words, prog_name="tides", standalone_mode=False)
    return words[0]
