"""The table of time and memory beside the published one."""

import csv
from pathlib import Path
from typing import Any

import pytest

from tests.reports.synthetic import record, write
from tides.errors import DataError
from tides.records import Record
from tides.reports import efficiency


def cell(backend: str, length: int, seconds: float, memory: float, **more: Any) -> Record:
    config = {
        "workload": "paper-100k",
        "backend": backend,
        "length": length,
        "batch": 8,
        "device": "cuda",
        "threads": 1,
        "hardware": {"gpu": "NVIDIA H200", "cpu": "any"},
    }
    step = {"median": seconds, "mean": seconds, "std": seconds / 10, "repeats": 20}
    graph = {"status": "ok", "step": {"median": seconds / 10, "mean": seconds / 10}} if backend == "triton" else None
    results = {"status": "ok", "step": step, "memory": {"peak": memory}, "graph": graph}
    return record("efficiency", config, results, **more)


def test_table_marks_what_would_not_fit_and_what_was_not_run(tmp_path: Path) -> None:
    records = [cell("triton", 1000, 0.03, 57e6), cell("triton", 10_000, 0.04, 445e6), cell("naive", 10_000, 0.5, 30e9)]
    page, summary = efficiency.report(write(tmp_path, *records))
    with (page.parent / "efficiency.csv").open(encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["L", "TIDES: ms", "MB", "TIDES, naive: ms", "MB"]
    assert rows[1] == ["1,000", "30.0 ± 3.00 20 steps, as a CUDA graph 3.00", "57", "not run", ""]
    assert rows[2][1:] == ["not run", "", "not run", ""]
    assert rows[3][3:] == ["500 ± 50.0 20 steps", "30,000 over 24 GB"]
    assert "out of memory" in summary
    assert "59.9 ± 1.3" in summary
    assert (page.parent / "efficiency.png").is_file()


def test_records_of_other_workloads_are_no_table(tmp_path: Path) -> None:
    other = cell("triton", 1000, 0.1, 1e6)
    other.config["workload"] = "wide"
    from dataclasses import replace

    from tides.records import cell_id

    write(tmp_path, replace(other, cell_id=cell_id(other.config)))
    with pytest.raises(DataError, match="paper-100k"):
        efficiency.report(tmp_path)
