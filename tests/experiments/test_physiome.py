"""Physiome: cells, published settings, one quick run, and what happens without data."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tides.data import physiome as data
from tides.errors import ConfigError
from tides.experiments import config, physiome, physiome_folds, physiome_training, runner
from tides.experiments.engines import Processes, Streams
from tides.nn import Forecaster, TIDESConfig
from tides.records import read_records
from tides.reports import physiome as physiome_report

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def resolved(variant: str, *settings: str, quick: bool = False) -> list[runner.Cell]:
    chosen = config.load("physiome", variant, quick=quick, settings=settings)
    return physiome.cells(chosen, variant=variant, quick=quick)


def test_fifty_published_configurations() -> None:
    cells = resolved("paper")
    assert [cell.config["dataset"] for cell in cells] == list(data.names())
    assert len({cell.id for cell in cells}) == 50
    for cell in cells:
        architecture = TIDESConfig.from_dict(cell.config["architecture"])
        assert (architecture.compat, architecture.variant) == ("release", "tides")
        assert architecture.input_size == data.system(cell.config["dataset"]).channels
    training = {cell.config["dataset"]: cell.config["train"] for cell in cells}
    assert training["REE01"]["lr"] == pytest.approx(1.2871667e-05)
    assert (training["PUR02"]["batch_size"], training["GUY02"]["warmup_epochs"]) == (16, 1)
    assert {(t["epochs"], t["patience"], t["optimiser"]) for t in training.values()} == {(200, 30, "adamw")}
    # The release read a multiple of one half as zero in exactly two rows.
    empty = [cell.config["dataset"] for cell in cells if cell.config["architecture"]["expand"] == 0]
    assert sorted(empty) == ["HYN01", "JEL02"]


def test_the_recommended_preset_is_one_configuration() -> None:
    cells = resolved("recommended", "datasets=['HOD01','REE01']", "model.depth=2")
    own = [{k: v for k, v in cell.config["architecture"].items() if k != "input_size"} for cell in cells]
    assert own[0] == own[1]
    assert own[0]["depth"] == 2
    assert cells[0].config["train"] == cells[1].config["train"]


@pytest.mark.parametrize(
    ("settings", "message"), [(["datasets=['XYZ01']"], "XYZ01"), (["models=['lstm']"], "lstm"), (["folds=0"], "folds")]
)
def test_bad_settings_are_named(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolved("paper", *settings)


@pytest.mark.parametrize("variant", ["paper", "recommended"])
def test_a_quick_run_on_embedded_data(variant: str, tmp_path: Path) -> None:
    small = ["instances=20", "train.epochs=2", "train.warmup_epochs=1", "model.depth=1"]
    if variant == "paper":
        small = ["instances=20"]
    cells = resolved(variant, *small, quick=True)
    outcome = runner.run_cells(cells, tmp_path)
    assert (outcome.computed, outcome.failed) == (1, {})
    (record,) = read_records(tmp_path / "records")
    assert record.quick
    assert len(record.results["folds"]) == 2
    for fold in record.results["folds"]:
        assert 0 < fold["test_mse"] < 10
        assert set(fold["trivial_mse"]) == {"zero", "last", "mean"}
    assert record.results["test_mse"] == pytest.approx(sum(f["test_mse"] for f in record.results["folds"]) / 2)
    assert not (tmp_path / "unfinished").exists()
    assert runner.run_cells(cells, tmp_path).cached == 1


def test_a_fold_without_a_finite_error_is_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(physiome_training, "population_losses", lambda *_: [0.5, float("nan")])
    small = ["instances=20", "train.epochs=1", "train.warmup_epochs=0", "model.depth=1"]
    runner.run_cells(resolved("recommended", *small, quick=True), tmp_path)
    (record,) = read_records(tmp_path / "records")
    assert [fold["test_mse"] for fold in record.results["folds"]] == [0.5, None]
    assert (record.results["test_mse"], record.results["test_mse_std"]) == (None, None)


def own_system(folder: Path, seed: int = 0) -> None:
    """Thirty trajectories of two channels, as a file under the data folder."""
    generator = np.random.default_rng(seed)
    speed, start = generator.uniform(0.05, 0.2, (30, 1)), generator.uniform(0, 6, (30, 1))
    angle = start + speed * np.arange(100)
    trajectories = data.standardise("pendulum", np.stack([np.sin(angle), np.cos(angle)], -1), t_step=0.1)
    data.save_trajectories(folder / "physiome" / "pendulum.npz", trajectories)


def test_a_system_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its file makes it known, its content is part of the cell, and the report shows it without published numbers."""
    monkeypatch.setenv("TIDES_DATA", str(tmp_path))
    small = ["datasets=['pendulum']", "folds=2", "train.epochs=1", "train.warmup_epochs=0", "model.depth=1"]
    small += ["baseline.train={epochs = 1}", "models=['tides', 'imts-mixer']"]
    with pytest.raises(ConfigError, match=r"found 'pendulum', wanted .* a file of trajectories under"):
        resolved("recommended", *small)
    own_system(tmp_path)
    cells = resolved("recommended", *small)
    assert [cell.config["architecture"]["input_size"] for cell in cells] == [2, 2]
    with pytest.raises(ConfigError, match="nothing was published for 'pendulum'; wanted --variant recommended"):
        resolved("paper", "datasets=['pendulum']")
    outcome = runner.run_cells(cells, tmp_path)
    assert (outcome.computed, outcome.failed) == (2, {})
    page, _ = physiome_report.report(tmp_path)
    rows = (page.parent / "physiome.csv").read_text(encoding="utf-8").splitlines()
    assert rows[-1].startswith("pendulum,–,")
    assert rows[-1].count(" ± ") == 2
    # What learns nothing was measured beside the models; the best constant was not.
    *_, zero, last, oracle = rows[-1].split(",")
    assert (0.8 < float(zero) < 1.2, 0.2 < float(last) < 4, oracle) == (True, True, "–")
    own_system(tmp_path, seed=1)
    assert not {cell.id for cell in cells} & {cell.id for cell in resolved("recommended", *small)}


