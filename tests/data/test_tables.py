"""Tables of every dress give the same data set."""

import datetime as dt
import uuid
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from tides.data import IrregularDataset, Schema, collate, from_long, from_wide
from tides.errors import DataError
from tides.estimators.inputs import is_table

LONG: dict[str, Any] = {
    "patient": ["b", "a", "a", "b", "a"],
    "at": [1.0, 0.0, 2.0, 3.0, 0.0],
    "item": ["hr", "hr", "bp", "bp", "bp"],
    "value": [1.0, 2.0, 3.0, np.nan, 5.0],
    "died": [1, 0, 0, 1, 0],
    "sex": ["M", "F", "F", "M", "F"],
    "age": [70, 41, 41, 70, 41],
    "ward": [7, 7, 7, 7, 7],
    "counts": [0.5, 2, 2, 0.5, 2],
}
ROLES: dict[str, Any] = {"id": "patient", "time": "at", "channel": "item", "value": "value"}
WHOLE_ROLES = ROLES | {"label": "died", "weight": "counts", "static": ["sex", "age"], "group": "ward", "unit": "h"}


def same(one: IrregularDataset, other: IrregularDataset) -> None:
    assert one.schema == other.schema
    assert one.ids == other.ids
    assert one.groups == other.groups
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a.values, b.values)
        np.testing.assert_array_equal(a.times, b.times)
        assert (a.label, a.weight) == (b.label, b.weight)
        np.testing.assert_array_equal(a.static, b.static)


def test_long_by_hand() -> None:
    data = from_long(pd.DataFrame(LONG), **WHOLE_ROLES)
    assert data.channels == ("bp", "hr")
    assert data.unit == "h"
    assert data.ids == ["a", "b"]
    assert data.class_names == ("0", "1")
    assert data.static_names == ("sex=F", "sex=M", "age")
    assert data.groups == [7, 7]
    a, b = data
    np.testing.assert_array_equal(a.times, [0.0, 2.0])
    np.testing.assert_array_equal(a.values, [[5.0, 2.0], [3.0, np.nan]])
    np.testing.assert_array_equal(a.static, [1.0, 0.0, 41.0])
    assert (a.label, b.label) == (0, 1)
    assert (a.weight, b.weight) == (2.0, 0.5)
    # A row without a value still says that somebody looked at that time.
    np.testing.assert_array_equal(b.times, [1.0, 3.0])
    np.testing.assert_array_equal(b.observed, [[False, True], [False, False]])


@pytest.mark.parametrize(
    "dress", ["pandas", "polars", "lazy", "arrow", "categorical", "arrow strings", "index", "index and column"]
)
def test_every_frame(dress: str) -> None:
    frame = pd.DataFrame(LONG)
    dressed: Any = {
        "pandas": lambda: frame,
        "polars": lambda: pl.DataFrame(LONG),
        "lazy": lambda: pl.LazyFrame(LONG),
        "arrow": lambda: pa.table(LONG),
        "categorical": lambda: frame.astype({"patient": "category", "item": "category", "sex": "category"}),
        "arrow strings": lambda: frame.convert_dtypes(dtype_backend="pyarrow"),
        "index": lambda: frame.set_index(["patient", "at"]),
        "index and column": lambda: frame.set_index(["patient", "at"]).set_index("sex", append=True, drop=False),
    }[dress]()
    same(from_long(frame, **WHOLE_ROLES), from_long(dressed, **WHOLE_ROLES))


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "tsv", "parquet", "feather"])
@pytest.mark.parametrize("spill", [False, True])
def test_every_file(tmp_path: Path, suffix: str, spill: bool) -> None:
    frame, path = pd.DataFrame(LONG), tmp_path / f"table.{suffix}"
    if suffix == "parquet":
        frame.to_parquet(path, row_group_size=2)
    elif suffix == "feather":
        frame.to_feather(path, chunksize=2)
    else:
        frame.to_csv(path, index=False, sep="\t" if suffix == "tsv" else ",")
    folder = tmp_path / "spill" if spill else None
    same(from_long(frame, **WHOLE_ROLES), from_long(path, **WHOLE_ROLES, spill=folder))


def test_a_lazy_frame_computes_only_what_is_read() -> None:
    wide = pl.LazyFrame({"i": [1, 1], "t": [0.0, 1.0], "x": [1.0, 2.0], "text": ["a", "b"]})
    lazy = wide.with_columns(pl.col("text").cast(pl.Int64).alias("never"))  # fails where it is computed
    assert from_wide(lazy, id="i", time="t", channels=["x"]).channels == ("x",)
    with pytest.raises(DataError, match=r"label='y' is not a column; the table has 'i', 't', 'x', 'text', 'never'"):
        from_wide(lazy, id="i", time="t", channels=["x"], label="y")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert is_table(lazy)


