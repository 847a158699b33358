"""The page of a model on somebody's own table, from hand-made records."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tides.records import json_text
from tides.reports.own_table import write_report
from tides.reports.own_table_figures import _curves, ranking

MACHINE = {"tides-ssm": "0.1.0", "torch": "2.13", "python": "3.11"}


def record(result: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    base = {"record": "own-table", "table": "visits <1>.csv", "environment": MACHINE, "finished": "2031-05-01"}
    return {**base, "data": {"unit": "h", "channels": ["hr"]}, "result": result, **more}


TRAINED = {
    "data": {"series": 20, "steps": 90, "channels": ["hr"], "unit": "h", "median_gap": 2.0},
    "split": {"training": 12, "validation": 4, "test": 4},
    "parameters": 321,
    "seconds": 1.5,
    "best_epoch": 1,
    "history": [{"epoch": 1, "train_loss": 1.0, "val_loss": 1.1}, {"epoch": 2, "train_loss": 0.5, "val_loss": 1.2}],
}
CLASSES = {
    "task": "classification",
    "series": 4,
    "metrics": {"accuracy": [0.75, 0.5, 1.0], "auroc": [None, None, None]},
    "classes": ["home", "died"],
    "truth": [0, 1, 1, 0],
    "probabilities": [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.7, 0.3]],
}
NUMBERS = {
    "task": "regression",
    "series": 3,
    "metrics": {"mse": [0.1, 0.0, 0.2]},
    "truth": [[1.0], [2.0], [3.0]],
    "predicted": [[1.1], [1.9], [3.2]],
}
FORECASTS = {
    "task": "forecast",
    "series": 1,
    "metrics": {"mse": [0.1, 0.0, 0.2]},
    "channels": ["hr", "spo2"],
    "horizon": 2.0,
    "coverage": 0.9,
    "rmse": [1.5, None],
    "by_lead": [{"lead": 1.0, "rmse": 0.5, "rmse_of_last_value": 0.7, "coverage": 0.9}],
    "examples": [
        {
            "id": "p1",
            "times": [0.0, 1.0],
            "values": [[80.0, None], [None, 97.0]],
            "grid": [2.0, 3.0],
            "mean": [[81.0, 97.0], [82.0, 97.0]],
            "low": [[71.0, 95.0], [72.0, 95.0]],
            "high": [[91.0, 99.0], [92.0, 99.0]],
            "asked": [2.5],
            "truth": [[80.5, None]],
        }
    ],
}


@pytest.mark.parametrize(
    ("made", "pictures", "words"),
    [
        (record(CLASSES, **TRAINED), 4, ["accuracy", "undefined", "0.5 to 1", "12 training", "321 parameters"]),
        (record(CLASSES), 3, ["scored on 4 series"]),
        (record(NUMBERS), 1, ["mse", "3 series that were not used in training. Intervals"]),
        (record(NUMBERS | {"weighed": True}), 1, ["not used in training. They count by their weights. Intervals"]),
        (record(FORECASTS), 2, ["hr", "1.5"]),
        (record(None, **TRAINED), 1, ["median gap 2 h"]),
    ],
    ids=["trained", "evaluated", "numbers", "weights", "forecasts", "no test series"],
)
def test_pages(made: dict[str, Any], pictures: int, words: list[str], tmp_path: Path) -> None:
    # From what stands on the disk, where there is no NaN.
    page = write_report(json.loads(json_text(made)), tmp_path / "report").read_text()
    assert page.count("data:image/png;base64") == pictures
    assert "visits &lt;1&gt;.csv" in page
    for word in words:
        assert word in page
    assert "<script" not in page
    assert 'src="http' not in page


@pytest.mark.parametrize("made", [CLASSES, FORECASTS], ids=["classes", "forecasts"])
def test_names_with_dollars_are_no_mathematics(made: dict[str, Any], tmp_path: Path) -> None:
    odd = r"$\none{$ to 50k"
    named: dict[str, Any] = {"classes": [odd, odd + "!"], "channels": [odd, "spo2"]}
    examples = [{**one, "id": odd} for one in made.get("examples", [])]
    result = {**made, **{name: value for name, value in named.items() if name in made}, "examples": examples}
    assert write_report(record(result), tmp_path / "report").is_file()


@pytest.mark.filterwarnings("error")
def test_test_series_of_one_class_have_nothing_to_rank(tmp_path: Path) -> None:
    ranking(np.array([0, 0]), np.array([[0.9, 0.1], [0.6, 0.4]]), ["home", "died"], tmp_path)
    assert (tmp_path / "ranking.png").is_file()


def test_curves_end_where_everything_is_named() -> None:
    true_rate, false_rate, precision = _curves(np.array([0.9, 0.5, 0.5, 0.1]), np.array([True, True, False, False]))
    # Two series with the same score are named together.
    assert true_rate.tolist() == [0, 0.5, 1, 1]
    assert false_rate.tolist() == [0, 0, 0.5, 1]
    assert precision.tolist() == [1, 2 / 3, 0.5]
