"""The zoo's report: facts of every baseline, costs as measured, our accuracies where there are any."""

import json
from pathlib import Path
from typing import Any

import pytest

from tides import baselines
from tides.errors import DataError
from tides.records import Record, cell_id, environment, timestamp, write_record
from tides.reports import zoo

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


def accuracy(folder: Path, model: str, seed: int, value: float, preset: str = "paper") -> None:
    config = {"model": model, "dataset": "SCP1", "protocol": "walker", "preset": preset, "seed": seed}
    results = {"test": {"accuracy": value}, "device": "cpu"}
    record = Record("uea", cell_id(config), config, results, 1.0, False, environment(), timestamp())
    write_record(folder / "records" / f"{model}-{preset}-{seed}.json", record)


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
    accuracy(tmp_path / "uea", "walker-s5", 1, 0.8)
    accuracy(tmp_path / "uea", "walker-s5", 2, 0.9)
    accuracy(tmp_path / "uea", "lru", 1, 0.5, preset="recommended")
    page, summary = zoo.report(costs(tmp_path / "zoo"))
    assert page == tmp_path / "zoo" / "report" / "index.html"
    rows = {row[0]: row for row in zoo.accuracy_table(zoo._accuracies(tmp_path / "uea", [])[0]).rows}
    assert rows["s5"][1] == "89.9\nours 85.0 ± 5.0, 2 seeds"
    assert rows["s5"][2].endswith(zoo.NOT_RUN)
    assert rows["lru"][1].endswith(zoo.NOT_RUN)
    assert rows["transformer"][4] == f"–\n{zoo.NOT_RUN}"
    assert "Some processor" in summary
    assert "log-signature tokens" in page.read_text(encoding="utf-8")


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file of"):
        zoo.report(tmp_path)
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(DataError, match=r"a\.json: not a file of"):
        zoo.report(tmp_path)
