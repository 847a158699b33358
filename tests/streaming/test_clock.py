"""Times in every form that people write them, on the model's axis."""

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
import torch

from tides.data.clock import encode_dates
from tides.errors import DataError
from tides.streaming.clock import StreamClock

ORIGIN = "2031-05-01T00:05:29.72015113"
EAST = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("t", "hours"),
    [
        (datetime(2031, 5, 2), 24.0),
        (datetime(2031, 5, 2, 2, tzinfo=EAST), 24.0),
        (date(2031, 5, 2), 24.0),
        ("2031-05-01T06:30:00Z", 6.5),
        ("2031-05-01 06:30", 6.5),
        (np.datetime64("2031-05-01T06:30"), 6.5),
        (np.datetime64("2331-05-01T06:30"), 2629734.5),
        (np.datetime64("2331-05-01T06:30:00.000000"), 2629734.5),
    ],
)
def test_one_time(t: Any, hours: float) -> None:
    clock = StreamClock("h", "2031-05-01")
    assert clock.encode(t) == pytest.approx(hours, rel=1e-12)
    assert clock.encode_all(t).tolist() == [clock.encode(t)]
    assert clock.encode_all([t, t]).tolist() == [clock.encode(t)] * 2


def test_columns_of_tables_are_read_as_in_training() -> None:
    pd = pytest.importorskip("pandas")
    dates = pd.Series(pd.to_datetime(["2031-05-01 04:00:00.123456789", "2031-06-01 00:00:00.5"]))
    wanted = encode_dates(dates.to_numpy(), "min", ORIGIN)
    clock = StreamClock("min", ORIGIN)
    text = [stamp.isoformat() + zone for stamp, zone in zip(dates, ("", "Z"), strict=True)]
    for column in (text, dates, dates.to_numpy(), dates.dt.tz_localize("UTC"), list(dates), dates.dt.tz_localize(UTC)):
        np.testing.assert_allclose(clock.encode_all(column), wanted, rtol=1e-13)


@pytest.mark.parametrize("unit", ["ns", "25us", "us", "ms", "s", "m", "D"])
@pytest.mark.parametrize("origin", [None, ORIGIN, "0001-01-01", "1969-12-31T23:59:59.999999999"])
def test_arrays_of_dates_are_read_as_each_of_them(unit: str, origin: str | None) -> None:
    clock, generator = StreamClock("h", origin), np.random.default_rng(0)
    for span in (10**9, 2 * 10**18, 9 * 10**18):
        counts = generator.integers(-span, span, 50) // (10**9 if unit in ("s", "m", "D") else 1)
        times = counts.astype(f"datetime64[{unit}]")
        np.testing.assert_array_equal(clock.encode_all(times), [clock.encode(t) for t in times])
    with pytest.raises(DataError, match="NaT"):
        clock.encode_all(np.array(["2031-05-01", "NaT"], f"datetime64[{unit}]"))
    with pytest.raises(DataError, match="no unit"):
        StreamClock().encode_all(np.array(["2031-05-01"], f"datetime64[{unit}]"))


def test_text_keeps_its_nanoseconds() -> None:
    clock = StreamClock("ns", "2031-05-01")
    found = [clock.encode(f"2031-05-01T00:00:00.{digits}Z") for digits in ("000000001", "0000000204", "000001", "5")]
    assert found == [1, 20, 1000, 500_000_000]


def test_numbers_count_in_the_models_unit() -> None:
    pd = pytest.importorskip("pandas")
    clock = StreamClock("h")
    for t in (3, 3.0, np.float32(3), np.int64(3)):
        assert clock.encode(t) == 3.0
    for times in (pd.Series([1, 2]), torch.tensor([1, 2]), [torch.tensor(1.0), torch.tensor(2)]):
        np.testing.assert_array_equal(clock.encode_all(times), [1.0, 2.0])


def test_a_model_of_dates_takes_no_numbers() -> None:
    clock = StreamClock("h", ORIGIN)
    for t in (1900000000, 3.5, np.float32(2.5)):
        with pytest.raises(DataError, match="trained on dates"):
            clock.encode(t)
        with pytest.raises(DataError, match=f"found {t:.15g}, but"):
            clock.encode_all(np.array([t, t]))
    assert clock.encode_all(np.array([])).shape == (0,)


def test_times_in_words() -> None:
    assert StreamClock("h", "2031-05-01").decode(6.5) == "2031-05-01T06:30:00"
    assert StreamClock("s").decode(1900000000.25) == "1900000000.25"
    assert StreamClock("s", ORIGIN).decode(1e30) == f"1e+30 s after {ORIGIN}"


def test_durations_are_times_where_there_are_no_dates() -> None:
    pd = pytest.importorskip("pandas")
    clock = StreamClock("h")
    for t in (
        timedelta(minutes=90),
        np.timedelta64(90, "m"),
        pd.Timedelta(minutes=90),
        np.timedelta64(5400 * 10**9, "ns"),
    ):
        assert clock.encode(t) == 1.5
        assert clock.encode_all(pd.Series([t, t])).tolist() == [1.5, 1.5]
    for clock, reason in ((StreamClock("h", ORIGIN), "are dates"), (StreamClock(), "have no unit")):
        with pytest.raises(DataError, match=reason):
            clock.encode(timedelta(hours=1))


@pytest.mark.parametrize("t", ["noon", np.datetime64("NaT"), np.timedelta64("NaT"), None, True, [1], object()])
def test_what_is_no_time(t: Any) -> None:
    with pytest.raises(DataError, match="t: found"):
        StreamClock("h").encode(t)


def test_a_masked_time_is_none() -> None:
    with pytest.raises(DataError, match="masked times"):
        StreamClock("h").encode_all(np.ma.array([1.0, 999.0], mask=[False, True]))
    assert StreamClock("h").encode_all(np.ma.array([1.0, 2.0])).tolist() == [1.0, 2.0]


def test_dates_need_a_unit() -> None:
    with pytest.raises(DataError, match="no unit"):
        StreamClock().encode(datetime(2031, 5, 2))
    missing = pytest.importorskip("pandas").NaT
    with pytest.raises(DataError, match="NaT"):
        StreamClock("h").encode(missing)


def test_numbers_beyond_float64_count_from_the_training_data() -> None:
    zero = 1_700_000_000_000_000_001
    clock = StreamClock("ns", offset=zero)
    assert clock.encode(zero + 49) == 49.0
    assert clock.encode_all(np.array([zero, zero + 49])).tolist() == [0.0, 49.0]
    assert clock.decode(49.0) == str(zero + 49)
    earlier = np.array([zero - 7, zero + 49], dtype=np.uint64)
    assert clock.encode_all(earlier).tolist() == [-7.0, 49.0] == [clock.encode(t) for t in earlier]
    assert clock.encode_all(np.array([5], dtype=np.int32)).tolist() == [clock.encode(5)]
