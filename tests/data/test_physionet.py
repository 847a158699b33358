"""PhysioNet 2012 in its own file format, with two invented patients."""

from pathlib import Path

import numpy as np
import pytest

from tides.data import collate, load_physionet2012
from tides.data.physionet import CHANNELS
from tides.errors import ConfigError, DataError

FIRST = """Time,Parameter,Value
00:00,RecordID,900001
00:00,Age,61
00:00,Gender,1
00:00,Height,-1
00:00,ICUType,3
00:00,Weight,-1
00:12,HR,80
00:12,HR,84
00:12,Temp,36.9
07:30,Weight,77.5
47:45,HR,91
"""
SECOND = """Time,Parameter,Value
00:00,RecordID,900002
00:00,Age,47
00:00,Gender,-1
00:00,Height,170
00:00,ICUType,2
00:00,Weight,70
01:00,GCS,15
"""
OUTCOMES = """RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death
900001,10,3,9,-1,0
900002,18,9,4,3,1
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "set-a").mkdir()
    (tmp_path / "set-a" / "900001.txt").write_text(FIRST)
    (tmp_path / "set-a" / "900002.txt").write_text(SECOND)
    (tmp_path / "Outcomes-a.txt").write_text(OUTCOMES)
    return tmp_path


def test_reads_stays(root: Path) -> None:
    dataset = load_physionet2012(root)
    assert (len(dataset), len(dataset.channels), dataset.unit) == (2, 41, "h")
    assert dataset.labels is not None
    assert dataset.labels.tolist() == [0, 1]
    assert dataset.class_names == ("survived", "died")
    stay = dataset[0]
    np.testing.assert_allclose(stay.times, [0.0, 0.2, 7.5, 47.75])
    column = {name: stay.values[:, i] for i, name in enumerate(CHANNELS)}
    seen = {name: stay.observed[:, i].tolist() for i, name in enumerate(CHANNELS)}
    assert seen["Height"] == [False] * 4  # −1 means that nobody measured it
    assert seen["Weight"] == [False, False, True, False]
    assert column["HR"][1] == 82.0  # two values in one minute: their mean
    assert column["HR"][3] == 91.0
    assert int(stay.observed.sum()) == 3 + 2 + 1 + 1
    assert collate(dataset).values.shape == (2, 4, 41)
    assert collate(dataset, first_gap="start").gaps[:, 0].tolist() == [0.0, 0.0]


def test_duplicates(root: Path) -> None:
    hr = CHANNELS.index("HR")
    assert load_physionet2012(root, duplicates="last")[0].values[1, hr] == 84.0
    with pytest.raises(DataError, match=r"900001\.txt: 2 values of HR at minute 12"):
        load_physionet2012(root, duplicates="error")
    with pytest.raises(ConfigError, match="duplicates='first'"):
        load_physionet2012(root, duplicates="first")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("00:12,Mood,3", r"line 2: unknown parameter 'Mood'"),
        ("later,HR,80", r"line 2: 'later,HR,80' is not hh:mm,parameter,value"),
        ("00:12,HR,high", r"line 2: .* is not hh:mm,parameter,value"),
        ("00:12,HR,nan", r"line 2: HR is nan"),
        ("00:00,RecordID,5", r"line 2: RecordID 5 in the file of record 900001"),
        ("00:12,HR", r"line 2: .* is not hh:mm,parameter,value"),
    ],
)
def test_bad_lines_are_named(root: Path, line: str, message: str) -> None:
    (root / "set-a" / "900001.txt").write_text(f"Time,Parameter,Value\n{line}\n")
    with pytest.raises(DataError, match=message):
        load_physionet2012(root)


def test_blank_lines_and_values_of_nothing_are_left_out(root: Path) -> None:
    wanted = load_physionet2012(root)
    odd = FIRST.replace("00:12,HR,80", "\n00:12,,0\n00:12,HR,80")
    (root / "set-a" / "900001.txt").write_text(odd, encoding="utf-8-sig")
    (root / "Outcomes-a.txt").write_text(OUTCOMES, encoding="utf-8-sig")
    found = load_physionet2012(root)
    np.testing.assert_array_equal(found[0].values, wanted[0].values)
    np.testing.assert_array_equal(found[0].times, wanted[0].times)
    (root / "set-a" / "900001.txt").write_text(FIRST, encoding="utf-16")
    with pytest.raises(DataError, match="UTF-8"):
        load_physionet2012(root)


def test_missing_pieces_are_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"set-b is missing; download set-b"):
        load_physionet2012(root, sets=("a", "b"))
    (root / "set-a" / "900003.txt").write_text(SECOND)
    with pytest.raises(DataError, match=r"record 900003 has no line in Outcomes-a\.txt"):
        load_physionet2012(root)
    (root / "Outcomes-a.txt").write_text("RecordID,SAPS-I\n900001,10\n")
    with pytest.raises(DataError, match="no column 'In-hospital_death'"):
        load_physionet2012(root)
    monkeypatch.setenv("TIDES_DATA", str(root))
    with pytest.raises(DataError, match="physionet2012"):
        load_physionet2012()
