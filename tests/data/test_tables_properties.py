"""Properties of table reading: the order of rows, the shape of the table and the unit of time do not matter."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from tides.data import IrregularDataset, from_long, from_wide
from tides.errors import DataError

ROLES: dict[str, Any] = {"id": "i", "time": "t", "channel": "c", "value": "v"}
IDS = st.sampled_from(["a", "b", "é", "患", ""]) | st.text(max_size=4)


@st.composite
def long_frames(draw: st.DrawFn) -> pd.DataFrame:
    """Rows with distinct (id, time, channel), in random order."""
    keys = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["a", "b", "ü c"]),
                st.floats(-1e6, 1e6).map(lambda t: t + 0.0),
                st.sampled_from(["x", "y", "z"]),
            ),
            min_size=1,
            max_size=25,
            unique=True,
        )
    )
    values = draw(st.lists(st.floats(-1e9, 1e9) | st.just(np.nan), min_size=len(keys), max_size=len(keys)))
    return pd.DataFrame(keys, columns=["i", "t", "c"]).assign(v=np.array(values, float))


def same(one: IrregularDataset, other: IrregularDataset, tolerance: float = 0.0) -> None:
    assert one.ids == other.ids
    place = [other.channels.index(name) for name in one.channels]
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a.times, b.times, rtol=tolerance)
        np.testing.assert_allclose(a.values, b.values[:, place], rtol=tolerance)


@given(long_frames(), st.integers(0, 2**32))
def test_the_order_of_rows_does_not_matter(frame: pd.DataFrame, seed: int) -> None:
    shuffled = frame.sample(frac=1.0, random_state=np.random.default_rng(seed))
    one, other = from_long(frame, **ROLES), from_long(shuffled, **ROLES)
    assert one.schema == other.schema
    same(one, other)


@given(long_frames())
def test_every_row_arrives(frame: pd.DataFrame) -> None:
    data = from_long(frame, **ROLES)
    by_id = {one.id: one for one in data}
    for row in frame.itertuples():
        series = by_id[row.i]
        step = np.flatnonzero(series.times == row.t)
        assert len(step) == 1
        found = series.values[step[0], data.channels.index(row.c)]
        np.testing.assert_array_equal(found, row.v)
    assert sum(int(one.observed.sum()) for one in data) == int(frame.v.notna().sum())


@given(long_frames())
def test_long_and_wide_agree(frame: pd.DataFrame) -> None:
    wide = frame.pivot(index=["i", "t"], columns="c", values="v").reset_index()
    same(from_long(frame, **ROLES), from_wide(wide, id="i", time="t"))


@given(long_frames())
@settings(max_examples=10)
def test_files_and_spilling_agree_with_frames(frame: pd.DataFrame) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        frame.to_parquet(path, row_group_size=4)
        plain = from_long(frame, **ROLES)
        same(plain, from_long(path, **ROLES))
        spilled = from_long(path, **ROLES, spill=folder)
        assert spilled.schema == plain.schema
        same(plain, spilled)
        wide = frame.pivot(index=["i", "t"], columns="c", values="v").reset_index()
        wide.to_parquet(path, row_group_size=4)
        same(plain, from_wide(path, id="i", time="t", spill=folder))


@given(long_frames(), st.integers(1, 3), st.integers(0, 2**32))
def test_duplicates(frame: pd.DataFrame, copies: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    repeated = pd.concat([frame, *[frame.assign(v=rng.normal(size=len(frame))) for _ in range(copies)]])
    observed = repeated.dropna(subset="v")
    last = observed.groupby(["i", "t", "c"], as_index=False).last()
    mean = observed.groupby(["i", "t", "c"], as_index=False)["v"].mean()
    same(from_long(repeated, **ROLES, duplicates="last"), from_long(last, **ROLES))
    for a, b in zip(from_long(repeated, **ROLES, duplicates="mean"), from_long(mean, **ROLES), strict=True):
        np.testing.assert_allclose(a.values, b.values, rtol=1e-9, atol=1e-6)


@given(long_frames(), st.sampled_from(["ms", "s", "min", "h", "d"]))
def test_the_unit_scales_times_and_nothing_else(frame: pd.DataFrame, unit: str) -> None:
    dated = frame.assign(t=pd.to_datetime("2020-01-01") + pd.to_timedelta(frame.t.round(), unit="s"))
    dated = dated.drop_duplicates(["i", "t", "c"])
    seconds, other = from_long(dated, **ROLES, unit="s"), from_long(dated, **ROLES, unit=unit)
    scale = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}[unit]
    assert np.isclose(seconds.median_gap(), other.median_gap() * scale) or seconds.lengths.max() == 1
    for a, b in zip(seconds, other, strict=True):
        np.testing.assert_allclose(a.times, b.times * scale, rtol=1e-12)
        np.testing.assert_array_equal(a.values, b.values)


def _attempt(read: Callable[[], IrregularDataset]) -> tuple[IrregularDataset | None, str]:
    try:
        return read(), ""
    except DataError as error:
        return None, str(error)


GARBAGE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=3),
    st.dates(),
    st.datetimes(),
    st.timedeltas(),
    st.complex_numbers(),
    st.lists(st.integers(0, 3), max_size=2),
)


@given(st.data())
@settings(max_examples=150)
def test_garbage_gives_a_data_error_or_a_sound_data_set(data: st.DataObject) -> None:
    n = data.draw(st.integers(0, 6))
    pure = [st.floats(-5, 5), st.integers(-3, 3), st.text(max_size=2), st.datetimes(), st.timedeltas(), st.booleans()]
    columns = {
        name: data.draw(st.lists(data.draw(st.sampled_from([*pure, GARBAGE])), min_size=n, max_size=n))
        for name in "itcvys"
    }
    frame = pd.DataFrame({name: pd.Series(column, dtype=object) for name, column in columns.items()})
    if data.draw(st.booleans()):
        frame = frame.infer_objects()
    extra: dict[str, Any] = {"label": "y"} if data.draw(st.booleans()) else {}
    extra |= {"static": ["s"]} if data.draw(st.booleans()) else {}
    extra |= {"duplicates": data.draw(st.sampled_from(["error", "mean", "last"]))}
    found, refusal = _attempt(lambda: from_long(frame, **ROLES, **extra))
    if found is None:
        assert "column" in refusal or "rows" in refusal
        return
    assert 1 <= len(found) <= n
    assert found.lengths.min() >= 1
    for series in found:
        assert np.isfinite(series.values[series.observed]).all()
        assert (np.diff(series.times) > 0).all()


@given(st.text(alphabet='it,x\n01.5-:aé"\t ', max_size=60))
@settings(max_examples=100)
def test_garbage_text_files(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        path.write_text("i,t,x\n" + text, encoding="utf-8")
        data, refusal = _attempt(lambda: from_wide(path, id="i", time="t", duplicates="last"))
        assert len(data) >= 1 if data is not None else "t.csv" in refusal
