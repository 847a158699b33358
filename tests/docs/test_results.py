"""The tables of the reproduction pages are those that the committed records give today."""

from importlib import import_module
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from tests.reports.synthetic import FIGURES
from tides.records import read_records
from tides.reports import REPORTS
from tides.reports.document import BEGIN, END, MARKDOWN

PAGES = sorted(page for page in (ROOT / "docs" / "reproduce").glob("*.md") if BEGIN in page.read_text(encoding="utf-8"))
# Where there are no records of its own, the table of time and memory is that of the benchmark.
BENCHMARK = ROOT / "benchmarks" / "results" / "cuda-h200-triton.json"


def test_pages_with_results_were_found() -> None:
    wanted = {"uea", "physiome", "random-drop", "anytime", "ablations", "efficiency"}
    assert wanted <= {page.stem for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tables_come_from_the_records(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = page.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip()
    source = ROOT / "results" / page.stem
    if not any(source.glob("records/*.json")):
        if page.stem != "efficiency":
            assert shown == "No records are committed yet."
            return
        source = BENCHMARK
    for figure in FIGURES:
        monkeypatch.setattr(f"tides.reports.{figure}.draw", lambda *_: "")
    import_module(REPORTS[page.stem]).report(source, [], tmp_path)
    wanted = (tmp_path / MARKDOWN).read_text(encoding="utf-8").strip()
    assert shown == wanted, (
        f"run: tides report {page.stem} --in {source.relative_to(ROOT)} --into {page.relative_to(ROOT)}"
    )


def test_the_readme_shows_the_forecasting_records() -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Forecasting biological systems")[2]
    shown = [line for line in section.partition("\n## ")[0].splitlines() if line.count("|") == 5][2:]
    errors = {
        (record.config["dataset"], record.config["variant"]): f"{mean:.4f} ± {std:.4f}"
        for record in read_records(ROOT / "results" / "physiome")
        if record.config["model"] == "tides"
        for mean, std in [(record.results["test_mse"], record.results["test_mse_std"])]
    }
    assert len(shown) == 12
    for line in shown:
        dataset, _, paper, recommended = (cell.strip() for cell in line.strip("|").split("|"))
        assert (paper, recommended) == (errors[dataset, "paper"], errors[dataset, "recommended"])
