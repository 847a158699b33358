"""Drawing takes longer than all the rest of a report, so that most tests leave it out."""

import pytest

from tests.reports.synthetic import FIGURES
from tides.reports.page import Image


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    for figure in FIGURES:
        monkeypatch.setattr(f"tides.reports.{figure}.draw", lambda *_: Image("data:image/png;base64,", 6.0))
