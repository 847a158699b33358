"""The numbers of `describe`, and its page of plots."""

import json
from pathlib import Path

import numpy as np
import pytest

from tides.data import IrregularDataset, IrregularSeries, describe
from tides.data.summary_plot import plot_summary
from tides.errors import DataError


def make() -> IrregularDataset:
    series = [
        IrregularSeries([[1.0, np.nan, 5.0], [3.0, np.nan, 5.0]], [0.0, 2.0], label=0, group="g"),
        IrregularSeries([[5.0, np.nan, np.nan]], [4.0], label=1, group="g"),
        IrregularSeries([[7.0, np.nan, 5.0], [7.0, np.nan, 5.0], [1.0, np.nan, 5.0]], [0.0, 0.0, 9.0], label=1),
    ]
    return IrregularDataset(series, channels=("a", "never", "flat"), unit="h", class_names=("no", "yes"))


def test_numbers() -> None:
    summary = describe(make())
    assert (summary.series, summary.steps) == (3, 6)
    assert summary.lengths["median"] == 2
    assert summary.gaps["max"] == 9.0
    assert (summary.durations["min"], summary.durations["median"], summary.durations["max"]) == (0.0, 2.0, 9.0)
    a, never, flat = summary.channels
    assert (a.observed, a.missing, a.mean, a.min, a.max) == (6, 0.0, 4.0, 1.0, 7.0)
    assert a.std == pytest.approx(np.std([1, 3, 5, 7, 7, 1]))
    assert (never.missing, never.mean) == (1.0, None)
    assert flat.std == 0.0
    assert summary.missing == pytest.approx(7 / 18)
    assert summary.labels == {"kind": "class", "counts": {"no": 1, "yes": 2}}
    notes = "\n".join(summary.notes)
    for words in ("1 series have a single", "1 gaps are 0", "never observed: never", "constant: flat", "fewer than 10"):
        assert words in notes
    assert json.loads(json.dumps(summary.to_dict()))["channels"][0]["name"] == "a"


def test_regular_data_is_called_regular() -> None:
    data = IrregularDataset([IrregularSeries(np.ones((4, 1)), [0, 1, 2, 3])])
    assert any("regularly sampled" in note for note in describe(data).notes)


@pytest.mark.parametrize("labels", ["class", "number", "none"])
def test_page_of_plots(tmp_path: Path, labels: str) -> None:
    pytest.importorskip("matplotlib")
    data = make()
    if labels != "class":
        change = {"label": 0.5} if labels == "number" else {"label": None}
        data = IrregularDataset([one.replace(**change) for one in data], channels=data.channels)
    plot_summary(data, describe(data), tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 10_000
    with pytest.raises(DataError, match="cannot be written"):
        plot_summary(data, describe(data), tmp_path / "no" / "page.png")