def test_folder_of_parquet_files(tmp_path: Path) -> None:
    frame = pd.DataFrame(LONG)
    frame[:2].to_parquet(tmp_path / "a.parquet")
    frame[2:].to_parquet(tmp_path / "b.parquet")
    for unfinished in ("_temporary/0", ".staging"):
        (tmp_path / unfinished).mkdir(parents=True)
        frame.to_parquet(tmp_path / unfinished / "c.parquet")
    frame.to_parquet(tmp_path / "_part.parquet")
    same(from_long(frame, **WHOLE_ROLES), from_long(tmp_path, **WHOLE_ROLES))


@pytest.mark.parametrize("spill", [False, True])
def test_ids_of_a_later_file_may_be_wider(tmp_path: Path, spill: bool) -> None:
    """In eight bits 257 is 1 again."""
    files = tmp_path / "files"
    files.mkdir()
    for name, kind, ids in (("a", np.int8, [1, 1, 2]), ("b", np.int64, [257, 257, 258])):
        pd.DataFrame({"i": np.array(ids, kind), "t": [0.0, 1.0, 0.0], "x": 1.0}).to_parquet(files / f"{name}.parquet")
    data = from_wide(files, id="i", time="t", spill=tmp_path / "spill" if spill else None)
    assert (data.ids, data.lengths.tolist()) == ([1, 2, 257, 258], [2, 1, 2, 1])


@pytest.mark.parametrize("ids", [[2, 10], ["02", "a b/c"]], ids=["numbers", "text"])
def test_folders_that_are_named_like_a_column(tmp_path: Path, ids: list[Any]) -> None:
    frame = pd.DataFrame({"i": ids * 2, "t": [0.0, 0.0, 1.0, 1.0], "x": [1.0, 2.0, 3.0, 4.0], "s": ["m", None] * 2})
    frame.to_parquet(tmp_path, partition_cols=["i", "s"])
    data = from_wide(tmp_path, id="i", time="t", static=["s"])
    same(data, from_wide(frame, id="i", time="t", static=["s"]))
    # They are in no file: without a part to play they are no measurements.
    assert from_wide(tmp_path, id="i", time="t").channels == ("x",)
    with pytest.raises(DataError, match=r"label='died' is not a column; the table has 't', 'x', 'i', 's'"):
        from_wide(tmp_path, id="i", time="t", label="died")
    deep = tmp_path / "i=3"
    deep.mkdir()
    frame[["t", "x"]].to_parquet(deep / "more.parquet")
    with pytest.raises(DataError, match=r"more.parquet: column 's' is missing; another has it"):
        from_wide(tmp_path, id="i", time="t", static=["s"])


def test_wide_by_hand() -> None:
    frame = pd.DataFrame({"id": [2, 1, 2], "t": [5, 0, 4], "x": [1.0, 2.0, np.nan], "y": [np.nan, 3.0, 4.0]})
    data = from_wide(frame, id="id", time="t")
    assert data.channels == ("x", "y")
    assert data.unit is None
    assert data.ids == [1, 2]
    np.testing.assert_array_equal(data[1].values, [[np.nan, 4.0], [1.0, np.nan]])
    assert data.labels is None
    assert from_wide(frame, id="id", time="t", channels=["y"]).channels == ("y",)


def test_float32_stays_float32() -> None:
    frame = pd.DataFrame({"id": [1], "t": [0], "x": np.float32([0.1])})
    assert from_wide(frame, id="id", time="t")[0].values.dtype == np.float32


def test_duplicates_merge_on_request() -> None:
    frame = pd.DataFrame({"i": ["a"] * 4, "t": [1.0] * 4, "c": ["x", "x", "y", "x"], "v": [1.0, 4.0, 7.0, 10.0]})
    roles = {"id": "i", "time": "t", "channel": "c", "value": "v"}
    np.testing.assert_array_equal(from_long(frame, **roles, duplicates="mean")[0].values, [[5.0, 7.0]])
    np.testing.assert_array_equal(from_long(frame, **roles, duplicates="last")[0].values, [[10.0, 7.0]])


def test_wide_rows_of_one_time_merge_where_they_do_not_collide() -> None:
    frame = pd.DataFrame({"i": [1, 1], "t": [0.0, 0.0], "x": [1.0, np.nan], "y": [np.nan, 2.0]})
    np.testing.assert_array_equal(from_wide(frame, id="i", time="t")[0].values, [[1.0, 2.0]])


