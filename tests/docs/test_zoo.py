"""The model zoo page says what the facts, the measurements and the reports say."""

from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from tides.reports import zoo
from tides.reports.document import BEGIN, END, MARKDOWN

PAGE = (ROOT / "docs" / "zoo.md").read_text(encoding="utf-8")
SOURCE = ROOT / "results" / "zoo"


@pytest.mark.parametrize("fact", zoo.facts(), ids=lambda fact: fact["name"])
def test_every_baseline_is_on_the_page(fact: dict[str, str]) -> None:
    if fact["task"] == "classification":
        row = " | ".join([f"`{fact['name']}`", fact["what"], fact["when"], fact["licence"], fact["source"]])
        assert f"| {row} |" in PAGE
    family = fact["name"].removeprefix("neural-flow")
    assert f"`{fact['name']}`" in PAGE or f"`{family}`" in PAGE


def test_tables_come_from_the_measurements(tmp_path: Path) -> None:
    shown = PAGE.partition(BEGIN)[2].partition(END)[0].strip()
    if not SOURCE.is_dir():
        assert shown == "No measurements are committed yet."
        return
    zoo.report(SOURCE, [], tmp_path)
    wanted = (tmp_path / MARKDOWN).read_text(encoding="utf-8").strip()
    assert shown == wanted, "run: tides report zoo --in results/zoo --into docs/zoo.md"
