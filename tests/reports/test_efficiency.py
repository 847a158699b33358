"""The table of time and memory beside the published one."""

import csv
from pathlib import Path

import pytest

from tests.reports.synthetic import speed_record, write
from tides.errors import DataError
from tides.reports import efficiency


def test_table_marks_what_would_not_fit_and_what_was_not_run(tmp_path: Path) -> None:
    records = [
        speed_record("triton", 1000, 0.03, 57e6),
        speed_record("triton", 10_000, 0.04, 445e6),
        speed_record("naive", 10_000, 0.5, 30e9),
    ]
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
    other = speed_record("triton", 1000, 0.1, 1e6)
    other.config["workload"] = "wide"
    from dataclasses import replace

    from tides.records import cell_id

    write(tmp_path, replace(other, cell_id=cell_id(other.config)))
    with pytest.raises(DataError, match="paper-100k"):
        efficiency.report(tmp_path)


@pytest.mark.usefixtures("no_figures")
def test_other_lengths_of_the_experiment_are_rows(tmp_path: Path) -> None:
    page, _ = efficiency.report(write(tmp_path, speed_record("triton", 2000, 0.03, 57e6)))
    with (page.parent / "efficiency.csv").open(encoding="utf-8") as file:
        rows = {row[0]: row[1] for row in csv.reader(file)}
    assert rows["1,000"] == "not run"
    assert rows["2,000"].startswith("30.0 ± 3.00")
