"""Every bad table is refused in words that say which file, column and row."""

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tides.data import from_long, from_wide
from tides.data.schema import Schema, StaticColumn
from tides.errors import DataError

GOOD = {"i": ["a", "a", "b"], "t": [0.0, 1.0, 0.0], "c": ["x", "x", "x"], "v": [1.0, 2.0, 3.0]}
ROLES: dict[str, Any] = {"id": "i", "time": "t", "channel": "c", "value": "v"}


@pytest.mark.parametrize(
    ("change", "extra", "words"),
    [
        ({"i": ["a", None, "b"]}, {}, "column 'i', row 1: nothing recorded"),
        ({"c": ["x", "x", None]}, {}, "column 'c', row 2: nothing recorded"),
        ({"v": [1.0, 2.0, -np.inf]}, {}, "column 'v', row 2: found -inf"),
        ({"v": ["1", "2", "high"]}, {}, "column 'v', row 2: found 'high'"),
        ({"v": [1, "2", 3.0]}, {}, "column 'v', row 1: found '2'"),
        ({"v": [[1], [2], [3]]}, {}, "column 'v' holds list"),
        ({"v": pd.to_datetime(["2024", "2024", "2024"])}, {}, "column 'v' holds timestamp"),
        ({"i": ["a", 1, "b"]}, {}, "column 'i', row 1: found 1"),
        ({"i": [[1], [2], [3]]}, {}, "column 'i' holds list"),
        ({"t": [0.0, 0.0, 0.0]}, {}, r"i 'a' has channel 'x' twice at the same 't', in rows 0 and 1"),
        ({"y": [0, 1, 0]}, {"label": "y"}, r"column 'y' must have one value per 'i', but i 'a' .* rows 0 and 1"),
        ({"y": [0, 0, None]}, {"label": "y"}, "column 'y': 1 of 2 series without a label: 'b'; leave"),
        ({"i": [1, 1, 2], "y": [0, 0, None]}, {"label": "y"}, "1 of 2 series without a label: 2; .*unlabelled='drop'"),
        ({"s": ["u", "w", "u"]}, {"static": ["s"]}, "column 's' must have one value"),
        ({"y": [0.5, 0.5, np.inf]}, {"label": "y"}, "found inf; wanted finite"),
        ({}, {"label": "died"}, "label='died' is not a column"),
        ({}, {"static": ["sex"]}, "static='sex' is not a column"),
        ({"val": [0.0, 0.0, 0.0]}, {"value": "vale"}, "did you mean 'val'"),
        ({}, {"time": "i"}, "id and time are the same column 'i'"),
        ({}, {"value": "c"}, "channel and value are the same column 'c'"),
        ({"y": 0}, {"label": "y", "static": ["y"]}, "label and static are the same column 'y'; wanted one for each"),
        ({}, {"static": ["i"]}, "id and static are the same column 'i'"),
        ({"s": 0}, {"static": ["s", "s"]}, "static: found 's' twice"),
        ({"age": 0}, {"static": "age"}, "static: found 'age', wanted a list of column names"),
        ({}, {"duplicates": "first"}, "duplicates='first'"),
        ({}, {"schema": Schema(("z",))}, "channel 'x' is not among the schema's"),
        ({}, {"schema": Schema(("x",), "h"), "unit": "d"}, "the schema's unit is 'h'"),
        ({"t": pd.to_datetime(["2024", "2025", "2026"])}, {"schema": Schema(("x",))}, "column 't': found dates, but"),
        ({"t": pd.to_timedelta([0, 1, 2])}, {"schema": Schema(("x",))}, "column 't': found durations, but"),
        ({"y": ["p", "p", "q"]}, {"label": "y", "schema": Schema(("x",), class_names=("p",))}, "class 'q'"),
        ({"y": ["p", "p", "q"]}, {"label": "y", "label_kind": "number"}, "found 'p'; wanted numbers"),
    ],
)
def test_long(change: dict[str, Any], extra: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        from_long(pd.DataFrame(GOOD | change), **(ROLES | extra))
    assert "table" in str(caught.value) or extra


@pytest.mark.parametrize(
    ("change", "extra", "words"),
    [
        ({"x": [1.0, "?"]}, {}, "column 'x', row 1"),
        ({"t": [0.0, 0.0]}, {}, "twice at the same 't', in rows 0 and 1"),
        ({}, {"channels": ["x", "nope"]}, "channels='nope' is not a column"),
        ({}, {"channels": ["t"]}, "time and channels are the same column 't'"),
        ({"g": 0.0}, {"channels": ["g"], "group": "g"}, "group and channels are the same column 'g'"),
        ({}, {"channels": ["x", "x"]}, "channels: found 'x' twice"),
        ({}, {"channels": "x"}, "channels: found 'x', wanted a list of column names"),
        ({"new": 0.0}, {"schema": Schema(("x",))}, "column 'new' is not among the schema's channels: 'x'"),
        ({"x": 0.0, "y": 1.0}, {"schema": Schema(("x", "y", "z"))}, "channels='z' is not a column"),
        ({}, {"channels": []}, "no column is left"),
    ],
)
def test_wide(change: dict[str, Any], extra: dict[str, Any], words: str) -> None:
    frame = pd.DataFrame({"i": [1, 1], "t": [0.0, 1.0], "x": [1.0, 2.0]} | change)
    with pytest.raises(DataError, match=words):
        from_wide(frame, id="i", time="t", **extra)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("i,t,x\n1,0,5\n1,1,abc\n", "bad.csv: column 'x', row 1: found 'abc'"),
        ("i,t,x\n1,0,5\n,1,6\n", "bad.csv: column 'i', row 1: nothing recorded"),
        ("i,t,x\n1,0,5\n1,soon,6\n", "bad.csv: column 't', row 1: found 'soon'"),
        ("i,t,x\n1,0,5\n1,1\n", "bad.csv: .*3 columns, got 2"),
        ("i,t,x\n", "bad.csv: the table has no rows"),
        ("i,t,x", "bad.csv: the table has no rows"),
        ("\ufeffi,t,x\r\n\r\n", "bad.csv: the table has no rows"),
        ("", "bad.csv: the file is empty"),
        (" \n\n", "bad.csv: the file is empty"),
        ("sep=,\ni,t,x\n1,0,5\n", "bad.csv: found 'sep=,' in the first line, wanted the names of the columns"),
        ("i,t,x\n1,0,5\n,,\n,,\n", "bad.csv: column 'i', row 1: nothing recorded; wanted a value, or no such row"),
        ('i,t,x\n1,0,"5,5"\n', r"column 'x', row 0: found '5,5'; .*a decimal comma.*decimal=','.*: columns without"),
        ('i,t,x\n1,0,"1,005.5"\n', r"column 'x', row 0: found '1,005.5'; .* or thousands\?"),
        ('i,t,x\n1,"0,5",5\n', r"column 't', row 0: found '0,5'; wanted .* \(a decimal comma"),
        ('i,t,x\n1,0,"5,5 mg"\n', "found '5,5 mg'; wanted a number: columns"),
        ("i,t,x\n1,0,7.\n1,1,<5\n1,2,>9\n1,3,<5\n1,4,1e-3\n", "row 1: found '<5' and further on '>9'; wanted a number"),
        ("i,t,x\n1,0,a\n1,1,b\n1,2,c\n1,3,d\n1,4,e\n", "row 0: found 'a' and further on 'b', 'c', 'd', …; wanted"),
        ("i,t,x\n1,8:30,5\n", r"column 't', row 0: found '8:30'; wanted .* \(a time of day needs its date\)"),
        ("i,t,x\n1,2031-05-01 08:00,5\n1,2031-05-01 09:00Z,5\n", "row 1: found '2031-05-01 09:00Z' after '"),
        ("i,t,x\n1,2031-05-01T08:00Z,5\n1,3,5\n", r"row 1: found '3' after .* wanted numbers alone, or dates"),
        (
            "i,t,x\n1,2031-05-01,5\n1,2031-05-01T00:00:00.123456789,5\n1,1600-01-01,5\n",
            "column 't': found nanoseconds, and dates before 1677",
        ),
        ("i;t;x\n1;0;5\n", "bad.csv: found columns separated by ';', wanted ','; .*pandas"),
        ("i;t;x\n1;0;5,5\n", "bad.csv: found columns separated by ';', wanted ','"),
        ("i\tt\tx\n1\t0\t5\n", r"bad.csv: found columns separated by '\\t', wanted ','"),
        ("i,t,t\n1,0,0\n", "bad.csv: two columns are called 't'"),
        ("i,t,x\n1,0,inf\n", "bad.csv: column 'x', row 0: found inf"),
        (",i,t,x\n0,1,0,5\n", r"bad.csv: column 0 has no name \(''\): row numbers"),
    ],
)
@pytest.mark.parametrize("spill", [False, True])
def test_csv(tmp_path: Path, text: str, words: str, spill: bool) -> None:
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(DataError, match=words):
        from_wide(tmp_path / "bad.csv", id="i", time="t", spill=tmp_path / "spill" if spill else None)


