"""The ablation report: ratios to what a change is compared with, over datasets."""

import csv
from pathlib import Path
from typing import Any

import pytest

from tests.reports.synthetic import record, write
from tides.errors import DataError
from tides.records import Record
from tides.reports import ablations


def cell(
    dataset: str, errors: list[float | None], factor: str = "", value: str = "", against: str = "base", **more: Any
) -> Record:
    config = {"dataset": dataset, "factor": factor, "value": value, "against": against, "variant": "recommended"}
    config |= more
    measure = "nll" if dataset.startswith("regimes") else "mse"
    folds: list[dict[str, Any]] = [
        {f"test_{measure}": error, f"val_{measure}": None if error is None else 2 * error} for error in errors
    ]
    return record("ablations", config, {"folds": folds, "parameters": 1000, "device": "NVIDIA H200"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    records = [cell("REE01", [0.1, 0.1]), cell("PUR02", [0.4, 0.4]), cell("regimes-calcium", [0.5, 0.5])]
    records += [cell("REE01", [0.2, 0.2], "hold", "preceding"), cell("PUR02", [0.2, 0.2], "hold", "preceding")]
    records += [cell("REE01", [0.8, 0.8], "reversal", "release", "hold-preceding")]
    records += [cell("REE01", [0.1, None], "rank", "full"), cell("regimes-calcium", [0.25, 0.25], "pool", "last")]
    return write(tmp_path, *records)


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_ratios_against_what_a_change_is_compared_with(folder: Path) -> None:
    page, summary = ablations.report(folder)
    rows = {(row["factor"], row["change"]): row for row in read(page.parent / "ablations.csv")}
    # Twice the error on one dataset, half of it on the other: the geometric mean is 1.
    assert rows["hold", "preceding"]["test ratio"].startswith("1.000 ")
    assert rows["hold", "preceding"]["better on"] == "1 of 2"
    assert rows["reversal", "release"]["test ratio"] == "4.000"
    assert rows["reversal", "release"]["against"] == "hold-preceding"
    assert rows["pool", "last"]["test ratio"] == "0.500"
    assert rows["rank", "full"]["datasets"] == "0, and 1 diverged"
    assert "above 1 the change hurts" in summary
    assert (page.parent / "ablations.png").stat().st_size > 5_000


@pytest.mark.usefixtures("no_figures")
def test_every_dataset_and_fold_is_there(folder: Path) -> None:
    page, _ = ablations.report(folder)
    rows = {row["change"]: row for row in read(page.parent / "ablations-datasets.csv")}
    assert rows["base"]["REE01"] == "0.1000 ± 0.0000"
    assert rows["rank-full"]["REE01"] == "diverged"
    assert rows["rank-full"]["PUR02"] == "not run"
    assert "0.1000 diverged" in (page.parent / "ablations-folds.csv").read_text(encoding="utf-8")


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize(
    "other", [{"train": {"epochs": 5}}, {"architecture": {"rank": 1, "depth": 2}}, {"input_drop": 0.4}]
)
def test_records_that_differ_in_more_than_the_change_do_not_mix(other: dict[str, Any], tmp_path: Path) -> None:
    same = {"train": {"epochs": 100}, "architecture": {"rank": 8, "depth": 4}}
    changed = {**same, "architecture": {"rank": 1, "depth": 4}, "changed": {"rank": 1}}
    write(tmp_path, cell("REE01", [0.1], **same), cell("REE01", [0.2], "rank", "1", **changed))
    _, summary = ablations.report(tmp_path)
    assert "2.000" in summary
    write(tmp_path, cell("PUR02", [0.2], "rank", "1", **{**changed, **other}))
    with pytest.raises(DataError, match="more than its change"):
        ablations.report(tmp_path)


@pytest.mark.usefixtures("no_figures")
def test_only_forecasting_tasks_hide_inputs(tmp_path: Path) -> None:
    write(tmp_path, cell("REE01", [0.1], input_drop=0.4), cell("REE01", [0.2], "rank", "1", input_drop=0.4))
    write(tmp_path, cell("regimes-calcium", [0.5]), cell("regimes-calcium", [1.0], "pool", "last"))
    _, summary = ablations.report(tmp_path)
    assert summary.count("2.000") == 4
