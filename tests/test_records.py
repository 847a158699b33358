import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tides.errors import DataError
from tides.records import Record, cell_id, environment, read_record, read_records, write_json, write_record

CONFIG = {"model": "tides", "seed": 3, "train": {"steps": 10, "rate": 3e-3}}
RECORD = Record(
    "toy", cell_id(CONFIG), CONFIG, {"error": [1.0, 2.5]}, 0.5, False, environment(), "2026-01-01T00:00:00+00:00"
)


def test_a_record_survives_the_disk(tmp_path: Path) -> None:
    write_record(tmp_path / "a" / "r.json", RECORD)
    assert read_record(tmp_path / "a" / "r.json") == RECORD
    assert read_records(tmp_path) == [RECORD]


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.floats(allow_nan=False, allow_infinity=False)))
def test_the_id_depends_on_content_and_not_on_order(config: dict[str, float]) -> None:
    assert cell_id(config) == cell_id(dict(reversed(config.items())))
    assert cell_id(config) != cell_id({**config, "one more": 1})


def test_the_id_is_stable_across_versions() -> None:
    assert cell_id({"b": 1, "a": [1.5, None, True]}) == "c987ffa2d30c971d"


def test_numbers_that_json_lacks_become_null(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": [float("nan"), float("inf"), 1.0], "b": (2, None)})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": [None, None, 1.0], "b": [2, None]}


def test_a_failed_write_leaves_the_old_file_and_no_debris(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", 1)
    with pytest.raises(TypeError):
        write_json(tmp_path / "x.json", object())
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    assert json.loads((tmp_path / "x.json").read_text()) == 1


def test_a_torn_file_of_a_killed_write_is_not_a_record(tmp_path: Path) -> None:
    (tmp_path / "r-abc.partial").write_text("{")
    assert read_records(tmp_path) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cell_id": "0" * 16}, "does not belong to its config"),
        ({"config": {"model": "other"}}, "does not belong to its config"),
        ({"schema": 99}, "found record schema 99, wanted 1"),
        ({"results": {}}, "results: found {}, wanted a table"),
        ({"results": None}, "results: found None, wanted a table"),
        ({"config": [1]}, r"config: found \[1\], wanted a table"),
    ],
)
def test_an_altered_record_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    write_record(tmp_path / "r.json", replace(RECORD, **change))  # type: ignore[arg-type]
    with pytest.raises(DataError, match=message):
        read_record(tmp_path / "r.json")


@pytest.mark.parametrize(
    ("text", "message"), [("{", "not a readable record"), ("{}", "wanted"), ("3", "found fields int")]
)
def test_a_damaged_record_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "broken.json").write_text(text)
    with pytest.raises(DataError, match=rf"broken\.json.*{message}"):
        read_records(tmp_path)


def test_records_do_not_import_torch() -> None:
    code = "import sys, tides.records; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
