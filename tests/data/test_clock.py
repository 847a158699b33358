"""Numbers, dates, zones and durations on the time axis."""

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from tides.data import from_wide
from tides.data.clock import encode_dates, seconds_per
from tides.data.schema import Schema
from tides.errors import DataError

DATES = ["2024-03-31 00:00:00", "2024-03-31 01:30:00", "2024-04-01 00:00:00"]
HOURS = [0.0, 1.5, 24.0]


def times_of(column: Any, unit: str | None = "h") -> list[float]:
    frame = pd.DataFrame({"i": [1] * len(column), "t": column, "x": np.arange(float(len(column)))})
    times: list[float] = from_wide(frame, id="i", time="t", unit=unit)[0].times.tolist()
    return times


@pytest.mark.parametrize("resolution", ["s", "ms", "us", "ns"])
def test_every_resolution(resolution: str) -> None:
    assert times_of(pd.Series(DATES).astype(f"datetime64[{resolution}]")) == HOURS
    spans = pd.Series(pd.to_timedelta(HOURS, unit="h")).astype(f"timedelta64[{resolution}]")
    assert times_of(spans) == HOURS


@pytest.mark.parametrize("kinds", [("us", "ns"), ("ns", "us"), ("s", "ms")])
def test_files_of_one_folder_may_differ_in_resolution(tmp_path: Path, kinds: tuple[str, str]) -> None:
    frame = pd.DataFrame({"i": 1, "t": pd.to_datetime(DATES), "x": 0.0, "d": pd.to_timedelta(HOURS, unit="h")})
    for name, part, kind in zip("ab", (frame[:2], frame[2:]), kinds, strict=True):
        part = part.assign(t=part.t.astype(f"datetime64[{kind}]"), d=part.d.astype(f"timedelta64[{kind}]"))
        part.to_parquet(tmp_path / f"{name}.parquet")
    for time in ("t", "d"):
        data = from_wide(tmp_path, id="i", time=time, channels=["x"], unit="h")
        assert data[0].times.tolist() == HOURS
    fine = frame.assign(t=frame.t.astype("datetime64[ns]") + pd.Timedelta(1, "ns"))
    fine.to_parquet(tmp_path / "b.parquet")
    if kinds[0] != "ns":
        with pytest.raises(DataError, match=r"rows before 2 are dates .s, later ones dates ns"):
            from_wide(tmp_path, id="i", time="t", channels=["x"])


@pytest.mark.parametrize(
    "numbers", [[20310131, 20310201], [203101312359, 203102010000], [20310131235959, 20310201000000]]
)
def test_dates_written_as_numbers_are_refused(tmp_path: Path, numbers: list[int]) -> None:
    for column in (numbers, [float(one) for one in numbers], [str(one) for one in numbers]):
        with pytest.raises(DataError, match=f"from {numbers[0]} to {numbers[1]} are dates written as numbers"):
            times_of(column)
    dates = pd.to_datetime(pd.Series(numbers).astype(str))  # as the error says
    assert 0 < times_of(dates)[1] <= 24
    for other in ([20310131, 20311301], [20310131, 20310132], [20310131.5, 20310201], [20310131] * 1, [0, 20310131]):
        assert times_of(other) == other
    frame = pd.DataFrame({"i": 1, "t": [*numbers, 7], "x": 0.0})
    frame[["i", "t", "x"]].to_parquet(tmp_path / "t.parquet", row_group_size=1)
    assert from_wide(tmp_path, id="i", time="t")[0].times.tolist() == sorted([*numbers, 7])


def test_text_objects_and_dates() -> None:
    assert times_of(DATES) == HOURS
    assert times_of([dt.datetime.fromisoformat(text) for text in DATES]) == HOURS
    assert times_of([dt.date(2024, 1, 1), dt.date(2024, 1, 3)], "d") == [0.0, 2.0]
    assert times_of([dt.timedelta(hours=1), dt.timedelta(hours=3)]) == [1.0, 3.0]


