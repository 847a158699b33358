"""The index over all reports, and every page in a real browser where one is installed."""

import re
import shutil
import subprocess
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from tests.reports.synthetic import drop_record, physiome_record, speed_record, uea_record, write
from tides.errors import DataError
from tides.records import cell_id
from tides.reports import REPORTS
from tides.reports.document import BEGIN, END, insert
from tides.reports.index import report_all

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


def results(root: Path) -> Path:
    write(root / "uea", *(uea_record("SCP1", seed, 70 + seed) for seed in (1, 2)))
    write(root / "physiome", physiome_record("REE01", [0.02, 0.03]))
    write(root / "efficiency", speed_record("triton", 1000, 0.03, 57e6))
    write(root / "random-drop", *(drop_record(model, seed, 0.7) for model in ("tides", "s5") for seed in (1, 2)))
    return root


@pytest.mark.usefixtures("no_figures")
def test_the_index_links_what_was_run_and_names_what_was_not(tmp_path: Path) -> None:
    index, summary = report_all(results(tmp_path))
    text = index.read_text(encoding="utf-8")
    assert index == tmp_path / "index.html"
    for place in ("uea/report/index.html", "efficiency/report/index.html"):
        assert f'href="{place}"' in text
        assert (tmp_path / place).is_file()
    assert text.count("<em>not run</em>") == len(REPORTS) - 4
    assert re.search(r"fading-flash\s+not run", summary)


@pytest.mark.usefixtures("no_figures")
def test_pages_may_go_to_a_folder_of_their_own(tmp_path: Path) -> None:
    index, _ = report_all(results(tmp_path / "records"), tmp_path / "pages")
    assert index == tmp_path / "pages" / "index.html"
    assert (tmp_path / "pages" / "uea" / "index.html").is_file()
    assert not (tmp_path / "records" / "uea" / "report").exists()


def test_nothing_to_show_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no experiment has records"):
        report_all(tmp_path)
    write(tmp_path / "uea", uea_record("SCP1", 1, 70, quick=True))
    with pytest.raises(DataError, match="found 1 records, 1 of them made by --quick"):
        report_all(tmp_path)


@pytest.mark.usefixtures("no_figures")
def test_records_that_cannot_be_shown_are_not_called_not_run(tmp_path: Path) -> None:
    other = drop_record("tides", 1, 0.7)
    config = {**other.config, "scaling": "raw"}
    write(results(tmp_path) / "random-drop", replace(other, config=config, cell_id=cell_id(config)))
    index, summary = report_all(tmp_path)
    assert re.search(r"random-drop\s+not shown\s+SCP1, recommended.*different settings", summary)
    assert "<em>not shown</em>" in index.read_text(encoding="utf-8")


slow = pytest.mark.slow


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
@pytest.mark.parametrize(
    ("name", "tables", "figures"),
    [
        ("uea", 3, 1),
        pytest.param("random-drop", 4, 1, marks=slow),
        pytest.param("physiome", 4, 1, marks=slow),
        pytest.param("efficiency", 2, 1, marks=slow),
    ],
)
def test_pages_in_a_browser(name: str, tables: int, figures: int, tmp_path: Path) -> None:
    """Tables and figures are really there: the browser's own document, after loading, has them with a size."""
    page, _ = import_module(REPORTS[name]).report(results(tmp_path) / name)
    probe = page.with_name("probe.html")
    script = (
        "<script>addEventListener('load',()=>{const images=[...document.images];"
        "document.body.dataset.seen=[document.querySelectorAll('table tbody tr').length>0,"
        "document.querySelectorAll('table').length,images.filter(i=>i.complete&&i.naturalWidth>200).length,"
        "document.documentElement.scrollWidth<=innerWidth].join(' ')})</script></body>"
    )
    probe.write_text(page.read_text(encoding="utf-8").replace("</body>", script), encoding="utf-8")
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    # A phone's width: wide tables and figures must scroll inside themselves, not push the page.
    command += ["--window-size=390,844", "--virtual-time-budget=2000", "--dump-dom", probe.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    seen = re.search(r'data-seen="([^"]*)"', done.stdout)
    assert seen is not None, done.stderr
    rows, found_tables, found_figures, fits = seen[1].split()
    assert (rows, fits) == ("true", "true")
    assert int(found_tables) >= tables
    assert int(found_figures) == figures


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_a_page_can_be_printed(tmp_path: Path) -> None:
    page, _ = import_module(REPORTS["uea"]).report(results(tmp_path) / "uea")
    paper = tmp_path / "page.pdf"
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command += [f"--print-to-pdf={paper}", "--virtual-time-budget=2000", page.as_uri()]
    subprocess.run(command, capture_output=True, timeout=120, check=True)
    assert paper.read_bytes().startswith(b"%PDF")


def test_tables_go_between_the_marks_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"above\n{BEGIN}\nold\n{END}\nbelow\n", encoding="utf-8")
    insert("| a |\n| --- |\n", page)
    insert("| b |\n| --- |\n", page)
    assert page.read_text(encoding="utf-8") == f"above\n{BEGIN}\n\n| b |\n| --- |\n\n{END}\nbelow\n"
    page.write_text("no marks", encoding="utf-8")
    with pytest.raises(DataError, match="results"):
        insert("", page)
