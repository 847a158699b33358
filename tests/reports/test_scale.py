"""The report of the scale benchmark: what was measured, apart from what is extrapolated."""

from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import ROOT
from tides.errors import DataError
from tides.records import write_json
from tides.reports import scale

ROW = {
    "engine": "local",
    "workers": 1,
    "processors": 1,
    "repeats": 3,
    "cells_per_minute": 9.96,
    "cells_per_minute_range": [9.0, 10.1],
    "observations_per_second": 12345.6,
    "cell_seconds": 5.0,
    "other_seconds": 4.0,
    "efficiency": 1.0,
    "processor_seconds": 4.98,
    "processor_efficiency": 1.0,
    "other_processors": 0.02,
    "load_average": 0.3,
}
MEASURED = {"engine": "local", "model": "a law", "measured": [1, 2], "serial_share": 0.05}
POINT = {"workers": 4, "speedup": 3.48, "speedup_range": [3.2, 3.6]}
FIT = {**MEASURED, "serial_share_range": [0.04, 0.06], "extrapolated": [POINT]}


def results(*rows: dict[str, Any], fit: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "benchmark": "scale",
        "workload": {"cells_per_worker": 4, "epochs": 16},
        "machine": {"cpu": "A processor", "processors": "2"},
        "environment": {"torch": "2.13.0", "python": "3.11.7", "ray": "2.60.0"},
        "finished": "2026-01-02T03:04:05+00:00",
        "rows": list(rows),
        "busy": False,
        "fits": [fit or FIT],
    }


def test_page_and_tables(tmp_path: Path) -> None:
    two = {**ROW, "workers": 2, "processors": 2, "cells_per_minute": 18.0, "efficiency": 0.9036}
    write_json(tmp_path / "two.json", results(ROW, two))
    page, text = scale.report(tmp_path / "two.json")
    assert page == tmp_path / "two-report" / "index.html"
    assert "90%" in text
    assert "12,346" in text
    assert "Extrapolated, not measured: a law; local: s = 0.050 (0.040–0.060) from 1, 2 workers." in text
    assert "3.5" in text
    assert "busy" not in text
    assert "Ray" not in text
    assert "4 cells of 16 epochs for each worker, repeats: 3" in text
    tables = (tmp_path / "two-report" / "tables.md").read_text(encoding="utf-8")
    assert tables.index("Measured. A processor, 2 processors") < tables.index("Extrapolated")


def test_why_nothing_is_extrapolated(tmp_path: Path) -> None:
    alone = {**MEASURED, "measured": [1], "serial_share": None}
    write_json(tmp_path / "alone.json", results({**ROW, "engine": "ray", "other_processors": None}, fit=alone))
    _, text = scale.report(tmp_path / "alone.json", out=tmp_path / "page")
    assert "Nothing is extrapolated: that takes two workers" in text
    assert "Ray 2.60.0" in text
    assert not (tmp_path / "page" / "extrapolated.csv").exists()
    busy = results({**ROW, "other_processors": 1.26}) | {"busy": True, "fits": []}
    write_json(tmp_path / "busy.json", busy)
    _, text = scale.report(tmp_path / "busy.json", out=tmp_path / "page")
    assert "other work took up to 1.3 processors" in text
    assert "busy" in (tmp_path / "page" / "tables.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("content", [[], {"benchmark": "speed"}, None])
def test_other_files_are_refused(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "other.json"
    if content is not None:
        write_json(path, content)
    with pytest.raises(DataError, match=r"other.json: not a file of `tides bench scale --json`"):
        scale.report(path)
    with pytest.raises(DataError, match="--where"):
        scale.report(path, ["workers=1"])


def test_the_guide_shows_the_committed_measurement(tmp_path: Path) -> None:
    from tides.reports.document import BEGIN, END, MARKDOWN

    scale.report(ROOT / "benchmarks" / "results" / "scale-2-cores.json", out=tmp_path)
    guide = (ROOT / "docs" / "guide" / "scale.md").read_text(encoding="utf-8")
    shown = guide.partition(BEGIN)[2].partition(END)[0].strip()
    assert shown == (tmp_path / MARKDOWN).read_text(encoding="utf-8").strip(), (
        "run: tides report scale --in benchmarks/results/scale-2-cores.json --into docs/guide/scale.md"
    )