def test_zones_are_instants() -> None:
    """Berlin skips an hour that night: from midnight to 12:00 on the wall clock, 11 hours pass."""
    wall = pd.Series(pd.to_datetime(["2024-03-31 00:00", "2024-03-31 12:00"])).dt.tz_localize("Europe/Berlin")
    assert times_of(wall) == [0.0, 11.0]
    assert times_of(["2024-01-01T00:00:00+02:00", "2024-01-01T00:00:00Z"]) == [0.0, 2.0]


def test_polars_times() -> None:
    frame = pl.DataFrame({"i": [1, 1], "t": [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2)], "x": [0.0, 1.0]})
    assert from_wide(frame, id="i", time="t", unit="d")[0].times.tolist() == [0.0, 1.0]
    zoned = frame.with_columns(pl.col("t").dt.replace_time_zone("Asia/Tokyo"))
    assert from_wide(zoned, id="i", time="t", unit="h")[0].times.tolist() == [0.0, 24.0]


def test_dates_in_a_csv(tmp_path: Path) -> None:
    rows = [f"1,{text},0" for text in ("2024-01-01", "2024-01-01 12:00", "2024-01-01T18:00:00.5")]
    (tmp_path / "t.csv").write_text("\n".join(["i,t,x", *rows]))
    data = from_wide(tmp_path / "t.csv", id="i", time="t", unit="s")
    assert data[0].times.tolist() == [0.0, 43200.0, 64800.5]
    assert data.schema.origin == "2024-01-01T00:00:00"


def test_dates_beyond_the_nanosecond_calendar() -> None:
    assert times_of(["2500-01-01", "2500-01-02"], "d") == [0.0, 1.0]
    assert encode_dates(["2500-01-02"], "d", "2500-01-01").tolist() == [1.0]
    assert encode_dates(np.datetime64("2500-01-01"), "d", "2499-12-31T12:00:00.000000") == 0.5
    assert encode_dates([dt.datetime(2500, 1, 2)], "d", "2500-01-01T06").tolist() == [0.75]
    assert encode_dates(["1969-12-31T23:59:59.25"], "s", "1970-01-01").tolist() == [-0.75]


def test_nanoseconds_survive_float64() -> None:
    stamps = np.array(["2024-01-01T00:00:00.000000001", "2024-01-01T00:00:00.000000004"], "datetime64[ns]")
    assert times_of(stamps, "ns") == [0.0, 3.0]


def test_seconds_by_default_and_numbers_as_they_are() -> None:
    assert times_of(DATES, None) == [0.0, 5400.0, 86400.0]
    frame = pd.DataFrame({"i": [1, 1], "s": [0.5, 2.5], "x": [0.0, 1.0]})
    data = from_wide(frame, id="i", time="s", unit="metres along the road")
    assert data[0].times.tolist() == [0.5, 2.5]
    assert data.unit == "metres along the road"


def test_the_schema_fixes_the_origin() -> None:
    def read(dates: list[str], **extra: Any) -> Any:
        frame = pd.DataFrame({"i": [1] * len(dates), "t": pd.to_datetime(dates), "x": 0.0})
        return from_wide(frame, id="i", time="t", **extra)

    train = read(["2024-01-02 00:00:00.5"], unit="h")
    later = read(["2024-01-03", "2024-01-04"], schema=train.schema)
    np.testing.assert_allclose(later[0].times, [24 - 0.5 / 3600, 48 - 0.5 / 3600], rtol=1e-12)
    assert later.schema.origin == train.schema.origin
    np.testing.assert_allclose(encode_dates(["2024-01-03"], "h", train.schema.origin), later[0].times[:1], rtol=1e-12)


def test_numbers_after_dates_are_refused() -> None:
    frame = pd.DataFrame({"i": 1, "t": pd.to_datetime(["2024-01-01", "2024-01-02"]), "x": 0.0})
    schema = from_wide(frame, id="i", time="t", unit="h").schema
    for numbers in (frame["t"].astype("int64"), [0.0, 24.0]):
        with pytest.raises(DataError, match="column 't': found numbers, but the training data's times are dates"):
            from_wide(frame.assign(t=numbers), id="i", time="t", schema=schema)


