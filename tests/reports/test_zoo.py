"""The zoo's report: facts of every baseline, costs as measured, our accuracies where there are any."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tides import baselines
from tides.errors import DataError
from tides.records import Record, cell_id, environment, timestamp, write_record
from tides.reports import zoo
from tides.reports.selection import real_records
from tides.reports.table import Table
from tides.reports.zoo_results import NOT_RUN, Sample, accuracy_table, error_table

MEASURED: dict[str, Any] = {
    "size": {"batch": 16, "length": 256, "channels": 6, "classes": 5},
    "device": "cpu",
    "machine": {"cpu": "Some processor"},
    "threads": 1,
    "load": 0.1,
    "models": [
        {"model": "mamba", "task": "classification", "parameters": 9, "step": 2.0, "processor": 0.5, "memory": 3e6},
        {"model": "lru", "task": "classification", "parameters": 8000, "step": 9.0, "processor": 0.1, "memory": 2e6},
        {"model": "cru", "status": "out of memory"},
    ],
}


def costs(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "cpu.json").write_text(json.dumps(MEASURED))
    return folder


def accuracy(folder: Path, model: str, seed: int, value: float, preset: str = "paper", **more: Any) -> None:
    config = {"model": model, "dataset": "SCP1", "protocol": "walker", "preset": preset, "seed": seed, **more}
    results = {"test": {"accuracy": value}, "device": "cpu", "stopped": "epochs", "epochs": 20}
    record = Record("uea", cell_id(config), config, results, 1.0, False, environment(), timestamp())
    write_record(folder / "records" / f"{record.cell_id}.json", record)


def errors(folder: Path, model: str, dataset: str, values: list[float | None], epochs: int = 15) -> None:
    config = {"model": model, "dataset": dataset, "train": {"epochs": epochs}}
    folds = [
        {"test_mse": value, "stopped": "epochs", "trivial_mse": {"zero": 1.0, "last": 2.0, "mean": 0.9}}
        for value in values
    ]
    record = Record("physiome", cell_id(config), config, {"folds": folds}, 1.0, False, environment(), timestamp())
    write_record(folder / "records" / f"{record.cell_id}.json", record)


def rows(table: Table) -> dict[str, list[str]]:
    return {row[0]: row for row in table.rows}


def test_facts_name_every_baseline_once() -> None:
    for task in ("classification", "forecasting"):
        named = [fact["name"] for fact in zoo.facts() if fact["task"] == task]
        assert sorted(named) == sorted(baselines.names(task))  # type: ignore[arg-type]
    for fact in zoo.facts():
        assert all(fact[key] for key in ("what", "when", "licence", "source")), fact["name"]


def test_costs_are_ordered_and_failures_named() -> None:
    rows = zoo.cost_table(MEASURED).rows
    assert [row[0] for row in rows] == ["lru", "mamba", "cru"]
    assert rows[0] == ["lru", "classification", "8,000", "100", "2"]
    assert rows[2][3] == "out of memory"
    on_gpu = {**MEASURED, "device": "cuda", "machine": {"cpu": "x", "gpu": "Some GPU"}}
    assert [row[3] for row in zoo.cost_table(on_gpu).rows][:2] == ["2,000", "9,000"]
    assert "Some GPU" in zoo.cost_table(on_gpu).caption


def test_ours_stand_below_the_published_accuracies(tmp_path: Path) -> None:
    budget = {"train": {"steps": 1000}}
    for seed, value in enumerate((0.70, 0.71, 0.72, 0.71, 0.70)):
        accuracy(tmp_path / "uea", "walker-s5", seed, value, **budget)
    accuracy(tmp_path / "uea", "walker-s5", 4, 0.1, train={"steps": 10})
    accuracy(tmp_path / "uea", "mamba", 1, 0.8)
    accuracy(tmp_path / "uea", "lru", 1, 0.5, preset="recommended")
    accuracy(tmp_path / "uea", "transformer", 1, 0.5, **budget)
    for seed in range(5):
        own = {"protocol": "rformer", "configuration": {"train": {"epochs": 20}}, **budget}
        accuracy(tmp_path / "uea", "rformer", seed, 0.80 + 0.01 * seed, **own)
    accuracy(tmp_path / "uea", "class-prior", 1, 0.5)
    page, summary = zoo.report(costs(tmp_path / "zoo"))
    assert page == tmp_path / "zoo" / "report" / "index.html"
    assert "Some processor" in summary
    assert "log-signature tokens" in page.read_text(encoding="utf-8")
    found = rows(accuracy_table(real_records(tmp_path / "uea", ["uea"])[0], zoo._of("classification")))
    # 89.9 ± 4.6 and 70.8 ± 0.8 over five seeds: nine standard errors. The shorter of two budgets is not counted.
    assert found["s5"][1] == "89.9 ± 4.6\nours 70.8 ± 0.8\nstopped after 1,000 steps, differs"
    assert found["s5"][2].endswith(NOT_RUN)
    assert found["mamba"][1] == "80.7 ± 1.4\nours 80.0\n1 of 5 seeds"
    assert found["lru"][1].endswith(NOT_RUN)
    assert found["rformer"][1] == "81.2 ± 2.8\nours 82.0 ± 1.6"
    assert found["transformer"][1].endswith("ours 50.0\n1 of 5 seeds, `walker` splits, stopped after 1,000 steps")
    assert found["transformer"][4] == f"–\n{NOT_RUN}"
    assert found["class-prior"][1].startswith("–\nours 50.0")
    assert "gru-d" not in found


def test_where_chooses_from_the_records_of_both_experiments(tmp_path: Path) -> None:
    accuracy(tmp_path / "uea", "mamba", 1, 0.8)
    errors(tmp_path / "physiome", "linodenet", "LI01", [0.08])
    folder = costs(tmp_path / "zoo")
    # Only the records of `uea` have seeds; those of `physiome` stay.
    assert "ours 0.080" in zoo.report(folder, ["seed=1"])[1]
    with pytest.raises(DataError, match="no record has the setting sed"):
        zoo.report(folder, ["sed=1"])


def test_ours_stand_below_the_published_errors(tmp_path: Path) -> None:
    errors(tmp_path / "physiome", "linodenet", "LI01", [0.08, 0.09, 0.085, 0.08, 0.09])
    errors(tmp_path / "physiome", "linodenet", "LI01", [9.0, 9.0], epochs=1)
    errors(tmp_path / "physiome", "imts-mixer", "LI01", [0.2, 0.2, None, 0.2, 0.2])
    errors(tmp_path / "physiome", "cru", "HOD01", [None])
    errors(tmp_path / "physiome", "grafiti", "LI01", [0.3] * 5, epochs=45)
    table = error_table(real_records(tmp_path / "physiome", ["physiome"])[0], zoo._of("forecasting"))
    assert table.columns == ["model", "LI01", "HOD01"]
    found = rows(table)
    assert found["linodenet"][1] == "0.084 ± 0.009\nours 0.085 ± 0.005\nstopped after 15 epochs"
    assert found["linodenet"][2].startswith("0.441 ±")
    assert found["linodenet"][2].endswith(NOT_RUN)
    assert found["imts-mixer"][1] == "–\nours 0.200 ± 0.000\n4 of 5 folds, 1 diverged, stopped after 15 epochs"
    assert found["cru"][2].endswith("ours diverged")
    # All of its published epochs.
    assert found["grafiti"][1] == "0.202 ± 0.013\nours 0.300 ± 0.000\ndiffers"
    assert found["zero"][1] == "–\nours 1.000 ± 0.000"
    assert "mtan" not in found
    assert error_table([], zoo._of("forecasting")).rows == []


@pytest.mark.parametrize(("mean", "expected"), [(81.0, False), (90.0, True)])
def test_differences_are_those_of_two_standard_errors(mean: float, expected: bool) -> None:
    """80 ± 3 and x ± 4 over five: the standard error of the difference is √5."""
    assert Sample(mean, 4.0, 5).differs(Sample(80.0, 3.0)) is expected
    assert not Sample(90.0, math.nan, 1).differs(Sample(80.0, 3.0))


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file of"):
        zoo.report(tmp_path)
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(DataError, match=r"a\.json: not a file of"):
        zoo.report(tmp_path)
