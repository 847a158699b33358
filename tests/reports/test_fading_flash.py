import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tides.errors import DataError
from tides.records import Record, cell_id, write_record
from tides.reports import fading_flash
from tides.reports.page import Image

GAPS = [0.1, 1.0, 2.0]
TRAIN = {"steps": 3000, "batch": 32, "learning_rate": 0.003, "schedule": "constant", "skip_penalty": 0.0}
DATA = {"gap_range": [0.5, 1.5], "input_noise": 0.0, "output_noise": 0.0}
FILES = {
    "index.html",
    "tables.md",
    "task.png",
    "task.pdf",
    "paper-errors.png",
    "paper-errors.pdf",
    "paper-errors.csv",
    "paper-seeds.csv",
    "paper-response-decay.png",
    "paper-response-decay.pdf",
    "paper-mode-decay.png",
    "paper-mode-decay.pdf",
}


def put(folder: Path, config: dict[str, Any], results: dict[str, Any], quick: bool = False) -> None:
    machine = {"tides-ssm": "0", "torch": "0", "python": "3"}
    record = Record("fading-flash", cell_id(config), config, results, 1.0, quick, machine, "2026-01-01T00:00:00+00:00")
    write_record(folder / "records" / f"{record.cell_id}.json", record)


def trained(
    folder: Path, model: str, seed: int, errors: list[float | None], *, quick: bool = False, **change: Any
) -> None:
    config = {
        "variant": "paper",
        "model": model,
        "seed": seed,
        "train": TRAIN,
        "data": DATA,
        "evaluate": {"gaps": GAPS},
        **change,
    }
    decay = [[1.0, 1.0, 1.0], [1.5, 1.5, None], [2.0, 2.0, 2.0]]
    results = {"published_parameters": 144, "relative_error": errors, "response_decay": decay, "mode_decay": decay}
    put(folder, config, results, quick)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    zones = [0] * 15 + [2] * 10 + [1] * 15
    glow = [[0.5**k for k in range(40)]] * 3
    results = {"flashes": [1.0] + [0.0] * 39, "zones": zones, "rates": [1.0, 1.5, 2.0], "glow": glow}
    put(tmp_path, {"variant": "paper", "model": "task", "gaps": [0.2, 1.0, 2.0]}, results)
    for seed in range(3):
        trained(tmp_path, "tides", seed, [6.0 + seed, 0.4, 0.5])
        trained(tmp_path, "s5", seed, [20.0, 21.0, 24.0])
    return tmp_path


@pytest.fixture(autouse=True)
def _undrawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing is slow; one test does it, the others are about numbers and words."""
    if "figures" not in request.node.name:
        for name in ("task", "decays", "errors"):
            monkeypatch.setattr(fading_flash.flash_figures, name, lambda *_: Image("data:image/png;base64,", 6.0))


def test_the_report_writes_a_page_figures_and_tables(folder: Path) -> None:
    page, summary = fading_flash.report(folder)
    assert page == folder / "report" / "index.html"
    assert {file.name for file in page.parent.iterdir()} == FILES
    tides = summary[summary.index("TIDES") :].splitlines()
    assert tides[0].split() == ["TIDES", "144", "3", "7.00", "0.40", "0.50"]
    assert tides[1].split() == ["6.00–8.00", "0.40–0.40", "0.50–0.50"]
    seed_zero = summary[summary.rindex("TIDES") :].splitlines()
    assert seed_zero[0].split() == ["TIDES", "6.00", "0.40", "0.50"]
    assert seed_zero[1].split() == ["expected", "≈6.5", "≈0.4", "≈0.5"]


def test_the_page_is_self_contained(folder: Path) -> None:
    text = fading_flash.report(folder)[0].read_text(encoding="utf-8")
    assert text.count("data:image/png;base64,") == 4
    for outside in ("http://", "https://", "<script", "<link", 'src="/', "url("):
        assert outside not in text
    assert 'name="viewport"' in text
    assert "@media print" in text


def test_every_seed_stands_in_the_table_of_seeds(folder: Path) -> None:
    fading_flash.report(folder)
    lines = (folder / "report" / "paper-seeds.csv").read_text().splitlines()
    assert lines[0] == "model,seed,0.1,1,2"
    assert "tides,2,8.0,0.4,0.5" in lines
    assert len(lines) == 7


def test_quick_records_never_enter_a_table(folder: Path) -> None:
    trained(folder, "tides-lambda", 0, [1.0, 1.0, 1.0], quick=True)
    page, summary = fading_flash.report(folder)
    assert "Λ" not in summary
    assert "1 records made by <code>--quick</code> are not shown" in page.read_text(encoding="utf-8")


def test_nothing_but_quick_records_is_an_error(tmp_path: Path) -> None:
    trained(tmp_path, "tides", 0, [1.0, 1.0, 1.0], quick=True)
    with pytest.raises(DataError, match="found 1 records, 1 of them made by --quick"):
        fading_flash.report(tmp_path)


def test_two_protocols_are_not_mixed_and_where_chooses(folder: Path) -> None:
    trained(folder, "tides", 3, [9.0, 9.0, 9.0], train={**TRAIN, "steps": 500})
    with pytest.raises(DataError, match=r"paper: the records hold 2 different settings of train\.steps"):
        fading_flash.report(folder)
    _, summary = fading_flash.report(folder, ["train.steps=3000"])
    assert re.search(r"TIDES\s+144\s+3\s+7\.00", summary)


def test_expected_values_are_not_shown_beside_another_protocol(folder: Path) -> None:
    trained(folder, "tides", 0, [9.0, 9.0, 9.0], train={**TRAIN, "steps": 500})
    _, summary = fading_flash.report(folder, ["train.steps=500"])
    assert "9.00" in summary
    assert "expected" not in summary


def test_a_diverged_seed_is_shown_as_such(folder: Path) -> None:
    trained(folder, "mamba-s", 0, [None, 1.0, None])
    _, summary = fading_flash.report(folder)
    assert re.search(r"Mamba_S\s+144\s+1\s+diverged\s+1\.00\s+diverged\n\s+1 of 1\s+1 of 1", summary)


def test_somebodys_own_model_stands_beside_the_others(folder: Path) -> None:
    trained(folder, "mypackage:build", 0, [5.0, 5.0, 5.0], source="abc")
    assert re.search(r"mypackage:build\s+144\s+1\s+5\.00", fading_flash.report(folder)[1])


def test_a_missing_folder_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="run the experiment first"):
        fading_flash.report(tmp_path / "nowhere")


def test_reports_do_not_import_torch() -> None:
    code = "import sys, tides.reports.fading_flash; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
