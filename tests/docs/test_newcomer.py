"""The README's walk from a CSV to a model, answers, forecasts and a stream, done in an empty folder."""

import json
import shlex
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from tests.docs.blocks import ROOT, blocks
from tests.docs.test_quickstart import run
from tides.cli.main import app


@pytest.mark.slow
def test_from_a_table_to_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = (ROOT / "README.md").read_text().splitlines()
    begin, end = lines.index("## Your own table"), lines.index("## Fading Flash")
    said: dict[str, str] = {}
    for block in blocks(ROOT / "README.md"):
        if not begin < block.line < end:
            continue
        if block.language == "python":
            exec(block.text, {})
        for line in block.text.splitlines() if block.language == "console" else []:
            words = shlex.split(line.removeprefix("$ "))
            if "<" in words:
                run(line.removeprefix("$ "), monkeypatch)
            elif words[0] == "tides":
                result = CliRunner().invoke(app, words[1:])
                assert result.exit_code == 0, result.output
                said[words[-1]] = result.output
    assert set(said) == {"model/", "answers.csv", "forecaster/", "forecast.csv"}
    assert (tmp_path / "model" / "report" / "index.html").is_file()
    answers, truth = pd.read_csv("answers.csv"), pd.read_csv("visits.csv").groupby("patient")["died"].first()
    assert (answers.set_index("patient")["predicted"] == truth).mean() > 0.7
    forecast = pd.read_csv("forecast.csv")
    assert len(forecast) == 160 * 3 * 2
    rate = forecast[forecast["channel"] == "hr"].assign(ill=lambda f: f["patient"].map(truth))
    assert rate[rate["ill"] == 1]["mean"].mean() > rate[rate["ill"] == 0]["mean"].mean() + 2
    assert (forecast["low"] < forecast["high"]).all()
    last = {line["key"]: line["probabilities"] for line in map(json.loads, Path("live.jsonl").read_text().splitlines())}
    assert len(last) == 160
    streamed = {key: int(max(found, key=found.get)) for key, found in last.items()}
    assert (answers["predicted"] == answers["patient"].map(streamed)).mean() > 0.99