def test_in_columns_of_numbers_the_text_is_named(tmp_path: Path) -> None:
    """Not the first number, which is text in a file, too, where one of them is."""
    path = tmp_path / "bad.csv"
    path.write_text("i,t,x,y\n1,0,5,1.5\n2,0,5,unknown\n")
    roles: dict[str, Any] = {"id": "i", "time": "t", "channels": ["x"]}
    with pytest.raises(DataError, match="column 'y': found 'unknown'; wanted numbers"):
        from_wide(path, **roles, label="y", label_kind="number")
    with pytest.raises(DataError, match="column 'y': found 'unknown'; wanted weights, finite numbers"):
        from_wide(path, **roles, weight="y")
    schema = Schema(("x",), static=(StaticColumn("y"),))
    with pytest.raises(DataError, match="column 'y': found 'unknown' in a numeric static column"):
        from_wide(path, **roles, static=["y"], schema=schema)


def test_rows_are_named_across_chunks(tmp_path: Path) -> None:
    frame = pd.DataFrame({"i": ["a"] * 10, "t": [*range(9), 3], "x": np.arange(10.0)})
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=2)
    for spill in (None, tmp_path / "spill"):
        with pytest.raises(DataError, match=r"t.parquet: i 'a' .* in rows 3 and 9"):
            from_wide(tmp_path / "t.parquet", id="i", time="t", spill=spill)


