"""Drawing takes longer than all the rest of a report, so that most tests leave it out."""

import pytest

from tests.reports.synthetic import FIGURES


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    for figure in FIGURES:
        monkeypatch.setattr(f"tides.reports.{figure}.draw", lambda *_: "data:image/png;base64,")