def test_missing_data_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIDES_DATA", str(tmp_path))
    outcome = runner.run_cells(resolved("paper", "datasets=['REE01']"), tmp_path / "runs")
    assert outcome.computed == 0
    assert "no trajectories" in outcome.unavailable["REE01-paper-tides"]


def test_folds_of_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    if not (SHARED / "physiome").is_dir():
        pytest.skip("no Physiome trajectories beside the repository")
    monkeypatch.setenv("TIDES_DATA", str(SHARED))
    parts = physiome_folds.load("DUP01", 2, parity=True, instances=0)
    assert [len(part) for part in parts[0]] == [1400, 400, 200]
    assert not torch.equal(parts[0].test.values[:5, :5], parts[1].test.values[:5, :5])
    errors = physiome_training.trivial_errors(parts[0].test)
    # Standardised channels: zero is off by their variance.
    assert errors["zero"] == pytest.approx(1.0, abs=0.1)
    (cell,) = resolved("paper", "datasets=['DUP01']")
    model = physiome_training.build_model(cell.config, 0, parts[0].train)
    assert isinstance(model, Forecaster)
    assert float(model.backbone.calibration.time_scale) == 1.0
    (own,) = resolved("recommended", "datasets=['DUP01']")
    scale = physiome_training.build_model(own.config, 0, parts[0].train).backbone.calibration.time_scale
    assert float(scale) == pytest.approx(
        parts[0].train.times.diff(dim=1).masked_select(parts[0].train.valid[:, 1:]).median()
    )


def test_cells_that_take_turns_end_as_they_do_alone(tmp_path: Path) -> None:
    settings = ["datasets=['embedded-calcium','embedded-hodgkin-huxley']", "instances=20", "model.dropout=0.2"]
    settings += ["train.epochs=2", "train.warmup_epochs=1"]
    cells = resolved("recommended", *settings, quick=True)
    for engine, folder in ((Processes(), tmp_path / "alone"), (Streams(2), tmp_path / "turns")):
        outcome = runner.run_cells(cells, folder, engine=engine)
        assert (outcome.computed, outcome.failed) == (2, {})
    alone, turns = (
        {r.config["dataset"]: r.results for r in read_records(tmp_path / name / "records")}
        for name in ("alone", "turns")
    )
    for name, results in alone.items():
        assert turns[name]["folds"] == results["folds"]
    assert not (tmp_path / "turns" / "unfinished").exists()
