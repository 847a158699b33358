"""The drop-rate experiment on embedded data: six matched variants, fresh masks in training, fixed ones in tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tides.data.random_drop import RandomDrop
from tides.errors import ConfigError
from tides.experiments import config, random_drop, uea_series
from tides.experiments.runner import Cell, run_cells
from tides.nn import SequenceClassifier
from tides.records import read_records
from tides.training.lanes import ResidentSeries


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The embedded task with few and short series."""
    monkeypatch.setattr(uea_series, "_EMBEDDED_CASES", 30)
    monkeypatch.setattr(uea_series, "_EMBEDDED_STEPS", 20)
    uea_series.load.cache_clear()
    yield
    uea_series.load.cache_clear()


def cells(*settings: str, variant: str = "paper", quick: bool = True) -> list[Cell]:
    found = config.load("random-drop", variant, quick=quick, settings=settings)
    return random_drop.cells(found, variant=variant, quick=quick)


def test_the_default_is_six_variants_with_five_seeds_under_the_papers_settings() -> None:
    found = cells(quick=False)
    assert len({cell.id for cell in found}) == len(found) == 4 * 6 * 5
    assert {cell.stack for cell in found} == {"SCP1-paper", "embedded-paper", "MI-paper", "EW-paper"}
    shared = found[0].config
    assert shared["train"] | {"batch_size": 0} == {
        "optimiser": "adam",
        "lr": 1e-3,
        "weight_decay": 0.1,
        "batch_size": 0,
        "epochs": 400,
        "monitor": "accuracy",
    }
    assert shared["drop"]["train"] == 0.5
    assert shared["drop"]["test"] == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    assert {cell.config["dataset"] for cell in found if not cell.config["first_channel"]} == {"EW"}


def test_variants_have_the_published_numbers_of_parameters() -> None:
    wanted = {"s5": 29409, "tides-lambda": 29525, "mamba-s": 29605}
    wanted |= {"tides-bc": 29317, "tides": 29605, "tides-full": 29893}
    for cell in cells("datasets=['EW']", "seeds=1", quick=False):
        model = SequenceClassifier(random_drop.model_config(cell.config, channels=6), classes=5)
        assert model.count_parameters(release_equivalent=True) == wanted[cell.config["model"]]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("variant", ["paper", "recommended"])
def test_a_quick_run_of_all_variants_leaves_marked_records(variant: str, tmp_path: Path) -> None:
    outcome = run_cells(cells(variant=variant), tmp_path)
    records = read_records(tmp_path / "records")
    assert (outcome.failed, len(records)) == ({}, 6)
    for record in records:
        assert record.quick
        assert [entry["rate"] for entry in record.results["test"]] == [0.1, 0.9]
        for entry in record.results["test"]:
            assert len(entry["correct"]) == 2
            assert entry["accuracy"] == pytest.approx(sum(entry["correct"]) / 2 / entry["cases"])


def series(n: int = 3, length: int = 40) -> ResidentSeries:
    times = torch.arange(1.0, length + 1, dtype=torch.float64).expand(n, -1)
    return ResidentSeries(times.float().unsqueeze(-1).clone(), times, torch.zeros(n, dtype=torch.long))


def test_training_masks_are_fresh_and_evaluation_masks_fixed() -> None:
    data = series()
    drop = random_drop.Drop(0.5, "fresh", 0.5, (0.9,), 1)
    view = random_drop.training_view(drop, data, seed=0)
    torch.manual_seed(0)
    first, again = view(data.values, data.times), view(data.values, data.times)
    assert first[0].shape == (3, 20, 1)
    # Values are their own timestamps here: what is left keeps its place in time.
    assert torch.equal(first[0].squeeze(-1).double(), first[1])
    assert not torch.equal(first[1], again[1])
    rows = torch.arange(3)
    one, same = (random_drop.hidden(data, rows, RandomDrop(0.9, "per-series", 200)) for _ in range(2))
    assert torch.equal(one.times, same.times)
    assert one.times.shape == (3, 4)
    assert not torch.equal(one.times[0], one.times[1])


def test_one_mask_hides_the_same_steps_of_every_series() -> None:
    data = series()
    view = random_drop.training_view(random_drop.Drop(0.5, "one", 0.5, (0.9,), 1), data, seed=3)
    _, times = view(data.values, data.times)
    assert torch.equal(times[0], times[1])
    assert torch.equal(times, view(data.values, data.times)[1])


def test_unknown_models_are_refused() -> None:
    with pytest.raises(ConfigError, match="lstm"):
        cells("models=['lstm']")
