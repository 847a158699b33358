"""The UEA experiment on embedded data, and on real data where it is at hand."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tides.data import Scaling
from tides.errors import ConfigError
from tides.experiments import config, uea, uea_series
from tides.experiments.engines import Processes, Streams
from tides.experiments.runner import Cell, run_cells
from tides.records import read_records
from tides.training import FitResult, lanes
from tides.turns import Turns

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def cells(*settings: str, variant: str = "paper", quick: bool = True) -> list[Cell]:
    found = config.load("uea", variant, quick=quick, settings=settings)
    return uea.cells(found, variant=variant, quick=quick)


@pytest.mark.parametrize("variant", ["paper", "recommended"])
def test_the_default_is_six_data_sets_two_protocols_and_ten_seeds(variant: str) -> None:
    found = cells(quick=False, variant=variant)
    assert len({cell.id for cell in found}) == len(found) == 120
    assert len({cell.stack for cell in found}) == 6
    walker = [cell.config["seed"] for cell in found if cell.label.startswith("SCP1-walker")]
    assert walker == [2345, 3456, 4567, 5678, 6789, 7900, 9011, 10122, 11233, 12344]
    rformer = [cell.config["seed"] for cell in found if cell.label.startswith("MI-rformer")]
    assert rformer == list(range(42, 52))


def test_both_presets_train_the_configurations_of_the_paper() -> None:
    """Row by row: lr, decay, H, P, groups, blocks, encoder, dropout, batch, d_Λ, rank, direction, epochs."""
    wanted = {
        "SCP1": (2.17e-4, 0.0, 16, 32, 4, 4, 0, "exp", 0.15, 5, 0, 8, False, 0.0, 200),
        "SCP2": (2.72e-4, 0.0, 16, 64, 8, 2, 0, "stable", 0.0, 10, 0, 16, True, 1e-4, 400),
        "MI": (6.52e-4, 0.01, 32, 16, 4, 4, 0, "standard", 0.05, 20, 0, 16, True, 1e-4, 200),
        "EW": (1.56e-3, 0.1, 16, 16, 2, 1, 0, "stable", 0.0, 10, 0, 16, True, 1e-4, 400),
        "ETC": (5.18e-4, 0.1, 8, 32, 8, 8, 1, "exp", 0.05, 20, 2, 8, True, 0.0, 200),
        "HB": (3.32e-4, 0.1, 64, 16, 4, 4, 0, "exp", 0.1, 20, 0, 8, True, 0.0, 400),
    }
    names = ("lr", "weight_decay", "hidden_size", "state_size", "groups", "depth", "encoder_depth", "reparam")
    names += ("dropout", "batch_size", "decay_depth", "rank", "bidirectional", "clip", "epochs")
    for variant in ("paper", "recommended"):
        found = {cell.config["dataset"]: cell.config for cell in cells(quick=False, variant=variant)}
        for dataset, row in wanted.items():
            assert tuple(found[dataset]["configuration"][name] for name in names) == row, dataset
            assert found[dataset]["train"]["epochs"] == row[-1]
            assert (found[dataset]["train"]["patience"], found[dataset]["train"]["monitor"]) == (30, "loss")
    paper, ours = (
        uea.build(uea.UEAConfig, config.load("uea", v, quick=False, settings=[])) for v in ("paper", "recommended")
    )
    assert paper.configuration[0].model("paper", "tides", 6).compat == "release"
    assert ours.configuration[0].model("recommended", "tides", 6).hold == "following"
    assert (paper.scaling, ours.scaling) == ("raw", "zscore")


@pytest.mark.parametrize("variant", ["paper", "recommended"])
def test_a_quick_run_needs_no_data_and_leaves_marked_records(variant: str, tmp_path: Path) -> None:
    found = cells("train.epochs=1", "protocols=['walker']", variant=variant)
    outcome = run_cells(found, tmp_path)
    records = read_records(tmp_path / "records")
    assert (outcome.computed, outcome.failed, len(records)) == (2, {}, 2)
    for record in records:
        assert record.quick
        assert record.results["test"]["cases"] == 90
        assert record.results["test"]["accuracy"] == record.results["test"]["correct"] / 90
        assert record.results["best_epoch"] == 1
        assert record.results["device"] == "cpu"


def test_training_never_sees_test_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = cells("train.epochs=1")[0]
    seen: list[set[int]] = []

    def spy(members: list[lanes.Member], *arguments: object, **more: object) -> Turns[list[FitResult]]:
        rows = uea_series.split_rows(uea_series.load("embedded"), "walker", 2345, "cpu")
        assert torch.equal(members[0].train, rows.train)
        assert torch.equal(members[0].validation.values, members[0].data.values[rows.validation])
        seen.append({*rows.train.tolist(), *rows.validation.tolist()} & set(rows.test.tolist()))
        yield
        return [FitResult("epochs", 1, 1, 1, {"val_loss": 1.0}, [], 0.0, None)]

    monkeypatch.setattr(uea, "side_by_side_turns", spy)
    uea.run(cell, uea.Context())
    assert seen == [set()]


def test_stacks_that_take_turns_end_as_alone(tmp_path: Path) -> None:
    found = cells("models=['tides', 's5']", "seeds=1", "train.epochs=1")
    assert len({cell.stack for cell in found}) == 2
    ends = []
    for engine, folder in ((Processes(), tmp_path / "alone"), (Streams(2), tmp_path / "turns")):
        assert run_cells(found, folder, engine=engine).computed == len(found)
        records = {record.cell_id: record.results for record in read_records(folder)}
        ends.append({name: results["test"] for name, results in records.items()})
    assert ends[0] == ends[1]


def test_what_is_not_at_hand_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDES_DATA", str(tmp_path))
    monkeypatch.setitem(__import__("sys").modules, "aeon", None)
    uea_series.load.cache_clear()
    found = cells("datasets=['EW']", "seeds=1", quick=False)
    outcome = run_cells(found, tmp_path)
    assert (outcome.computed, outcome.failed) == (0, {})
    assert set(outcome.unavailable) == {"EW-paper-tides"}
    assert "EigenWorms.npz" in outcome.unavailable["EW-paper-tides"]


def test_unknown_names_are_refused() -> None:
    for setting, word in (("datasets=['XX']", "XX"), ("models=['lstm']", "lstm"), ("protocols=['mine']", "mine")):
        with pytest.raises(ConfigError, match=word):
            cells(setting)


def test_channel_moments_are_those_of_the_scaling() -> None:
    dataset = uea_series.load("embedded")
    data = uea_series.resident(dataset, "cpu")
    mean, spread = uea_series.channel_moments(data.values)
    wanted = Scaling.fit(dataset)
    np.testing.assert_allclose(mean, wanted.mean, rtol=1e-6)
    np.testing.assert_allclose(spread, wanted.std, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "uea").is_dir(), reason="the UEA files are not at hand")
def test_one_epoch_on_real_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDES_DATA", str(SHARED))
    uea_series.load.cache_clear()
    found = [cell for cell in cells("train.epochs=1", "seeds=1", quick=False) if "SCP1-walker" in cell.label]
    run_cells(found, tmp_path)
    (record,) = read_records(tmp_path / "records")
    assert record.results["test"]["cases"] == 85
    assert record.results["missing"] is None
