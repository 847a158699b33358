"""The tables of README and of the reproduction pages are those that the committed records give today."""

import json
import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, last_digit
from tests.reports.synthetic import FIGURES
from tides.reports import REPORTS
from tides.reports.document import BEGIN, END, MARKDOWN
from tides.reports.page import Image

PAGES = sorted(page for page in (ROOT / "docs" / "reproduce").glob("*.md") if BEGIN in page.read_text(encoding="utf-8"))
# Where there are no records of its own, the table of time and memory is that of the benchmark with most models.
BENCHMARK = ROOT / "benchmarks" / "results" / "cuda-h200-models.json"


DROP = "Fewer observations than in training"


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
        monkeypatch.setattr(f"tides.reports.{figure}.draw", lambda *_: Image("", 6.0))
    import_module(REPORTS[page.stem]).report(source, [], tmp_path)
    wanted = (tmp_path / MARKDOWN).read_text(encoding="utf-8").strip()
    assert shown == wanted, (
        f"run: tides report {page.stem} --in {source.relative_to(ROOT)} --into {page.relative_to(ROOT)}"
    )


def table(section: str, page: Path = ROOT / "README.md") -> list[list[str]]:
    """The rows of the first table of a section, without its head."""
    text = page.read_text(encoding="utf-8").partition(f"## {section}\n")[2].partition("\n## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def test_the_readme_shows_the_forecasting_records() -> None:
    page = (ROOT / "docs" / "reproduce" / "physiome.md").read_text(encoding="utf-8")
    standing = page.partition("tides, recommended (ours) and the published models over 50 of 50 datasets.\n\n")[2]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in standing.partition("\n\n")[0].splitlines()
    ]
    assert rows[0][:6:2] == ["model", "rank, unrounded", "wins, ties shared"]
    wanted = [[rank, wins, error] for _, rank, _, wins, _, error, *_ in rows[2:]]
    shown = table("Forecasting biological systems")
    assert [row[1:] for row in shown] == wanted
    assert [row[0] for row in shown[1:]] == [row[0] for row in rows[3:]]


def test_the_readme_shows_the_random_drop_records() -> None:
    page = (ROOT / "docs" / "reproduce" / "random-drop.md").read_text(encoding="utf-8")
    for model, *accuracies in table(DROP):
        row = next(line for line in page.splitlines() if line.startswith(f"| {model.partition(' ')[0]} | 2"))
        for accuracy in accuracies:
            assert accuracy.replace(" ± ", "<br>± ") in row, f"{model}: {accuracy}"


def steps(file: str) -> dict[tuple[str, int], dict[str, float]]:
    """Seconds of a training step, of the same step as a CUDA graph, and bytes, by backend and length."""
    rows = json.loads((ROOT / "benchmarks" / "results" / file).read_text(encoding="utf-8"))["summary"]["rows"]
    return {
        (row["backend"], row["length"]): {
            "step": row["step"]["median"],
            "graph": ((row["graph"] or {}).get("step") or {}).get("median", float("nan")),
            "memory": row["memory"]["peak"],
        }
        for row in rows
        if row["workload"] == "paper-100k" and row["status"] == "ok"
    }


UNITS = {"ms": 1e-3, "s": 1.0, "MB": 1e6, "GB": 1e9}


def assert_measured(shown: str, measured: float, where: str) -> None:
    """A number with its unit, rounded to the digits that are shown."""
    number, unit = shown.split()
    # Whole numbers of several digits are rounded to the last one.
    tolerance = last_digit(number) or 1.0
    assert abs(float(number.replace(",", "")) - measured / UNITS[unit]) <= 0.51 * tolerance, f"{where}: {shown}"


def test_the_readme_shows_the_measured_speed() -> None:
    # The newest run comes last.
    measured = {}
    for file in ("cuda-h200.json", "cuda-h200-models.json", "cuda-h200-triton.json"):
        measured |= steps(file)
    shown = table("Speed")
    assert len(shown) == 4
    columns = [("triton", kind) for kind in ("step", "graph", "memory")]
    columns += [(model, kind) for model in ("naive", "transformer") for kind in ("step", "memory")]
    for length, *cells in shown:
        for (backend, kind), cell in zip(columns, cells, strict=True):
            if cell:
                key = backend, int(length.replace(",", ""))
                assert_measured(cell, measured[key][kind], f"{length}, {backend}, {kind}")


def test_the_first_screen_of_the_readme_says_what_its_tables_say() -> None:
    claims = " ".join((ROOT / "README.md").read_text(encoding="utf-8").partition("## Install")[0].split())
    speed = {row[0]: row for row in table("Speed")}["100,000"]
    assert f"takes {speed[1]} and {speed[3]}" in claims
    assert f"takes {speed[4]} and {speed[5]}" in claims
    hidden = {model.partition(" ")[0]: float(cells[-1].split()[0]) for model, *cells in table(DROP)}
    assert f"an accuracy of {hidden['TIDES']:.2f}" in claims
    assert f"falls to {hidden['Mamba_S']:.2f}" in claims
    assert hidden["S5"] > hidden["TIDES"] - 0.02
    smallest = {model: float(cells[1]) for model, *cells in table("Fading Flash")}
    assert f"TIDES errs by {smallest['TIDES']:.0f} %" in claims
    assert f"TIDES_Λ by {smallest['TIDES_Λ']:.0f} %" in claims
    assert min(smallest["Mamba_S"], smallest["Mamba block"]) > 120


def test_the_page_about_long_sequences_shows_the_measured_speed() -> None:
    text = (ROOT / "docs" / "maths" / "long-sequences.md").read_text(encoding="utf-8")
    found = re.search(r"one GPU, L = 10⁶, step \(measured\) \| (.*?), (.*?) \|", text)
    assert found
    measured = steps("cuda-h200-triton.json")["triton", 1_000_000]
    assert_measured(found[1], measured["step"], "long sequences")
    assert_measured(found[2], measured["memory"], "long sequences")
    estimate = re.search(r"N = 8: (\d+)/8 × 1\.15 \+ 0\.3 \| about (\d+) ms, (\S+) GB each", text)
    alone = re.search(r"own time on ℓ steps, about (\S+) µs each, .* between three and (\w+) thousand", text, re.S)
    assert estimate
    assert alone
    milliseconds, gigabytes = float(found[1].split()[0]), float(found[2].split()[0])
    assert estimate.groups() == (
        f"{milliseconds:.0f}",
        f"{milliseconds / 8 * 1.15 + 0.3:.0f}",
        f"{gigabytes / 8:.1f}",
    )
    per_step = milliseconds / 4000  # µs in one of four layers
    assert alone[1] == f"{per_step:.2f}"
    assert [round(wait / per_step / 1000) for wait in (80, 400)] == [3, {"twelve": 12, "fourteen": 14}[alone[2]]]
