"""The UEA report: means and seeds beside the published numbers, nothing claimed that was not run."""

import csv
from pathlib import Path

import pytest

from tests.reports.synthetic import record, uea_record, write
from tides.errors import DataError
from tides.reports import uea

SEEDS = {2345: 70, 3456: 75, 4567: 80}


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    records = [uea_record("SCP1", seed, correct) for seed, correct in SEEDS.items()]
    records += [uea_record("SCP1", seed, correct + 2, "recommended") for seed, correct in SEEDS.items()]
    return write(tmp_path, *records, uea_record("SCP1", 1, 85, quick=True))


def test_tables_hold_means_intervals_published_numbers_and_every_seed(folder: Path) -> None:
    page, summary = uea.report(folder)
    names = {file.name for file in page.parent.iterdir()}
    assert {"index.html", "tables.md", "uea.csv", "uea.tex", "uea.png", "uea.pdf", "uea-seeds.csv"} <= names
    rows = read(page.parent / "uea.csv")
    scp1 = {row["model, preset, protocol"]: row["SCP1"] for row in rows}
    assert scp1["tides paper, walker"].startswith("88.2 ± 5.9 3 seeds, ")
    assert scp1["tides recommended, walker"].startswith("90.6 ± 5.9 3 seeds, ")
    assert scp1["TIDES, published"] == "87.6 ± 3.3"
    assert scp1["best published"] == "89.9 S5"
    assert "88.2 ± 5.9" in summary
    seeds = (page.parent / "uea-seeds.csv").read_text(encoding="utf-8")
    for correct in (*SEEDS.values(), *(c + 2 for c in SEEDS.values())):
        assert f"{correct} of 85" in seeds


@pytest.mark.usefixtures("no_figures")
def test_what_was_not_run_says_so_and_gets_no_average(folder: Path) -> None:
    page, summary = uea.report(folder)
    ours = read(page.parent / "uea.csv")[0]
    assert {ours[name] for name in ("SCP2", "MI", "EW", "ETC", "HB")} == {"not run"}
    assert ours["average of six"] == "1 of 6 run"
    assert "(ours)" not in summary


@pytest.mark.usefixtures("no_figures")
def test_quick_records_are_refused(folder: Path, tmp_path: Path) -> None:
    page, summary = uea.report(folder)
    assert "100.0" not in summary
    assert "1 records made by <code>--quick</code> are not shown" in page.read_text(encoding="utf-8")
    only = write(tmp_path / "only", uea_record("SCP1", 1, 85, quick=True))
    with pytest.raises(DataError, match="made by --quick"):
        uea.report(only)


@pytest.mark.usefixtures("no_figures")
def test_presets_are_compared_seed_by_seed(folder: Path) -> None:
    _, summary = uea.report(folder)
    line = next(line for line in summary.splitlines() if line.startswith("SCP1, walker"))
    assert "+2.4" in line
    # Three equal differences: all of the same sign in two of eight cases.
    assert line.split()[-1] == "0.250"


@pytest.mark.usefixtures("no_figures")
def test_a_complete_group_is_ranked_with_the_published_models(tmp_path: Path) -> None:
    names = ("SCP1", "SCP2", "MI", "EW", "ETC", "HB")
    page, summary = uea.report(write(tmp_path, *(uea_record(name, 2345, 85) for name in names)))
    rows = (page.parent / "uea-published.csv").read_text(encoding="utf-8").splitlines()
    assert rows[1].startswith('"tides paper, walker (ours)",100.0')
    assert rows[2].startswith("LogSig-SSM")
    tides = next(row for row in rows if row.startswith("TIDES,"))
    # Printed so; its rounded accuracies have the mean 61.65.
    assert next(row for row in rows if row.startswith("LRU,")).split(",")[7] == "61.7"
    # The paper's own rank among its ten models, and no first place once later work joins.
    assert ",2.83," in tides
    assert rows.index(tides) > 3
    assert "100.0" in summary
    assert "state of the art" not in page.read_text(encoding="utf-8").lower()


@pytest.mark.usefixtures("no_figures")
def test_two_settings_of_one_seed_are_refused(tmp_path: Path) -> None:
    one, other = uea_record("SCP1", 1, 60), uea_record("SCP1", 1, 61)
    from dataclasses import replace

    from tides.records import cell_id

    config = {**other.config, "allow_partial": True}
    other = replace(other, config=config, cell_id=cell_id(config))
    with pytest.raises(DataError, match="two records of seed 1"):
        uea.report(write(tmp_path, one, other))


@pytest.mark.usefixtures("no_figures")
def test_seeds_of_different_settings_are_no_sample(tmp_path: Path) -> None:
    trained = [uea_record("SCP1", seed, 60) for seed in (1, 2)]
    for one, epochs in zip(trained, (2, 3), strict=True):
        write(tmp_path, record("uea", {**one.config, "train": {"epochs": epochs}}, one.results))
    with pytest.raises(DataError, match=r"SCP1, tides, paper, walker: records with different settings.*train\.epochs"):
        uea.report(tmp_path)
    assert "1 seed" in uea.report(tmp_path, ["train.epochs=2"])[1]


@pytest.mark.usefixtures("no_figures")
def test_budgets_that_ended_a_run_are_named(folder: Path) -> None:
    other = uea_record("SCP1", 2345, 60)
    config = {**other.config, "model": "lru", "train": {"steps": 1000}}
    write(folder, record("uea", config, {**other.results, "stopped": "epochs"}))
    rows = {row["model, preset, protocol"]: row["SCP1"] for row in read(uea.report(folder)[0].parent / "uea.csv")}
    assert rows["lru paper, walker"] == "70.6 1 seed, stopped after 1,000 steps"
