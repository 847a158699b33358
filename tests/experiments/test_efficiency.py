"""The paper's table of time and memory as cells of the speed benchmark."""

from pathlib import Path
from typing import Any

import pytest

from tides.errors import ConfigError
from tides.experiments import config, efficiency
from tides.experiments.runner import Cell, Context, run_cells
from tides.experiments.speed_measure import make_model, measure_safely
from tides.records import read_records
from tides.reports import efficiency as reported


class InThisProcess:
    """Measures here instead of in a process of its own, which takes longer to start than the cell to run."""

    def __init__(self, config: dict[str, Any]) -> None:
        pass

    def measure(self, config: dict[str, Any], seconds: float) -> dict[str, Any]:
        return measure_safely(config, seconds)

    def close(self) -> None:
        pass


def cells(*settings: str, quick: bool = True) -> list[Cell]:
    found = config.load("efficiency", "paper", quick=quick, settings=settings)
    return efficiency.cells(found, variant="paper", quick=quick)


def test_sizes_are_those_that_the_report_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efficiency.speed, "hardware", lambda device: {"gpu": "some"} if device == "cuda" else {})
    sizes = {
        (cell.config["backend"], cell.config["length"]): sum(p.numel() for p in make_model(cell.config).parameters())
        for cell in cells("device=cuda", quick=False)
    }
    assert {sizes["triton", length] for length in (1000, 5000, 10_000)} == {91_301}
    assert [sizes["rformer", length] for length in (1000, 5000, 10_000)] == [111_441, 175_441, 255_441]
    assert all(f"{sizes['rformer', length]:,}" in reported._INTRODUCTION for length in (1000, 10_000))


def test_cells_are_those_of_the_papers_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efficiency.speed, "hardware", lambda device: {"gpu": "some"} if device == "cuda" else {})
    found = cells("device=cuda", quick=False)
    assert {cell.config["backend"] for cell in found} == {"triton", "torch", "naive", "transformer", "rformer"}
    assert {cell.config["length"] for cell in found} == {1000, 5000, 10_000}
    assert {(cell.config["batch"], cell.config["steps"]) for cell in found} == {(8, 20)}
    assert {cell.config["model"]["depth"] for cell in found} == {4}
    on_cpu = cells("device=cpu", quick=False)
    assert "triton" not in {cell.config["backend"] for cell in on_cpu}
    assert {cell.id for cell in found}.isdisjoint(cell.id for cell in on_cpu)


def test_a_quick_run_leaves_a_marked_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efficiency, "Worker", InThisProcess)
    outcome = run_cells(cells(), tmp_path)
    (record,) = read_records(tmp_path / "records")
    assert (outcome.failed, record.quick, record.experiment) == ({}, True, "efficiency")
    assert record.results["status"] == "ok"
    assert record.results["step"]["repeats"] == 2
    assert record.results["step"]["mean"] > 0


def test_the_device_must_be_that_of_the_cells() -> None:
    with pytest.raises(ConfigError, match="--device cpu"):
        efficiency.run(cells()[0], Context(device="cuda"))
