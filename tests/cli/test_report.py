"""`tides report` and `tides run` as one types them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.reports.synthetic import uea_record, write
from tides.cli.main import app
from tides.errors import ConfigError, DataError
from tides.experiments import uea_series
from tides.reports.document import BEGIN, END
from tides.reports.page import Image


def tides(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(autouse=True)
def no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing is tested elsewhere and takes longer than all the rest."""
    monkeypatch.setattr("tides.reports.uea_figure.draw", lambda *_: Image("data:image/png;base64,", 6.0))


def test_records_are_looked_for_in_runs_and_then_in_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("results") / "uea", uea_record("SCP1", 1, 70))
    assert "Report: results/uea/report/index.html" in tides("report", "uea")
    write(Path("runs") / "uea", uea_record("SCP1", 1, 71))
    assert "Report: runs/uea/report/index.html" in tides("report", "uea")


def test_markdown_json_and_pages(tmp_path: Path) -> None:
    folder = write(tmp_path / "uea", uea_record("SCP1", 1, 70))
    out, page = tmp_path / "out", tmp_path / "page.md"
    page.write_text(f"{BEGIN}\n{END}\n", encoding="utf-8")
    shown = tides("report", "uea", "--in", str(folder), "--out", str(out), "--markdown", "--into", str(page))
    assert "| tides paper, walker | 82.4<br>1 seed |" in shown
    assert "| tides paper, walker |" in page.read_text(encoding="utf-8")
    found = json.loads(tides("report", "uea", "--in", str(folder), "--out", str(out), "--json"))
    assert found["page"] == str(out / "index.html")
    assert "uea.tex" in found["files"]


def test_a_page_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    folder, page = write(tmp_path / "uea", uea_record("SCP1", 1, 70)), tmp_path / "page.md"
    page.write_bytes(f"{BEGIN}\n{END}\nDelta \N{DEGREE SIGN}\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"page\.md: not a page that can be read .*wanted Markdown in UTF-8"):
        tides("report", "uea", "--in", str(folder), "--into", str(page))
    with pytest.raises(DataError, match=r"none\.md: not a page that can be read"):
        tides("report", "uea", "--in", str(folder), "--into", str(tmp_path / "none.md"))


def test_without_a_name_everything_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("runs") / "uea", uea_record("SCP1", 1, 70))
    shown = tides("report")
    assert "uea/report/index.html" in shown
    assert "not run" in shown
    with pytest.raises(ConfigError, match="choose an experiment"):
        tides("report", "--where", "seed=1")
    with pytest.raises(ConfigError, match="reports exist for"):
        tides("report", "nothing")


def test_a_run_names_data_that_is_not_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDES_DATA", str(tmp_path))
    monkeypatch.setitem(__import__("sys").modules, "aeon", None)
    uea_series.load.cache_clear()
    shown = tides("run", "uea", "--only", "EW-walker", "--seeds", "1", "--out", str(tmp_path / "out"))
    assert "1 cells, 0 computed" in shown
    assert "not available: EW-paper-tides: no EigenWorms.npz" in shown
