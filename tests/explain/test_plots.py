"""Every picture is written, says its unit, and an impossible file is one clear error."""

from pathlib import Path

import pytest
import torch

from tests.explain.models import batch, classifier, forecaster
from tides import explain
from tides.errors import ShapeError, TidesError
from tides.training import Forecasting

pytest.importorskip("matplotlib", reason="extra `plots` is not installed")


def test_every_picture_is_written_with_its_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib

    # Letters as letters, so that they can be read back.
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")
    model, given = classifier(), batch()
    explain.plot_clock(explain.clock(model, given, unit="ms"), tmp_path / "clock.svg", series=1)
    found = explain.attribute(model, given, target=0, steps=2)
    explain.plot_attribution(found, given, tmp_path / "attribution.svg", channels=["pH", "lactate"], unit="ms")
    later = explain.sampled_later(model, given, [0.0, 1.0])
    explain.plot_later(later, tmp_path / "later.svg", names=["well", "ill", "worse"], unit="ms")
    explain.plot_removal(explain.remove_each(model, given), given, tmp_path / "removal.svg", unit="ms")
    task = Forecasting(gaussian=True)
    suggestion = explain.suggest_next_time(forecaster(4), batch(queries=1), torch.tensor([9.0, 8.0]), task=task)
    explain.plot_suggestion(suggestion, tmp_path / "suggestion.svg", unit="ms")
    words = {
        "clock": "half-life (ms)",
        "attribution": "lactate",
        "later": "worse",
        "removal": "(ms)",
        "suggestion": "(ms)",
    }
    for name, word in words.items():
        text = (tmp_path / f"{name}.svg").read_text()
        assert word in text, name
        assert "(ms)" in text, name


def test_an_impossible_file_is_one_error(tmp_path: Path) -> None:
    found = explain.clock(classifier(), batch())
    for path in (tmp_path / "no" / "clock.png", tmp_path / "clock.nonsense"):
        with pytest.raises(TidesError, match="cannot be written"):
            explain.plot_clock(found, path)


def test_what_does_not_belong_together_is_named(tmp_path: Path) -> None:
    model, given = classifier(), batch()
    found = explain.clock(model, given)
    assert torch.equal(found.series(-1).times, found.series(len(given) - 1).times)
    with pytest.raises(ShapeError, match="series: found 99"):
        explain.plot_clock(found, tmp_path / "clock.png", series=99)
    with pytest.raises(ShapeError, match="channels: found 1 names"):
        explain.plot_attribution(
            explain.attribute(model, given, target=0, steps=2), given, tmp_path / "a.png", channels=["pH"]
        )
    lengths = given.lengths.tolist()
    other = next(k for k, length in enumerate(lengths) if length != lengths[0])
    removal = explain.remove_each(model, given)
    with pytest.raises(ShapeError, match=f"series: {other} has"):
        explain.plot_removal(removal, given, tmp_path / "r.png", series=other)
    with pytest.raises(ShapeError, match="answer: found 9"):
        explain.plot_removal(removal, given, tmp_path / "r.png", answer=9)