@pytest.mark.parametrize(
    "ids",
    [
        ["患者", "ünï", "😀"],
        [2**63 - 1, -(2**63), 0],
        [2**64 - 1, 2**63, 1],
        [10**30, 10**25, 7],
        [1.0, 3.0, 2.0],
        [True, False, True],
        ["x" * 5000, "x" * 4999, "y"],
        [dt.date(2020, 1, 2), dt.date(2020, 1, 1), dt.date(2021, 1, 1)],
        [uuid.UUID(int=2), uuid.UUID(int=1), uuid.UUID(int=2)],
    ],
    ids=["unicode", "int64 ends", "uint64", "beyond 64 bits", "floats", "truth", "long text", "dates", "uuid"],
)
def test_ids_of_any_kind(ids: list[Any]) -> None:
    values = [1.0, 2.0, 3.0]
    data = from_wide(pd.DataFrame({"i": ids, "t": [0.0, 1.0, 2.0], "x": values}), id="i", time="t")
    found = {str(one.id): one.values.ravel().tolist() for one in data}
    wanted: dict[str, list[float]] = {}
    for name, value in zip(ids, values, strict=True):
        wanted.setdefault(str(int(name) if isinstance(name, float) else name), []).append(value)
    assert found == wanted


def test_whole_ids_in_a_csv_sort_as_numbers(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("i,t,x\n10,0,1\n9,0,2\n")
    assert from_wide(tmp_path / "t.csv", id="i", time="t").ids == [9, 10]
    (tmp_path / "t.csv").write_text("i,t,x\n10,0,1\n009,0,2\n")
    assert from_wide(tmp_path / "t.csv", id="i", time="t").ids == ["009", "10"]


@pytest.mark.parametrize("zone", ["", "Z"])
def test_times_of_a_csv_of_many_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    monkeypatch.setattr("tides.data.csv_source._BLOCK_BYTES", 64)
    for name, times in {"n": range(50), "d": [f"2031-05-01T00:00:{k:02}{zone}" for k in range(50)]}.items():
        rows = "\n".join(f"a,{t},1" for t in times)
        (tmp_path / f"{name}.csv").write_text(f"i,t,x\n{rows}\n")
        (series,) = from_wide(tmp_path / f"{name}.csv", id="i", time="t")
        np.testing.assert_array_equal(series.times, np.arange(50.0))


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_an_index_without_a_name_is_no_channel(tmp_path: Path, suffix: str) -> None:
    frame = pd.DataFrame({"i": ["a", "a", "b"], "t": [0, 1, 0], "x": [1.0, 2.0, 3.0]}, index=[7, 5, 3])
    path = tmp_path / f"t.{suffix}"
    write = pyarrow.parquet.write_table if suffix == "parquet" else pyarrow.feather.write_feather
    write(pa.Table.from_pandas(frame), path)
    assert from_wide(path, id="i", time="t").channels == ("x",)
    assert from_wide(pa.Table.from_pandas(frame), id="i", time="t").channels == ("x",)
    frame.to_csv(tmp_path / "t.csv")
    with pytest.raises(DataError, match="column 0 has no name"):
        from_wide(pd.read_csv(tmp_path / "t.csv"), id="i", time="t")
    assert from_wide(tmp_path / "t.csv", id="i", time="t", channels=["x"]).channels == ("x",)


def test_ten_thousand_sparse_channels() -> None:
    rng = np.random.default_rng(0)
    n, channels = 20_000, 10_000
    frame = pd.DataFrame(
        {"i": rng.integers(0, 50, n), "t": rng.random(n), "c": rng.integers(0, channels, n), "v": rng.random(n)}
    )
    data = from_long(frame, id="i", time="t", channel="c", value="v")
    assert data.channels[:3] == ("0", "1", "2")
    assert sum(len(value) for _, value in data.entries()) == n
    one = frame[frame.i == 7].sort_values("t")
    np.testing.assert_array_equal(data[7].times, one.t)
    names = np.array(data.channels).astype(int)
    step, channel = np.nonzero(data[7].observed)
    np.testing.assert_array_equal(names[channel], one.c)
    np.testing.assert_array_equal(data[7].values[step, channel], one.v)


def test_schema_makes_a_second_table_fit_the_first() -> None:
    train = from_long(pd.DataFrame(LONG), **WHOLE_ROLES)
    again = Schema.from_dict(train.schema.to_dict())
    assert again == train.schema
    new = pd.DataFrame(LONG)[:1]
    data = from_long(new, **WHOLE_ROLES, schema=again)
    assert data.schema == train.schema
    np.testing.assert_array_equal(data[0].values, [[np.nan, 1.0]])
    assert data[0].label == 1
    np.testing.assert_array_equal(data[0].static, [0.0, 1.0, 70.0])


def test_channels_named_beside_a_schema_leave_other_columns_out() -> None:
    frame = pd.DataFrame({"i": [1], "t": [0.0], "x": [1.0], "note": ["seen"]})
    schema = from_wide(frame[["i", "t", "x"]], id="i", time="t").schema
    data = from_wide(frame, id="i", time="t", channels=frame.columns[2:3], schema=schema)
    assert data.schema == schema


def test_a_group_may_be_a_static_column_too() -> None:
    data = from_long(pd.DataFrame(LONG), **ROLES, group="ward", static=["ward"])
    assert data.groups == [7, 7]
    np.testing.assert_array_equal(data.static, [[7.0], [7.0]])


@pytest.mark.parametrize(
    ("labels", "kind", "classes", "wanted"),
    [
        (["no", "yes"], "auto", ("no", "yes"), [0, 1]),
        ([True, False], "auto", ("False", "True"), [1, 0]),
        ([5, 3], "auto", ("3", "5"), [1, 0]),
        ([1.0, 0.0], "auto", ("0", "1"), [1, 0]),
        ([1.5, 0.0], "auto", None, [1.5, 0.0]),
        ([5, 3], "number", None, [5.0, 3.0]),
        ([1.5, 0.5], "class", ("0.5", "1.5"), [1, 0]),
    ],
)
def test_labels(labels: list[Any], kind: Any, classes: tuple[str, ...] | None, wanted: list[float]) -> None:
    frame = pd.DataFrame({"i": [1, 2], "t": [0, 0], "x": [0.0, 0.0], "y": labels})
    data = from_wide(frame, id="i", time="t", label="y", label_kind=kind)
    assert data.class_names == classes
    assert data.labels.tolist() == wanted


def test_many_whole_numbers_are_numbers() -> None:
    frame = pd.DataFrame({"i": range(21), "t": 0, "x": 0.0, "y": range(21)})
    assert from_wide(frame, id="i", time="t", label="y").class_names is None
    assert from_wide(frame[:20], id="i", time="t", label="y").class_names is not None


def test_ordinal_static_columns() -> None:
    frame = pd.DataFrame({"i": [1, 2, 3], "t": 0, "x": 0.0, "s": ["lo", "hi", None]})
    data = from_wide(frame, id="i", time="t", static=["s"], ordinal=True)
    np.testing.assert_array_equal(data.static, [[1.0], [0.0], [np.nan]])


def test_single_observations_and_constant_channels_batch() -> None:
    frame = pd.DataFrame({"i": [1, 2], "t": [0.0, 9.0], "x": [3.0, 3.0]})
    assert collate(from_wide(frame, id="i", time="t")).values.shape == (2, 1, 1)


@pytest.mark.parametrize("spill", [False, True])
def test_series_without_a_label_are_left_out_when_asked(tmp_path: Path, spill: bool) -> None:
    frame = pd.DataFrame(
        {"i": list("dcbbae"), "t": [0.0, 1, 2, 3, 4, 5], "x": 1.0, "y": ["no", None, None, "yes", None, "no"]}
    )
    # A weight is wanted of the series that stay.
    frame["w"] = [1.0, None, 3.0, None, None, 2.0]
    roles: dict[str, Any] = {"id": "i", "time": "t", "label": "y", "weight": "w", "unlabelled": "drop"}
    if spill:
        roles["spill"] = tmp_path
    with pytest.warns(
        UserWarning, match="table: column 'y': 2 of 5 series without a label: 'a', 'c'; left out"
    ) as told:
        data = from_wide(frame, **roles)
    assert told[0].filename == __file__
    assert data.ids == ["b", "d", "e"]
    assert data.class_names == ("no", "yes")
    assert data.labels.tolist() == [1, 0, 0]  # type: ignore[union-attr]
    assert data.weights.tolist() == [3.0, 1.0, 2.0]  # type: ignore[union-attr]
    assert [len(one) for one in data] == [2, 1, 1]
    long = frame.melt(["i", "t", "y", "w"])
    with pytest.warns(UserWarning, match="left out"):
        same(data, from_long(long, channel="variable", value="value", **roles))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_wide(frame.fillna({"y": "no", "w": 1.0}).drop(index=3), **roles)
    with pytest.raises(DataError, match="column 'y': no series has a label"):
        from_wide(frame.assign(y=None), **roles)
    with pytest.raises(DataError, match="unlabelled='keep'; wanted 'error' or 'drop'"):
        from_wide(frame, **(roles | {"unlabelled": "keep"}))
