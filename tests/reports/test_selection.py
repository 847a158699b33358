"""Which records a report takes: of its own experiment, and those that `--where` chooses."""

from importlib import import_module
from pathlib import Path

import pytest

from tests.reports.synthetic import physiome_record, record, uea_record, write
from tides.errors import DataError
from tides.reports import REPORTS
from tides.reports.selection import choose, load_records

OF_RECORDS = [name for name in REPORTS if name not in ("scale", "zoo")]
STEPS = [
    record("toy", {"seed": 1, "train": {"steps": 3000, "decay": None}}, {"error": 1.0}),
    record("toy", {"seed": 2, "train": {"steps": 500, "decay": 0.1}}, {"error": 1.0}),
    record("toy", {"seed": 3, "picture": True}, {"error": 1.0}),
]


def seeds(*where: str) -> list[int]:
    return [one.config["seed"] for one in choose(STEPS, where)]


def test_where_drops_what_has_another_value_and_keeps_what_has_none() -> None:
    assert seeds() == [1, 2, 3]
    assert seeds("train.steps=3000") == [1, 3]
    assert seeds("train.decay=None") == [1, 3]
    assert seeds("train.decay=0.1", "picture=False") == [2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train.step=3000", r"no record has the setting train\.step; wanted one such as train\.steps"),
        ("foo=1", "no record has the setting foo; wanted one such as .*seed, train.decay, train.steps"),
        ("train.steps", "wanted key=value"),
    ],
)
def test_where_names_what_no_record_has(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        seeds(text)


def test_a_value_that_no_record_has_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(DataError, match=r"--where train\.steps=7: no record matches; found 3000, 500"):
        choose(STEPS[:2], ["train.steps=7"])


@pytest.mark.parametrize("name", OF_RECORDS)
def test_records_of_another_experiment_are_refused(tmp_path: Path, name: str) -> None:
    other = uea_record("SCP1", 1, 70) if name == "physiome" else physiome_record("REE01", [0.1])
    folder = write(tmp_path, other)
    with pytest.raises(DataError, match=f"found records of {other.experiment}, wanted .*{name}"):
        import_module(REPORTS[name]).report(folder)


def test_folders_without_a_result_say_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        load_records(tmp_path / "none", experiments=["uea"])
    with pytest.raises(DataError, match="found 1 records, 1 of them made by --quick"):
        load_records(write(tmp_path, uea_record("SCP1", 1, 70, quick=True)), experiments=["uea"])
