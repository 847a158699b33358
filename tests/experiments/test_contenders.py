"""Baselines in the experiments: published settings, budgets in steps, sizes that match."""

from pathlib import Path
from typing import Any

import pytest

from tides import baselines
from tides.errors import ConfigError
from tides.experiments import config, contenders, random_drop, uea
from tides.experiments.contenders import BaselineTraining
from tides.experiments.runner import run_cells
from tides.records import read_records

TRAINING = BaselineTraining(steps=1000, patience_steps=260, monitor="accuracy", lr=1e-3, batch_size=16)


def test_names_do_not_clash_with_the_variants_of_the_paper() -> None:
    assert "s5" not in contenders.names()
    assert "walker-s5" in contenders.names()
    assert len(contenders.names()) == len(baselines.names("classification"))
    with pytest.raises(ConfigError, match="models: found 's5'"):
        contenders.make("s5", {}, 2, 2)


def test_published_settings_are_used_where_there_are_any() -> None:
    found = contenders.settings("lru", "SelfRegulationSCP1", TRAINING)
    assert found["published"]
    assert found["model"]["state_size"] == 16
    assert found["train"] == {"lr": 1e-3, "batch_size": 32}
    unknown = contenders.settings("gru-d", "SelfRegulationSCP1", TRAINING)
    assert unknown == {"published": False, "model": {}, "train": {"lr": 1e-3, "batch_size": 16}}


def test_steps_become_epochs() -> None:
    """392 cases in batches of 32 are thirteen steps."""
    found = contenders.settings("lru", "SelfRegulationSCP1", TRAINING)
    training = contenders.train_config(found, TRAINING, 392)
    assert (training.epochs, training.patience, training.weight_decay) == (1000 // 13, 20, 0.0)
    rformer = contenders.settings("rformer", "SelfRegulationSCP1", TRAINING)
    assert contenders.train_config(rformer, TRAINING, 392).epochs == 20


@pytest.mark.parametrize("variant", ["paper", "recommended"])
def test_uea_accepts_every_baseline_on_every_data_set(variant: str) -> None:
    names = list(contenders.names())
    resolved = config.load("uea", variant, quick=False, settings=[f"models={names}", "seeds=1"])
    found = uea.cells(resolved, variant=variant, quick=False)
    assert len(found) == len(names) * 6 * 2
    published = {(c.config["model"], c.config["dataset"]) for c in found if c.config["configuration"]["published"]}
    # Nothing was published for the Transformer, D-LinOSS, GRU-D and the prior.
    assert len(published) == 11 * 6


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "class-prior" else pytest.mark.slow) for name in contenders.names()]
)
def test_a_quick_run_of_uea(name: str, tmp_path: Path) -> None:
    settings = [f"models=['{name}']", "seeds=1", "protocols=['walker']"]
    resolved = config.load("uea", "paper", quick=True, settings=settings)
    outcome = run_cells(uea.cells(resolved, variant="paper", quick=True), tmp_path)
    assert (outcome.computed, outcome.failed) == (1, {})
    (record,) = read_records(tmp_path / "records")
    assert record.results["test"]["cases"] == 90
    assert record.results["parameters"] > 0
    assert record.results["published_parameters"] is None


def cells_of_random_drop(models: list[str], *settings: str) -> list[Any]:
    resolved = config.load("random-drop", "paper", quick=True, settings=[f"models={models}", *settings])
    return random_drop.cells(resolved, variant="paper", quick=True)


@pytest.mark.parametrize("variant", ["paper", "recommended"])
def test_random_drop_matches_sizes(variant: str) -> None:
    """Near the common 29,317 to 29,893 parameters on six channels and five classes, as far as a model allows."""
    resolved = config.load("random-drop", variant, quick=False, settings=[])
    rivals = dict(resolved["contender"])
    assert {fields["baseline"] for fields in rivals.values()} == set(contenders.names())
    for name, fields in rivals.items():
        model = contenders.make(fields.pop("baseline"), fields, 6, 5)
        count = model.count_parameters()  # type: ignore[operator]
        assert name == "class-prior" or 25_800 < count < 30_300, f"{name}: {count}"


def test_a_quick_run_of_random_drop(tmp_path: Path) -> None:
    found = cells_of_random_drop(["tides", "gru-d", "class-prior"])
    assert [cell.config["train"]["weight_decay"] for cell in found] == [0.1, 0.0, 0.0]
    assert [cell.stack for cell in found][1:] == ["embedded-paper-gru-d", "embedded-paper-class-prior"]
    outcome = run_cells([cell for cell in found if cell.config["model"] == "class-prior"], tmp_path)
    assert (outcome.computed, outcome.failed) == (1, {})
    (record,) = read_records(tmp_path / "records")
    assert [entry["rate"] for entry in record.results["test"]] == [0.1, 0.9]


def test_unknown_contenders_are_refused() -> None:
    with pytest.raises(ConfigError, match="models: found 'lstm'"):
        cells_of_random_drop(["lstm"])
    resolved = config.load("random-drop", "paper", quick=True, settings=["models=['lru']"])
    resolved["contender"]["lru"] = {"baseline": "lstm"}
    with pytest.raises(ConfigError, match=r"contender\.lru\.baseline"):
        random_drop.cells(resolved, variant="paper", quick=True)