def test_what_is_not_a_table(tmp_path: Path) -> None:
    for wrong in ({"a": 1}, 3, np.zeros((2, 2)), None):
        with pytest.raises(DataError, match="wanted a pandas or polars frame"):
            from_wide(wrong, id="i", time="t")
    with pytest.raises(DataError, match="no such file"):
        from_wide(tmp_path / "missing.csv", id="i", time="t")
    (tmp_path / "t.xlsx").write_bytes(b"")
    with pytest.raises(DataError, match="unknown kind of file"):
        from_wide(tmp_path / "t.xlsx", id="i", time="t")
    for name in ("t.parquet", "t.feather"):
        (tmp_path / name).write_bytes(b"this is no table")
        with pytest.raises(DataError, match=f"{name}: cannot be read"):
            from_wide(tmp_path / name, id="i", time="t")


def test_folders(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no .parquet file"):
        from_wide(tmp_path, id="i", time="t")
    pd.DataFrame({"i": [1], "t": [0], "x": [0.0]}).to_parquet(tmp_path / "a.parquet")
    pd.DataFrame({"i": [1], "t": [1]}).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b.parquet: column 'x' is missing; a.parquet has it"):
        from_wide(tmp_path, id="i", time="t")
    pd.DataFrame({"i": [1], "t": [1], "x": [0.0], "y": [1.0]}).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"a.parquet: column 'y' is missing; b.parquet has it"):
        from_wide(tmp_path, id="i", time="t")
    assert from_wide(tmp_path, id="i", time="t", channels=["x"]).lengths.tolist() == [2]


def test_two_columns_of_one_name() -> None:
    frame = pd.DataFrame([[1, 0, 1.0, 2.0]], columns=["i", "t", "x", "x"])
    with pytest.raises(DataError, match="two columns are called 'x'"):
        from_wide(frame, id="i", time="t")


def test_text_of_another_encoding_is_named(tmp_path: Path) -> None:
    for text in ("i,t,Größe\n1,0,5\n", "i,t,x\nMüller,0,5\n"):
        (tmp_path / "t.csv").write_bytes(text.encode("latin-1"))
        with pytest.raises(DataError, match=r"t.csv: .*save the file as UTF-8"):
            from_wide(tmp_path / "t.csv", id="i", time="t")


def test_text_in_utf_16_is_named(tmp_path: Path) -> None:
    """Spreadsheets call it "Unicode text"."""
    pd.DataFrame(GOOD).to_csv(tmp_path / "t.csv", index=False, encoding="utf-16")
    with pytest.raises(DataError, match=r"t\.csv: found text in UTF-16; save it as UTF-8"):
        from_long(tmp_path / "t.csv", **ROLES)


def test_times_of_day_and_headers_of_one_long_line(tmp_path: Path) -> None:
    times = [dt.time(8), dt.time(9, 30)]
    with pytest.raises(DataError, match="column 't': found times of day; wanted numbers, durations, or dates"):
        from_wide(pd.DataFrame({"i": 1, "t": times, "x": 1.0}), id="i", time="t")
    names = [f"channel {i}" for i in range(8000)]
    path = tmp_path / "wide.csv"
    path.write_text(",".join(["i", "t", *names]) + "\n1,0" + ",1" * len(names) + "\n")
    assert len(from_wide(path, id="i", time="t").channels) == 8000
