"""Any time: cells, questions beyond the training horizon, errors by horizon, a quick run that is resumed."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tides.data import IrregularBatch
from tides.errors import ConfigError
from tides.experiments import anytime, anytime_series, config, runner
from tides.experiments.anytime_errors import errors_by_horizon, mean_error
from tides.experiments.anytime_series import Sampling
from tides.nn import Forecaster
from tides.records import read_records

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
SAMPLING = Sampling(instances=20, points=10, queries=8, missing=0.5, noise=0.1, window=2, reach=4)


def resolved(*settings: str, variant: str = "recommended", quick: bool = False) -> list[runner.Cell]:
    chosen = config.load("anytime", variant, quick=quick, settings=settings)
    return anytime.cells(chosen, variant=variant, quick=quick)


@pytest.fixture(scope="module")
def test_part() -> IrregularBatch:
    return anytime_series.load("embedded-calcium", 0, SAMPLING).test


@pytest.mark.parametrize("variant", ["recommended", "small"])
def test_the_cells_of_the_shipped_files(variant: str) -> None:
    cells = resolved(variant=variant)
    assert len({cell.id for cell in cells}) == len(cells) == 2 * 2 * 3 * 5
    assert len({cell.stack for cell in cells}) == 12
    sizes = {
        anytime.build_model(cell.config, torch.ones(3)).count_parameters() for cell in cells if "calcium" in cell.label
    }
    assert max(sizes) < 1.03 * min(sizes)
    assert all(cell.config["sampling"]["reach"] == 4 for cell in cells)


def test_training_asks_up_to_one_horizon_and_tests_up_to_four(test_part: IrregularBatch) -> None:
    train, val, _ = anytime_series.load("embedded-calcium", 0, SAMPLING)
    for part, reach in ((train, 1), (val, 1), (test_part, 4)):
        assert part.query_times is not None
        assert part.times.min() >= 0
        assert part.times.max() <= 2 < part.query_times.min()
        assert reach - 0.5 < part.query_times.max() - 2 <= reach
        assert (part.query_times.diff(dim=1) > 0).all()
        for k in range(reach):
            inside = (part.query_times > 2 + k) & (part.query_times <= 3 + k)
            assert (inside.sum(dim=1) == SAMPLING.queries).all()
    assert (len(train), len(val), len(test_part)) == (14, 4, 2)
    assert part.observed.any(dim=2).all()
    other = anytime_series.load("embedded-calcium", 1, SAMPLING)
    assert not torch.equal(other.train.values, train.values)


@pytest.mark.parametrize("mode", ["steps", "readout"])
def test_errors_by_horizon(mode: str, test_part: IrregularBatch) -> None:
    cell = next(c for c in resolved(quick=True) if c.config["query_mode"] == mode)
    torch.manual_seed(0)
    model = anytime.build_model(cell.config, torch.full((3,), 0.1))
    found = errors_by_horizon(model, test_part, window=2, reach=4, bins=2)
    assert [(entry["from"], entry["to"]) for entry in found] == [(k / 2, (k + 1) / 2) for k in range(8)]
    assert test_part.targets is not None
    assert sum(entry["targets"] for entry in found) == test_part.targets.numel()
    zero = mean_error([{**e, "mse": e["trivial_mse"]["zero"]} for e in found], 0, 4)
    assert zero == pytest.approx(float(test_part.targets.double().square().mean()))
    same = [entry["mse"] == pytest.approx(entry["alone_mse"], rel=1e-4) for entry in found]
    # Questions are steps in one mode and change nothing in the other.
    assert all(same) == (mode == "readout")


def test_readout_answers_do_not_depend_on_other_questions(test_part: IrregularBatch) -> None:
    """What lets `errors_by_horizon` ask once in this mode."""
    cell = next(c for c in resolved(quick=True) if c.config["query_mode"] == "readout")
    model = anytime.build_model(cell.config, torch.full((3,), 0.1)).eval()
    assert isinstance(model, Forecaster)
    assert test_part.query_times is not None

    def ask(part: IrregularBatch) -> torch.Tensor:
        return model(part.values, part.times, part.observed, part.query_times, query_valid=part.query_valid)

    late = test_part.query_times > 5
    few = ask(replace(test_part, query_valid=late))
    torch.testing.assert_close(few[late], ask(test_part)[late])


def test_a_quick_run_is_resumed(tmp_path: Path) -> None:
    cells = resolved("models=['tides','mamba-s']", "bins=2", quick=True)
    assert len(cells) == 8
    assert runner.run_cells(cells[:1], tmp_path).computed == 1
    outcome = runner.run_cells(cells, tmp_path)
    assert (outcome.cached, outcome.computed, outcome.failed) == (1, 7, {})
    assert not (tmp_path / "unfinished").exists()
    records = read_records(tmp_path / "records")
    assert len(records) == 8
    for record in records:
        results = record.results
        assert record.quick
        assert len(results["bins"]) == 8
        assert results["within_mse"] == pytest.approx(mean_error(results["bins"], 0, 1))
        assert results["beyond_mse"] == pytest.approx(mean_error(results["bins"], 1, 4))
        assert 0 < results["within_mse"] < 10


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["systems=['XYZ01']"], "XYZ01"),
        (["models=['lstm']"], "lstm"),
        (["seeds=0"], "seeds"),
        (["sampling.reach=0"], "reach"),
        (["query_modes=['ask']"], "ask"),
    ],
)
def test_bad_settings_are_named(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolved(*settings)


def test_systems_without_files_are_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("libcellml")
    monkeypatch.setenv("TIDES_DATA", str(tmp_path))
    outcome = runner.run_cells(resolved("systems=['HOD01']", "seeds=1"), tmp_path / "runs")
    assert (outcome.computed, len(outcome.unavailable)) == (0, 6)
    (tmp_path / "cellml").mkdir()
    assert "holds no model of HOD01" in (anytime_series.obstacle("HOD01") or "")


@pytest.mark.slow
def test_a_system_of_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("libcellml")
    if not (SHARED / "cellml" / "HOD01.cellml").is_file():
        pytest.skip("no CellML models beside the repository")
    monkeypatch.setenv("TIDES_DATA", str(SHARED))
    assert anytime_series.obstacle("HOD01") is None
    train, _, test = anytime_series.load("HOD01", 0, SAMPLING)
    assert test.query_times is not None
    assert test.query_times.max() == pytest.approx(6.0, abs=0.1)
    assert train.values.shape[2] == test.values.shape[2] == 4