def test_durations_after_dates_are_refused() -> None:
    frame = pd.DataFrame({"i": 1, "t": pd.to_datetime(["2024-01-01", "2024-01-02"]), "x": 0.0})
    schema = from_wide(frame, id="i", time="t", unit="h").schema
    with pytest.raises(DataError, match="column 't': found durations, but the training data's times are dates"):
        from_wide(frame.assign(t=frame["t"] - frame["t"].min()), id="i", time="t", schema=schema)


@pytest.mark.parametrize(
    ("column", "unit", "words"),
    [
        (pd.to_datetime(["2024-01-01", None]), "h", "column 't', row 1: no time recorded"),
        ([0.0, np.nan], None, "row 1: no time recorded"),
        ([0.0, np.inf], None, "row 1: found inf"),
        (["2024-01-01", "yesterday"], "h", "row 1: found 'yesterday'"),
        (["2024-01-01", "3.5"], "h", "row 1: found '3.5' after '2024-01-01'; wanted numbers alone"),
        (pd.to_datetime(["2024-01-01", "2024-01-02"]), "furlong", "unit='furlong'"),
        ([dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)], "h", "row 1.*time zone"),
        ([dt.time(1), dt.time(2)], "h", "wanted numbers"),
    ],
)
def test_bad_times(column: Any, unit: str | None, words: str) -> None:
    with pytest.raises(DataError, match=words):
        times_of(column, unit)


@pytest.mark.parametrize(("name", "seconds"), [("h", 3600), ("Hours", 3600), ("D", 86400), ("mins", 60), ("ms", 1e-3)])
def test_unit_names(name: str, seconds: float) -> None:
    assert seconds_per(name) == seconds


COUNTS = [1_700_000_000_000_000_101, 1_700_000_000_000_000_001, 1_700_000_000_000_000_050]


@pytest.mark.parametrize("kind", ["frame", "csv", "polars", "unsigned"])
def test_whole_numbers_beyond_float64_keep_their_differences(tmp_path: Path, kind: str) -> None:
    """Nanoseconds since 1970 as numbers: float64 would round them to multiples of 256."""
    frame = pd.DataFrame({"i": [1, 1, 1], "t": COUNTS, "x": [3.0, 1.0, 2.0]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    unsigned = frame.astype({"t": "uint64"})
    table = {"frame": frame, "csv": tmp_path / "t.csv", "polars": pl.from_pandas(frame), "unsigned": unsigned}[kind]
    data = from_wide(table, id="i", time="t", unit="ns")
    assert data[0].times.tolist() == [0.0, 49.0, 100.0]
    assert data[0].values[:, 0].tolist() == [1.0, 2.0, 3.0]
    assert data.schema.offset == COUNTS[1]
    schema = Schema.from_dict(data.schema.to_dict())
    assert schema == data.schema
    later = frame.assign(t=frame["t"] + 1000)
    assert from_wide(later, id="i", time="t", schema=schema)[0].times.tolist() == [1000.0, 1049.0, 1100.0]
    early = frame.assign(t=[1.5, 2.0, 0.0])
    assert from_wide(early, id="i", time="t", schema=schema)[0].times.tolist()[0] == -float(COUNTS[1])


def test_smaller_whole_numbers_are_taken_as_they_are(tmp_path: Path) -> None:
    assert times_of([2**53, 5], None) == [5.0, 2.0**53]
    (tmp_path / "t.csv").write_text(f"i,t,x\n1,{2**53},0\n1,5.5,0")
    data = from_wide(tmp_path / "t.csv", id="i", time="t")
    assert data[0].times.tolist() == [5.5, 2.0**53]
    assert "offset" not in data.schema.to_dict()
    assert times_of(np.array([2**64 - 1, 5], np.uint64), None) == [5.0, 2.0**64]
