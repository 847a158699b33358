"""The guide's Python, run from top to bottom on small files of the names it uses."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "your-own-data.md"


def test_every_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert len(blocks) == 13
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    n, patients = 600, 30
    patient = rng.integers(0, patients, n)
    when = pd.to_datetime("2031-05-01") + pd.to_timedelta(rng.integers(0, 10**7, n), unit="s")
    shared = {"patient": patient, "charttime": when, "died": patient % 2}
    long = pd.DataFrame(shared | {"item": rng.choice(["hr", "spo2"], n), "value": rng.normal(size=n)})
    long.to_parquet("chart.parquet")
    long.to_parquet("huge.parquet")
    wide = pd.DataFrame(
        shared | {"hr": rng.normal(size=n), "age": 40 + patient, "sex": np.where(patient % 3, "f", "m")}
    )
    wide.drop(columns="died")[:50].to_csv("today.csv", index=False)
    scope = {"df": wide, "X": rng.normal(size=(40, 2, 9)), "times": np.arange(9.0), "y": np.arange(40) % 2}
    code = "\n".join(blocks)
    # The page reads three data sets into one name; the schema shown later is that of the wide table.
    code = code.replace("schema=ds.schema", "schema=wide.schema").replace("n=200", "n=4").replace("n=300", "n=6")
    after_wide = 'label="died", static=["age", "sex"], unit="h")\n'
    assert after_wide in code
    exec(code.replace(after_wide, after_wide + "wide = ds\n"), scope)
    assert len(scope["new"]) > 0
    assert len(scope["windows"]) > 0
    assert scope["batch"].values.ndim == 3
    assert scope["events"].channels == ("error", "login")
    np.testing.assert_array_equal(scope["counts"][1].values, [[np.nan, 2.0]])
    assert scope["mixed"]["value"].tolist() == [37.0, 37.0]
    assert scope["rhythms"].channels == ("rhythm_flutter", "rhythm_sinus")
    np.testing.assert_array_equal(scope["rhythms"][0].values, [[0.0, 1.0], [np.nan, np.nan], [1.0, 0.0]])
