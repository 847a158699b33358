"""The README's walk from a CSV to a model, answers, forecasts and a stream, done in an empty folder."""

import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.docs.blocks import ROOT, Block, assert_printed, blocks


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


def walk() -> list[Block]:
    """The blocks of the README's section about your own table."""
    lines = (ROOT / "README.md").read_text().splitlines()
    begin, end = lines.index("## Your own table"), lines.index("## Fading Flash")
    return [block for block in blocks(ROOT / "README.md") if begin < block.line < end]


@pytest.mark.slow
def test_from_a_table_to_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands, shown, printed = 0, 0, ""
    for block in walk():
        if block.language == "python":
            exec(block.text, {})
        if block.language == "text":
            assert_printed(printed, block.text, "±0.1", f"README.md:{block.line}")
            shown += 1
        if block.language == "console":
            said = [run(line.removeprefix("$ ")) for line in block.text.splitlines() if line.startswith("$ tides")]
            commands, printed = commands + len(said), "\n".join(said)
    assert commands >= 4
    assert shown == 2
    assert (tmp_path / "model" / "report" / "index.html").is_file()
    answers, truth = pd.read_csv("answers.csv"), pd.read_csv("visits.csv").groupby("patient")["died"].first()
    assert (answers.set_index("patient")["predicted"] == truth).mean() > 0.8
    forecast = pd.read_csv("forecast.csv")
    assert len(forecast) == 160 * 3 * 2
    rate = forecast[forecast["channel"] == "hr"].assign(ill=lambda f: f["patient"].map(truth))
    assert rate[rate["ill"] == 1]["mean"].mean() > rate[rate["ill"] == 0]["mean"].mean() + 5
    assert (forecast["low"] < forecast["high"]).all()


@pytest.mark.slow
def test_what_simpler_models_reach_on_that_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last row of the comparison in the guide about classification: mean ± standard deviation over five splits."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    import tides
    from tests.estimators.test_recipe import statistics
    from tides.estimators import TIDESClassifier

    monkeypatch.chdir(tmp_path)
    exec(walk()[0].text, {})
    static = ["age", "sex"]
    ward = tides.data.from_wide("visits.csv", id="patient", time="charttime", label="died", static=static, unit="h")
    found = []
    for seed in range(5):
        train, test = tides.data.split(ward, (0.8, 0.2), seed=seed)
        linear = make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression(max_iter=2000))
        scores = [TIDESClassifier(random_state=seed).fit(train).score(test)]
        for tabular in (linear, HistGradientBoostingClassifier(random_state=0)):
            scores.append(tabular.fit(statistics(train), train.labels).score(statistics(test), test.labels))
        found.append(scores)
    page = (ROOT / "docs" / "guide" / "classification.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith("| the ward of the README"))
    wanted = [cell.split("±") for cell in row.strip("|").split("|")[1:]]
    for (mean, spread), values in zip(wanted, np.array(found).T, strict=True):
        assert values.mean() == pytest.approx(float(mean), abs=0.05)
        assert values.std(ddof=1) == pytest.approx(float(spread), abs=0.04)
