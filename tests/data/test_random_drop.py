"""Random drop hides steps and nothing else."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tides.data import IrregularDataset, IrregularSeries, RandomDrop, forecast_windows
from tides.data.random_drop import drop_steps, kept_steps
from tides.errors import ConfigError, DataError


def make(n: int = 4, length: int = 40) -> IrregularDataset:
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.uniform(0.1, 1.0, (n, length)), axis=1)
    return IrregularDataset([IrregularSeries(rng.normal(size=(length, 3)), times[i], id=i, label=i) for i in range(n)])


@settings(max_examples=80, deadline=None)
@given(
    st.integers(1, 60),
    st.floats(0.0, 1.0, exclude_max=True),
    st.sampled_from(["fresh", "per-series", "one"]),
    st.integers(0, 9),
)
def test_steps_that_stay(length: int, rate: float, masks: str, seed: int) -> None:
    kept = RandomDrop(rate, masks, seed).kept_steps(length, "id")  # type: ignore[arg-type]
    assert len(kept) == max(1, length - round(rate * length))
    assert (np.diff(kept) > 0).all()
    assert kept[0] >= 0
    assert kept[-1] < length


def test_timestamps_and_values_are_the_original_ones() -> None:
    before = make()[2]
    after = RandomDrop(0.5, "per-series", seed=3)(before)
    assert len(after) == 20
    rows = np.searchsorted(before.times, after.times)
    np.testing.assert_array_equal(before.times[rows], after.times)
    np.testing.assert_array_equal(before.values[rows], after.values)
    assert (after.label, after.id) == (before.label, before.id)


def test_fresh_masks_change_and_follow_torch() -> None:
    dataset = RandomDrop(0.5).apply(make())
    torch.manual_seed(1)
    first, second = dataset[0].times, dataset[0].times
    torch.manual_seed(1)
    again = dataset[0].times
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(first, again)


def test_evaluation_masks_are_fixed_per_series() -> None:
    source = make()
    one, two = (RandomDrop(0.5, "per-series", seed=7).apply(source) for _ in range(2))
    for i in range(len(source)):
        np.testing.assert_array_equal(one[i].times, two[i].times)
    # In any order, and also in a part of the data set.
    np.testing.assert_array_equal(one[[3, 1]][1].times, one[1].times)
    masks = [np.isin(source[i].times, one[i].times) for i in range(4)]
    assert not np.array_equal(masks[0], masks[1])
    other = RandomDrop(0.5, "per-series", seed=8).apply(source)
    assert not np.array_equal(one[0].times, other[0].times)


def test_one_mask_for_all() -> None:
    source = make()
    dropped = RandomDrop(0.3, "one", seed=2).apply(source)
    masks = [np.isin(source[i].times, dropped[i].times) for i in range(4)]
    for mask in masks[1:]:
        np.testing.assert_array_equal(masks[0], mask)


def test_first_channel_only() -> None:
    dropped = RandomDrop(0.5, "per-series").apply(make(), first_channel=True)
    assert dropped.channels == ("channel_0",)
    assert dropped[0].values.shape == (20, 1)
    full = RandomDrop(0.5, "per-series").apply(make())
    np.testing.assert_array_equal(dropped[0].values[:, 0], full[0].values[:, 0])
    asked = forecast_windows(make(), cut=0.5)
    (question, *_) = RandomDrop(0.5).apply(asked, first_channel=True)
    np.testing.assert_array_equal(question.target, asked[0].target[:, :1])


def test_batched_form() -> None:
    generator = torch.Generator().manual_seed(0)
    kept = kept_steps(500, 20, 0.5, generator=generator)
    assert kept.shape == (500, 10)
    assert (kept.diff(dim=1) > 0).all()
    share = torch.bincount(kept.flatten(), minlength=20) / 500
    # Every step stays with probability one half; five standard errors.
    assert (share - 0.5).abs().max() < 5 * (0.25 / 500) ** 0.5
    values, times = torch.randn(500, 20, 3), torch.arange(20.0).expand(500, -1)
    x, t = drop_steps(values, times, kept)
    assert torch.equal(t, kept.float())
    assert torch.equal(x[7, 4], values[7, kept[7, 4]])


def test_series_are_told_apart_by_their_id() -> None:
    drop = RandomDrop(0.5, "per-series", seed=7)
    np.testing.assert_array_equal(drop.kept_steps(40, np.int64(3)), drop.kept_steps(40, 3))
    assert not np.array_equal(drop.kept_steps(40, "3"), drop.kept_steps(40, 3))
    with pytest.raises(DataError, match="tells series apart by their id"):
        drop(make()[0].replace(id=None))


def test_the_fingerprint_knows_what_is_dropped() -> None:
    source = make()
    drops = [RandomDrop(0.3), RandomDrop(0.7), RandomDrop(0.3, "one"), RandomDrop(0.3, "one", seed=1)]
    assert len({drop.apply(source).fingerprint() for drop in drops}) == len(drops)
    assert RandomDrop(0.3).apply(make()).fingerprint() == drops[0].apply(source).fingerprint()


@pytest.mark.parametrize("rate", [-0.1, 1.0, float("nan"), "0.5"])
def test_bad_rates(rate: float) -> None:
    with pytest.raises(ConfigError, match="rate="):
        RandomDrop(rate)


@pytest.mark.parametrize("seed", [-1, 1.5, True])
def test_bad_seeds(seed: int) -> None:
    with pytest.raises(ConfigError, match=f"seed={seed}; wanted a whole number of at least 0"):
        RandomDrop(0.5, "one", seed)


def test_bad_masks() -> None:
    with pytest.raises(ConfigError, match="masks='once'"):
        RandomDrop(0.5, "once")  # type: ignore[arg-type]
