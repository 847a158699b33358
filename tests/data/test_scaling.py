"""Standard scores from observed training entries, and nothing else."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tides.data import IrregularDataset, IrregularSeries, Scaling, from_wide
from tides.errors import DataError


def make(seed: int = 0, offset: float = 0.0, n: int = 6) -> IrregularDataset:
    rng = np.random.default_rng(seed)
    return IrregularDataset(
        [
            IrregularSeries(
                np.where(rng.random((5, 3)) < 0.4, np.nan, offset + rng.normal(3, 2, (5, 3))), np.arange(5.0), id=i
            )
            for i in range(n)
        ]
    )


@given(st.integers(0, 1000), st.sampled_from([0.0, 1e6, -1e9]))
def test_statistics_are_those_of_the_observed_entries(seed: int, offset: float) -> None:
    data = make(seed, offset)
    values = np.concatenate([one.values for one in data])
    scaling = Scaling.fit(data)
    np.testing.assert_allclose(scaling.mean, np.nanmean(values, axis=0), rtol=1e-9)
    np.testing.assert_allclose(scaling.std, np.nanstd(values, axis=0), rtol=1e-6)


def test_hidden_values_do_not_leak() -> None:
    hidden = IrregularSeries([[1.0], [1e9]], [0, 1], np.array([[True], [False]]))
    assert Scaling.fit(IrregularDataset([hidden])).mean.tolist() == [1.0]


def test_apply_and_invert() -> None:
    data = make()
    scaling = Scaling.fit(data)
    scores = np.concatenate([one.values for one in scaling.apply(data)])
    np.testing.assert_allclose(np.nanmean(scores, axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(np.nanstd(scores, axis=0), 1, rtol=1e-12)
    np.testing.assert_allclose(scaling.invert(scaling.scale(data[0].values)), data[0].values, rtol=1e-12)


def test_constant_and_unseen_channels_stay_finite() -> None:
    data = IrregularDataset([IrregularSeries([[0.1, np.nan], [0.1, np.nan], [0.1, np.nan]], [0, 1, 2])])
    with pytest.warns(UserWarning, match="channel 'channel_1' is never observed in the training data"):
        scaling = Scaling.fit(data)
    assert scaling.std.tolist() == [1.0, 1.0]
    np.testing.assert_allclose(scaling.apply(data)[0].values[:, 0], 0, atol=1e-15)


def test_targets_are_scaled_with_their_channels() -> None:
    series = IrregularSeries([[1.0], [3.0]], [0, 1], query_times=[2.0], target=[[5.0]])
    data = IrregularDataset([series])
    assert Scaling.fit(data).apply(data)[0].target.tolist() == [[3.0]]


def test_numeric_static_columns_are_scaled_and_categories_are_not() -> None:
    frame = pd.DataFrame({"i": [1, 2, 3], "t": 0, "x": 0.0, "age": [20.0, 40.0, np.nan], "sex": ["f", "m", "f"]})
    data = from_wide(frame, id="i", time="t", static=["age", "sex"])
    scaled = Scaling.fit(data).apply(data)
    np.testing.assert_array_equal(scaled.static, [[-1, 1, 0], [1, 0, 1], [np.nan, 1, 0]])


def test_survives_json() -> None:
    scaling = Scaling.fit(make())
    again = Scaling.from_dict(json.loads(json.dumps(scaling.to_dict())))
    for name in ("mean", "std", "static_mean", "static_std"):
        np.testing.assert_array_equal(getattr(scaling, name), getattr(again, name))
    assert again.channels == scaling.channels
    with pytest.raises(DataError, match="not a scaling"):
        Scaling.from_dict({"mean": []})


def test_other_channels_are_refused() -> None:
    other = IrregularDataset([IrregularSeries([[1.0]], [0])], channels=("z",))
    with pytest.raises(DataError, match="scaling is for channels"):
        Scaling.fit(make()).apply(other)


def test_values_too_large_for_a_mean() -> None:
    data = IrregularDataset([IrregularSeries([[1e308], [1e308]], [0, 1])], channels=("load",))
    with pytest.raises(DataError, match="'load'"):
        Scaling.fit(data)
