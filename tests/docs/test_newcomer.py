"""The README's walk from a CSV to a model, answers, forecasts and a stream, done in an empty folder."""

import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.docs.blocks import ROOT, blocks


def run(line: str) -> str:
    """Run one command of the page as a shell would; `< file` is its input."""
    words = shlex.split(line)
    source = Path(words[words.index("<") + 1]).read_text() if "<" in words else None
    words = words[: words.index("<")] if "<" in words else words
    done = subprocess.run(
        [sys.executable, "-m", "tides.cli.main", *words[1:]], input=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_from_a_table_to_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = (ROOT / "README.md").read_text().splitlines()
    begin, end = lines.index("## Your own table"), lines.index("## Fading Flash")
    commands = 0
    for block in blocks(ROOT / "README.md"):
        if not begin < block.line < end:
            continue
        if block.language == "python":
            exec(block.text, {})
        for line in block.text.splitlines() if block.language == "console" else []:
            if line.startswith("$ tides"):
                run(line.removeprefix("$ "))
                commands += 1
    assert commands >= 4
    assert (tmp_path / "model" / "report" / "index.html").is_file()
    answers, truth = pd.read_csv("answers.csv"), pd.read_csv("visits.csv").groupby("patient")["died"].first()
    assert (answers.set_index("patient")["predicted"] == truth).mean() > 0.8
    forecast = pd.read_csv("forecast.csv")
    assert len(forecast) == 160 * 3 * 2
    rate = forecast[forecast["channel"] == "hr"].assign(ill=lambda f: f["patient"].map(truth))
    assert rate[rate["ill"] == 1]["mean"].mean() > rate[rate["ill"] == 0]["mean"].mean() + 5
    assert (forecast["low"] < forecast["high"]).all()
