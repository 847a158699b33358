"""The drop-rate report: figure, tables, paired differences, and the paper's table beside them."""

from pathlib import Path

import pytest

from tests.reports.synthetic import drop_record, write
from tides.errors import DataError
from tides.reports import random_drop

SEEDS = (1, 2, 3, 4, 5)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    records = [drop_record("tides", seed, 0.8) for seed in SEEDS]
    records += [drop_record("mamba-s", seed, 0.85, slope=0.5) for seed in SEEDS]
    return write(tmp_path, *records, drop_record("s5", 9, 1.0, quick=True))


def test_tables_and_figure(folder: Path) -> None:
    page, summary = random_drop.report(folder)
    names = {file.name for file in page.parent.iterdir()}
    assert {
        "random-drop-SCP1-recommended.png",
        "random-drop-SCP1-recommended.csv",
        "random-drop-published.tex",
    } <= names
    rows = (page.parent / "random-drop-SCP1-recommended.csv").read_text(encoding="utf-8").splitlines()
    by_name = {row.split(",")[0]: row for row in rows}
    assert "not run" in by_name["S5"]
    assert by_name["TIDES"].split(",")[-1].startswith("0.799")
    # What was trained, not what the release would count.
    assert by_name["TIDES"].startswith('TIDES,"28,000",5,')
    assert "TIDES − Mamba_S" in summary
    assert "0.739" in summary
    assert "EigenWorms itself was not run here" in page.read_text(encoding="utf-8")


@pytest.mark.usefixtures("no_figures")
def test_differences_are_paired_by_seed(folder: Path) -> None:
    page, _ = random_drop.report(folder)
    rows = (page.parent / "random-drop-SCP1-recommended-differences.csv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 2
    # −5 + 50·r points on average over r = 0.1, 0.5, 0.9, and +40 at 0.9; the noise of a seed cancels.
    assert rows[1].startswith("TIDES − Mamba_S,5,+20.0 +20.0 to +20.0,")
    assert "+40.0 +40.0 to +40.0" in rows[1]


@pytest.mark.usefixtures("no_figures")
def test_baselines_join_under_their_own_names(folder: Path) -> None:
    from dataclasses import replace

    from tides.records import cell_id

    other = drop_record("lru-physical", 1, 0.6)
    config = {**other.config, "train": {"epochs": 400, "weight_decay": 0.0}}
    results = {**other.results, "published_parameters": None}
    write(folder, replace(other, config=config, results=results, cell_id=cell_id(config)))
    page, _ = random_drop.report(folder)
    rows = (page.parent / "random-drop-SCP1-recommended.csv").read_text(encoding="utf-8").splitlines()
    assert rows[-1].startswith('lru-physical,"28,000",1,')


@pytest.mark.usefixtures("no_figures")
def test_records_with_other_settings_do_not_mix(folder: Path) -> None:
    from dataclasses import replace

    from tides.records import cell_id

    other = drop_record("s5", 1, 0.5)
    config = {**other.config, "train": {"epochs": 3}}
    write(folder, replace(other, config=config, cell_id=cell_id(config)))
    with pytest.raises(DataError, match="different settings"):
        random_drop.report(folder)
    _, summary = random_drop.report(folder, ["train.epochs=400"])
    assert "TIDES − Mamba_S" in summary


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("seed", [1, 6])
def test_two_architectures_of_one_model_do_not_mix(folder: Path, seed: int) -> None:
    """Neither another record of a seed nor one of another seed is averaged with the rest."""
    from dataclasses import replace

    from tides.records import cell_id

    other = drop_record("tides", seed, 0.1)
    config = {**other.config, "architecture": {"rank": 8}}
    write(folder, replace(other, config=config, cell_id=cell_id(config)))
    with pytest.raises(DataError, match=f"TIDES, seed {seed}: records of one model with different settings"):
        random_drop.report(folder)


@pytest.mark.usefixtures("no_figures")
def test_the_caption_has_the_share_that_was_hidden_in_training(tmp_path: Path) -> None:
    from dataclasses import replace

    from tides.records import cell_id

    one = drop_record("tides", 1, 0.8)
    config = {**one.config, "drop": {**one.config["drop"], "train": 0.3}}
    _, summary = random_drop.report(write(tmp_path, replace(one, config=config, cell_id=cell_id(config))))
    assert "trained at r=0.3" in summary
