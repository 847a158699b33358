import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tides.data import IrregularDataset, IrregularSeries, from_long, from_wide, pieces, split_latest
from tides.errors import DataError


def recording(n: int = 50, *, name: object = "pump", seed: int = 0) -> IrregularSeries:
    rng = np.random.default_rng(seed)
    return IrregularSeries(rng.normal(size=(n, 2)), np.sort(rng.uniform(0, 100, n)), id=name)


@given(st.integers(1, 60), st.floats(0.5, 300), st.integers(0, 5))
def test_pieces_are_the_series_again(n: int, length: float, seed: int) -> None:
    whole = recording(n, seed=seed)
    found = list(pieces(IrregularDataset([whole]), length))
    np.testing.assert_array_equal(np.concatenate([one.values for one in found]), whole.values)
    np.testing.assert_array_equal(np.concatenate([one.times for one in found]), whole.times)
    assert all(one.times[-1] - one.times[0] <= length for one in found)
    assert {one.group for one in found} == {"pump"}
    assert len({one.id for one in found}) == len(found)


def test_pieces_of_a_grid_are_as_long_as_their_arithmetic_means() -> None:
    # 8 · 0.1 is 0.8, and 0.1 + 0.7 is less.
    times = 0.1 + np.arange(80) * 0.1
    data = IrregularDataset([IrregularSeries(np.ones((80, 1)), times)], unit="h")
    assert pieces(data, "48min").lengths.tolist() == [8] * 10


def test_pieces_keep_a_group_and_what_is_short_and_drop_what_is_empty() -> None:
    blank = np.full((3, 1), np.nan)
    gappy = IrregularSeries(np.vstack([np.ones((3, 1)), blank, np.ones((3, 1))]), np.arange(9.0), id=7, group="ward")
    short = IrregularSeries(np.ones((2, 1)), [0.0, 1.0], id=8, start=-1.0)
    found = pieces(IrregularDataset([gappy, short]), 3)
    assert found.ids == ["7/0", "7/2", 8]
    assert found.groups == ["ward", "ward", 8]
    assert found[2].start == -1.0


def test_labels_and_lengths_that_make_no_pieces_are_refused() -> None:
    data = IrregularDataset([recording().replace(label=1)])
    with pytest.raises(DataError, match="series 'pump' has a label"):
        pieces(data, 3)
    with pytest.raises(DataError, match="length=0; wanted a time span above 0"):
        pieces(IrregularDataset([recording()]), 0)


def test_the_latest_pieces_of_every_series_are_later() -> None:
    data = pieces(IrregularDataset([recording(name="a"), recording(80, name="b", seed=1)]), 10)
    earlier, later = split_latest(data, 0.2)
    assert sorted([*earlier.ids, *later.ids]) == sorted(data.ids)
    for name in ("a", "b"):
        ends = [one.times[-1] for one in earlier if one.group == name]
        begins = [one.times[0] for one in later if one.group == name]
        assert max(ends) < min(begins)
        assert len(begins) == 2


def test_something_stays_on_both_sides() -> None:
    short = IrregularDataset([IrregularSeries(np.ones((3, 1)), np.arange(3.0), id=i) for i in range(4)])
    with pytest.raises(DataError, match="no group has two pieces"):
        split_latest(pieces(short, 10), 0.2)
    mixed = pieces(IrregularDataset([*short, recording().replace(values=np.ones((50, 1)), observed=None)]), 10)
    earlier, later = split_latest(mixed, 0.99)
    assert earlier.groups == [0, 1, 2, 3, "pump"]
    assert set(later.groups or ()) == {"pump"}
    with pytest.raises(DataError, match="share=1; wanted a number between 0 and 1"):
        split_latest(mixed, 1)


def test_a_table_without_ids_is_one_series() -> None:
    wide = pd.DataFrame({"t": [2.0, 0.0, 1.0], "x": [3.0, 1.0, np.nan]})
    one = from_wide(wide, id=None, time="t")
    assert one.ids == [0]
    np.testing.assert_array_equal(one[0].times, [0.0, 1.0, 2.0])
    long = pd.DataFrame({"t": [0.0, 1.0, 1.0], "c": ["x", "x", "y"], "v": [1.0, 2.0, 3.0]})
    assert from_long(long, id=None, time="t", channel="c", value="v").lengths.tolist() == [2]
    with pytest.raises(DataError, match="series 0 has channel 'x' twice"):
        from_wide(pd.DataFrame({"t": [0.0, 0.0], "x": [1.0, 2.0]}), id=None, time="t")
