"""The model zoo names every baseline and shows the published numbers that the reports show."""

import re

import numpy as np
import pytest

from tests.docs.blocks import ROOT
from tides import baselines
from tides.reports.published import published

PAGE = (ROOT / "docs" / "zoo.md").read_text(encoding="utf-8")
TITLES = {
    "s5": "S5",
    "lru": "LRU",
    "s6": "S6",
    "mamba": "Mamba",
    "ncde": "NCDE",
    "nrde": "NRDE",
    "log-ncde": "LogNCDE",
    "linoss-im": "LinOSS-IM",
    "linoss-imex": "LinOSS-IMEX",
    "d-linoss": "D-LinOSS",
    "rformer": "RFormer",
    "transformer": "Transformer",
    "logsig-ssm": "LogSig-SSM",
}
COLUMNS = ("EW", "SCP1", "SCP2", "ETC", "HB", "MI")


@pytest.mark.parametrize("name", baselines.names())
def test_every_baseline_is_on_the_page(name: str) -> None:
    family = name.removeprefix("neural-flow")
    assert f"`{name}`" in PAGE or (family != name and f"`{family}`" in PAGE)


@pytest.mark.parametrize("name", TITLES)
def test_published_numbers_are_those_of_the_reports(name: str) -> None:
    numbers = published("uea")
    model = next(m for m in [*numbers["model"], *numbers["later"]] if m["name"] == TITLES[name])
    section = PAGE.split("## Beside the published numbers")[1]
    row = re.search(rf"^\| `{re.escape(name)}`[^|]* \| (.*) \|$", section, re.MULTILINE)
    assert row, name
    for column, shown in zip(COLUMNS, row[1].split(" | "), strict=True):
        value = model["mean"][numbers["datasets"].index(column)]
        assert shown == ("out of memory" if np.isnan(value) else f"{value:.1f}"), column
