"""The any-time report: error against horizon in both ways of asking, and ratios paired by seed."""

import csv
from pathlib import Path
from typing import Any

import pytest

from tests.reports.synthetic import record, write
from tides.errors import DataError
from tides.records import Record
from tides.reports import anytime


def cell(model: str, mode: str, seed: int, within: float, growth: float, **more: Any) -> Record:
    config = {"system": "embedded-calcium", "query_mode": mode, "model": model, "variant": "paper", "seed": seed}
    config |= more
    bins = []
    for index in range(8):
        error = within * (1 + seed / 10) * growth ** (index // 2)
        trivial = {"zero": 1.0, "last": 2.0, "mean": 0.9}
        bins.append(
            {
                "from": index / 2,
                "to": (index + 1) / 2,
                "targets": 100,
                "mse": error,
                "alone_mse": error,
                "trivial_mse": trivial,
            }
        )
    results = {
        "bins": bins,
        "within_mse": bins[0]["mse"],
        "beyond_mse": sum(float(entry["mse"]) for entry in bins[2:]) / 6,  # type: ignore[arg-type]
        "best_epoch": 5,
        "epochs": 9,
        "parameters": 7_500,
        "device": "cpu",
    }
    return record("anytime", config, results)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    records = [cell("tides", mode, seed, 0.1, 1.5) for mode in ("steps", "readout") for seed in range(3)]
    records += [cell("s5", "steps", seed, 0.2, 1.5) for seed in range(3)]
    return write(tmp_path, *records)


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_horizons_trivial_predictors_and_figure(folder: Path) -> None:
    page, summary = anytime.report(folder)
    rows = {row["model, asked by"]: row for row in read(page.parent / "anytime-embedded-calcium-paper.csv")}
    assert list(rows)[:4] == ["TIDES, steps", "S5, steps", "Mamba_S, steps", "TIDES, readout"]
    assert rows["Mamba_S, steps"]["within"] == rows["S5, readout"]["horizon 4, alone"] == "not run"
    assert rows["TIDES, steps"]["within"] == "0.1100 ± 0.0100"
    assert rows["TIDES, steps"]["horizon 4"] == f"{0.11 * 1.5**3:.4f}"
    assert rows["TIDES, steps"]["beyond ÷ within"] == f"{(1.5 + 1.5**2 + 1.5**3) / 3:.2f}"
    assert rows["predict last"]["horizon 2"] == "2.0000"
    assert rows["TIDES, steps"]["horizon 1, alone"] == "0.1100"
    assert "TIDES, steps ÷ S5, steps" in summary
    assert (page.parent / "anytime-embedded-calcium-paper.png").stat().st_size > 10_000


@pytest.mark.usefixtures("no_figures")
def test_ratios_are_paired_by_seed(folder: Path) -> None:
    page, _ = anytime.report(folder)
    rows = {row["ratio of"]: row for row in read(page.parent / "anytime-embedded-calcium-paper-differences.csv")}
    assert rows["TIDES, steps ÷ S5, steps"]["ratio"] == "0.500 0.500–0.500"
    assert rows["TIDES, readout ÷ TIDES, steps"]["ratio"] == "1.000 1.000–1.000"
    seeds = read(page.parent / "anytime-embedded-calcium-paper-seeds.csv")
    assert len(seeds) == 9


@pytest.mark.usefixtures("no_figures")
def test_records_with_other_settings_do_not_mix(folder: Path) -> None:
    write(folder, cell("mamba-s", "steps", 0, 0.1, 1.0, train={"epochs": 3}))
    with pytest.raises(DataError, match="different settings"):
        anytime.report(folder)
    write(folder, cell("tides", "steps", 0, 0.1, 1.0, bins=4))
    with pytest.raises(DataError, match="different settings"):
        anytime.report(folder)


@pytest.mark.usefixtures("no_figures")
def test_two_architectures_of_one_model_do_not_mix(folder: Path) -> None:
    write(folder, cell("tides", "steps", 7, 0.1, 1.0, architecture={"rank": 8}))
    with pytest.raises(DataError, match="tides, steps, seed 7"):
        anytime.report(folder)


@pytest.mark.usefixtures("no_figures")
def test_every_target_counts_alike_for_models_and_for_what_learns_nothing(tmp_path: Path) -> None:
    one = cell("tides", "steps", 0, 0.1, 1.0)
    for place, entry in enumerate(one.results["bins"]):
        entry |= {"targets": 300 if place % 2 else 100, "mse": float(place % 2), "trivial_mse": {"zero": place % 2}}
    one.results["bins"][-1] |= {"targets": 0, "mse": None, "trivial_mse": {"zero": None}}
    page, _ = anytime.report(write(tmp_path, one))
    rows = {row["model, asked by"]: row for row in read(page.parent / "anytime-embedded-calcium-paper.csv")}
    for name in ("TIDES, steps", "predict zero"):
        assert [rows[name][f"horizon {k}"] for k in (1, 2, 3, 4)] == ["0.7500", "0.7500", "0.7500", "0.0000"]
    assert rows["predict zero"]["within"] == "0.7500"
    assert rows["predict zero"]["beyond"] == f"{600 / 900:.4f}"
