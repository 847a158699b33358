"""Ablations: one factor at a time, quick runs on embedded data, and records that are kept."""

from pathlib import Path
from typing import Any

import pytest

from tides.data import physiome
from tides.errors import ConfigError
from tides.experiments import ablations, config, regimes, runner
from tides.experiments import physiome as physiome_experiment
from tides.records import read_records


def resolved(*settings: str, quick: bool = False) -> list[runner.Cell]:
    chosen = config.load("ablations", "recommended", quick=quick, settings=settings)
    return ablations.cells(chosen, variant="recommended", quick=quick)


def name(cell: runner.Cell) -> str:
    return cell.label.removeprefix(f"{cell.config['dataset']}-")


def difference(one: dict[str, Any], other: dict[str, Any]) -> set[str]:
    return {key for key in one if one[key] != other[key]}


def test_every_cell_differs_from_its_reference_in_what_it_says() -> None:
    cells = resolved('datasets=["HOD01"]')
    by_name = {name(cell): cell for cell in cells}
    assert len(by_name) == len(cells) == len({cell.id for cell in cells})
    assert (
        by_name["base"].config["architecture"] | {"variant": "tides", "rank": 8}
        == (by_name["base"].config["architecture"])
    )
    for cell in cells:
        base = by_name["base"].config
        assert cell.config["train"] == base["train"]
        assert difference(cell.config["architecture"], base["architecture"]) == set(cell.config["changed"])
        reference = by_name[cell.config["against"]].config["architecture"]
        # Against its reference a change is one factor; two fields at once are a corner of a product.
        fields = difference(cell.config["architecture"], reference)
        corners = {"norm-depth": 2, "channels": 2, "time": 2}
        assert len(fields) <= corners.get(cell.config["factor"], 1), cell.label


def test_the_base_is_the_recommended_configuration_of_physiome() -> None:
    """All of it: sizes, rates and the share of inputs that training hides."""
    (base,) = [cell.config for cell in resolved('datasets=["HOD01"]') if name(cell) == "base"]
    chosen = config.load("physiome", "recommended", quick=False, settings=['datasets=["HOD01"]'])
    (wanted,) = [cell.config for cell in physiome_experiment.cells(chosen, variant="recommended", quick=False)]
    shorter = {"epochs", "patience"}
    assert difference(base["train"], wanted["train"]) <= shorter
    assert base["architecture"] == wanted["architecture"]
    for field in ("folds", "parity", "instances", "query_mode", "input_drop"):
        assert base[field] == wanted[field], field
    assert "input_drop" not in resolved('datasets=["HOD01"]', "input_drop=0.0")[0].config
    assert "input_drop" not in resolved('datasets=["regimes-calcium"]')[0].config


def test_the_factors_of_the_table_on_at_least_eight_datasets() -> None:
    cells = resolved()
    factors = {cell.config["factor"] for cell in cells}
    wanted = {"selective", "norm-depth", "rank", "reparam", "hold", "channels", "reversal", "pool", "time"}
    assert wanted <= factors
    for factor in wanted - {"pool"}:
        assert len({c.config["dataset"] for c in cells if c.config["factor"] == factor} & set(physiome.names())) >= 8
    assert {c.config["dataset"] for c in cells if c.config["factor"] == "pool"} == set(regimes.NAMES)
    # A run that is cut short leaves whole factors, on every dataset.
    order = [cell.config["factor"] for cell in cells]
    assert list(dict.fromkeys(order)) == [f for i, f in enumerate(order) if i == 0 or order[i - 1] != f]


def test_a_quick_run_is_resumed(tmp_path: Path) -> None:
    wanted = ("base", "selective-re", "rank-diag", "reversal-release", "pool-time")
    cells = [cell for cell in resolved("instances=20", quick=True) if name(cell) in wanted]
    assert len(cells) == 6
    assert runner.run_cells(cells[:2], tmp_path).computed == 2
    outcome = runner.run_cells(cells, tmp_path)
    assert (outcome.cached, outcome.computed, outcome.failed) == (2, 4, {})
    records = read_records(tmp_path / "records")
    assert all(record.quick and len(record.results["folds"]) == 2 for record in records)
    for record in records:
        folds = record.results["folds"]
        if record.config["dataset"] in regimes.NAMES:
            assert all(0 <= fold["test_accuracy"] == fold["correct"] / fold["cases"] <= 1 for fold in folds)
            assert record.results["test_nll"] == pytest.approx(sum(fold["test_nll"] for fold in folds) / 2)
        else:
            assert record.results["test_mse"] == pytest.approx(sum(fold["test_mse"] for fold in folds) / 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["datasets=['XYZ01']"], "XYZ01"),
        (["folds=0"], "folds"),
        (["base='best'"], "best"),
        (["change=[{factor='rank', value='1', model={rank=0}}]"], "rank"),
        (["change=[{factor='rank', value='1'}]"], r"change\[0\].model"),
        (["change=[{factor='rank', value='1', model={rank=1}, against='hold-x'}]"], "hold-x"),
        (["change=[{factor='rank', kind='1', model={rank=1}}]"], r"change\[0\].kind"),
    ],
)
def test_bad_settings_are_named(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolved(*settings)
