"""What the entries of a column mean: missing words, categories, truth values; the same in a frame and its file."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tides.data import from_long, from_wide
from tides.data.columns import MISSING_TEXT
from tides.errors import DataError


def test_blanks_and_none_in_a_csv_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tides.data.csv_source._BLOCK_BYTES", 64)  # many blocks: the first ones are numbers to Arrow
    rows = [f"a,{k},{'   ' if k == 40 else 'None' if k == 41 else k}" for k in range(50)]
    (tmp_path / "t.csv").write_text("i,t,x\n" + "\n".join(rows) + "\n")
    (series,) = from_wide(tmp_path / "t.csv", id="i", time="t")
    assert np.flatnonzero(~series.observed[:, 0]).tolist() == [40, 41]
    np.testing.assert_array_equal(series.values[series.observed], np.delete(np.arange(50.0), [40, 41]))
    (tmp_path / "t.csv").write_text("i,t,x\n" + "\n".join([*rows, "a,50,high"]) + "\n")
    with pytest.raises(DataError, match="column 'x', row 50: found 'high'"):
        from_wide(tmp_path / "t.csv", id="i", time="t")


def test_csv_keeps_na_as_a_name_and_reads_it_as_missing_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("i,t,c,v,s\nNA,0,Na,1,NA\nNA,1,NA,NA,\nB,0,Na,2,x\n")
    data = from_long(tmp_path / "t.csv", id="i", time="t", channel="c", value="v", static=["s"])
    assert data.ids == ["B", "NA"]
    assert data.channels == ("NA", "Na")
    assert np.isnan(data[1].static).all()
    np.testing.assert_array_equal(data[1].observed, [[False, True], [False, False]])


def test_the_words_for_missing_are_those_of_pandas(tmp_path: Path) -> None:
    words = sorted(MISSING_TEXT)
    rows = [f"{k},0,{word},{word}" for k, word in enumerate([*words, "1"])]
    (tmp_path / "t.csv").write_text("i,t,x,s\n" + "\n".join(rows) + "\n")
    data, frame = from_wide(tmp_path / "t.csv", id="i", time="t", static=["s"]), pd.read_csv(tmp_path / "t.csv")
    assert len(frame) == len(data) == 20
    np.testing.assert_array_equal([one.values[0, 0] for one in data], frame["x"])
    np.testing.assert_array_equal(data.static, frame[["s"]])
    # Once more as text, which a block with blanks is read as.
    (tmp_path / "t.csv").write_text("i,t,x,s\n" + "\n".join([*rows, "20,0,  ,"]) + "\n")
    again = from_wide(tmp_path / "t.csv", id="i", time="t", static=["s"])
    np.testing.assert_array_equal([one.values[0, 0] for one in again[:20]], frame["x"])


def test_unused_categories_make_no_series() -> None:
    frame = pd.DataFrame({"i": pd.Categorical(["a", "a"], ["a", "ghost"]), "t": [0, 1], "x": [0.0, 1.0]})
    assert from_wide(frame, id="i", time="t").ids == ["a"]


def test_unused_categories_are_neither_channels_nor_features() -> None:
    plain = pd.DataFrame({"i": [1, 1], "t": [0, 1], "c": ["hr", "hr"], "v": [0.0, 1.0], "s": ["M", "M"]})
    frame = plain.assign(c=pd.Categorical(plain["c"], ["bp", "hr"]), s=pd.Categorical(plain["s"], ["F", "M"]))
    roles: dict[str, Any] = {"id": "i", "time": "t", "channel": "c", "value": "v", "static": ["s"]}
    schema = from_long(plain, **roles).schema
    assert from_long(frame, **roles).schema == schema
    assert from_long(frame, **roles, schema=schema).schema == schema


@pytest.mark.parametrize("kind", ["cut", "interval", "period"])
def test_intervals_and_periods_are_their_text(kind: str) -> None:
    cut = pd.cut(pd.Series([1, 5, np.nan]), [0.0, 2.0, 6.0])
    days = pd.Series(pd.to_datetime(["2031-05-01", "2031-05-02", None])).dt.to_period("D")
    column = {"cut": cut, "interval": pd.Series(pd.arrays.IntervalArray(cut)), "period": days}[kind]
    names = ("2031-05-01", "2031-05-02") if kind == "period" else ("(0.0, 2.0]", "(2.0, 6.0]")
    frame = pd.DataFrame({"i": [1, 2, 3], "t": 0.0, "x": 0.0, "c": column})
    data = from_wide(frame, id="i", time="t", static=["c"], group="c")
    assert data.static_names == tuple(f"c={name}" for name in names)
    assert data.groups == [*names, None]
    np.testing.assert_array_equal(data.static, [[1.0, 0.0], [0.0, 1.0], [np.nan, np.nan]])
    assert from_wide(frame[:2], id="i", time="t", channels=["x"], label="c").class_names == names
    with pytest.raises(DataError, match=r"column 'c', row 0: found '.*'; wanted a number"):
        from_wide(frame, id="i", time="t")


@pytest.mark.parametrize(
    "column", [["01", "02"], [True, False], ["True", "False"], ["a", "1.0"], [1.0, 2.0], [1, 2], ["none", "light"]]
)
@pytest.mark.parametrize("role", ["label", "static"])
def test_a_frame_and_its_file_say_the_same(column: list[Any], role: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"i": ["a", "b"], "t": [0.0, 1.0], "x": [1.0, 2.0], "c": column})
    frame.to_csv(tmp_path / "t.csv", index=False)
    roles: dict[str, Any] = {"label": "c"} if role == "label" else {"static": ["c"]}
    one, other = (from_wide(table, id="i", time="t", **roles) for table in (frame, tmp_path / "t.csv"))
    assert one.schema == other.schema
    for mine, theirs in zip(one, other, strict=True):
        assert mine.label == theirs.label
        assert (mine.static is None) == (role == "label")
        if mine.static is not None:
            np.testing.assert_array_equal(mine.static, theirs.static)


def test_truth_values_are_ones_and_zeros_in_frames_and_files(tmp_path: Path) -> None:
    frame = pd.DataFrame({"i": ["a", "a", "a"], "t": [0.0, 1.0, 2.0], "x": [True, None, False]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    for table in (frame, tmp_path / "t.csv"):
        np.testing.assert_array_equal(from_wide(table, id="i", time="t")[0].values[[0, -1], 0], [1.0, 0.0])


def test_blanks_around_the_entries_of_a_csv_do_not_count(tmp_path: Path) -> None:
    rows = ["1,0,hr, 1 ,yes", " 1,1, hr,2, yes", "10, 0,hr ,3,no", "2 ,0,hr,4,no "]
    (tmp_path / "t.csv").write_text("i,t,c,v,y\n" + "\n".join(rows) + "\n")
    data = from_long(tmp_path / "t.csv", id="i", time="t", channel="c", value="v", label="y")
    assert (data.ids, data.channels, data.class_names) == ([1, 2, 10], ("hr",), ("no", "yes"))
    assert data.lengths.tolist() == [2, 1, 1]


@pytest.mark.parametrize("column", [pd.to_datetime(["1980-02-01"] * 2), pd.to_timedelta([1, 1], unit="D")])
def test_dates_are_neither_classes_nor_categories(column: Any) -> None:
    frame = pd.DataFrame({"i": ["a", "b"], "t": [0.0, 1.0], "x": [1.0, 2.0], "c": column})
    roles: tuple[dict[str, Any], ...] = ({"label": "c"}, {"static": ["c"]})
    for role, wanted in zip(roles, ("classes or numbers", "numbers or categories, such as an age"), strict=True):
        with pytest.raises(DataError, match=f"column 'c': found 1.*, a (date|duration); wanted {wanted}"):
            from_wide(frame, id="i", time="t", **role)
    assert from_wide(frame, id="i", time="t", channels=["x"], group="c").groups is not None


def test_a_sparse_column_is_a_column() -> None:
    frame = pd.DataFrame({"i": ["a", "a"], "t": [0.0, 1.0], "x": pd.arrays.SparseArray([0.0, np.nan])})
    np.testing.assert_array_equal(from_wide(frame, id="i", time="t")[0].values, [[0.0], [np.nan]])


def test_two_values_in_one_series_are_shown() -> None:
    frame = pd.DataFrame({"i": ["a", "a"], "t": [0.0, 1.0], "x": [1.0, 2.0], "sex": ["F", "female"]})
    with pytest.raises(DataError, match="i 'a' has 'F' and 'female' in rows 0 and 1"):
        from_wide(frame, id="i", time="t", static=["sex"])
