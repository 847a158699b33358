"""Padding, masks, gaps, packing: no observation is lost, none is invented."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from tides.data import IrregularDataset, IrregularSeries, collate
from tides.errors import DataError


@st.composite
def series_lists(draw: st.DrawFn, forecasts: bool | None = None) -> list[IrregularSeries]:
    channels = draw(st.integers(1, 3))
    asks = draw(st.booleans()) if forecasts is None else forecasts
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))

    def one(i: int) -> IrregularSeries:
        steps, queries = int(rng.integers(1, 9)), int(rng.integers(0, 4))
        question = {"label": int(rng.integers(0, 3))}
        if asks:
            question = {
                "query_times": np.sort(rng.normal(50, 3, queries)),
                "target": np.where(rng.random((queries, channels)) < 0.3, np.nan, rng.normal(size=(queries, channels))),
            }
        values = np.where(rng.random((steps, channels)) < 0.4, np.nan, rng.normal(size=(steps, channels)))
        return IrregularSeries(values, np.sort(rng.normal(0, 5, steps)), static=rng.normal(size=2), id=i, **question)

    return [one(i) for i in range(draw(st.integers(1, 5)))]


@given(series_lists())
def test_padding_never_changes_what_was_observed(series: list[IrregularSeries]) -> None:
    batch = collate(series, dtype=torch.float64)
    for row, one in enumerate(series):
        n = len(one)
        assert int(batch.lengths[row]) == n
        np.testing.assert_array_equal(batch.observed[row, :n], one.observed)
        np.testing.assert_array_equal(batch.times[row, :n], one.times)
        np.testing.assert_array_equal(batch.values[row, :n].numpy()[one.observed], one.values[one.observed])
        np.testing.assert_array_equal(batch.gaps[row, 1:n], one.gaps)
        assert not batch.observed[row, n:].any()
        assert not batch.gaps[row, n:].any()
        assert (batch.values[row][~batch.observed[row]] == 0).all()
        if one.target is not None:
            q = len(one.target)
            np.testing.assert_array_equal(batch.query_times[row, :q], one.query_times)
            np.testing.assert_array_equal(batch.target_observed[row, :q], one.target_observed)
            np.testing.assert_array_equal(
                batch.targets[row, :q].numpy()[one.target_observed], one.target[one.target_observed]
            )
            assert not batch.target_observed[row, q:].any()


@given(series_lists())
def test_a_series_does_not_depend_on_its_neighbours(series: list[IrregularSeries]) -> None:
    together, alone = collate(series), [collate([one]) for one in series]
    for row, batch in enumerate(alone):
        n = len(series[row])
        for name in ("values", "times", "gaps", "observed", "valid"):
            assert torch.equal(getattr(together, name)[row, :n], getattr(batch, name)[0]), name


@given(series_lists())
def test_pack_and_unpack_round_trip(series: list[IrregularSeries]) -> None:
    batch = collate(series)
    packed = batch.pack()
    assert len(packed.values) == sum(map(len, series))
    back = packed.unpack()
    for name in ("values", "times", "gaps", "observed", "valid", "targets", "query_times", "static"):
        before, after = getattr(batch, name), getattr(back, name)
        assert before is after or torch.equal(before, after), name


@given(series_lists(forecasts=False), st.sampled_from([60.0, 3600.0, 1e-3]))
def test_gaps_scale_with_the_unit(series: list[IrregularSeries], factor: float) -> None:
    scaled = [one.replace(times=one.times * factor) for one in series]
    kept = torch.tensor([len(one) > 1 for one in series])
    one, other = collate(series).gaps * factor, collate(scaled).gaps
    torch.testing.assert_close(one[kept], other[kept], rtol=1e-4, atol=1e-6 * factor)


def test_gaps_are_formed_in_float64() -> None:
    """A millisecond apart in the year 2024, counted in seconds: float32 would see no time pass at all."""
    start = 1.7e9
    series = IrregularSeries(np.zeros((3, 1)), start + np.array([0.0, 0.001, 0.003]))
    gaps = collate([series], first_gap=0.5).gaps
    assert gaps.dtype == torch.float32
    np.testing.assert_allclose(gaps[0], [0.5, 0.001, 0.002], rtol=1e-3)


def test_first_gap_policies() -> None:
    series = [
        IrregularSeries(np.zeros((4, 1)), [5.0, 6.0, 6.0, 9.0], start=1.0),
        IrregularSeries(np.zeros((1, 1)), [2.0], start=2.0),
    ]
    assert collate(series).gaps[:, 0].tolist() == [2.0, 1.0]
    assert collate(series, first_gap="start").gaps[:, 0].tolist() == [4.0, 0.0]
    assert collate(series, first_gap=0.25).gaps[:, 0].tolist() == [0.25, 0.25]
    for wrong in (-1.0, float("nan"), "mean", None):
        with pytest.raises(DataError, match="first_gap"):
            collate(series, first_gap=wrong)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="series 0 has no start"):
        collate([series[0].replace(start=None)], first_gap="start")


def test_kinds_of_targets() -> None:
    def labelled(label: object) -> IrregularSeries:
        return IrregularSeries([[1.0]], [0.0], label=label)  # type: ignore[arg-type]

    assert collate([labelled(1), labelled(0)]).targets.dtype == torch.int64
    assert collate([labelled(label) for label in np.array([True, False])]).targets.tolist() == [1, 0]
    assert collate([labelled(1.5), labelled(0.0)]).targets.dtype == torch.float32
    assert collate([labelled(np.array([1.0, 2.0]))]).targets.shape == (1, 2)
    assert collate([IrregularSeries([[1.0]], [0.0])]).targets is None


def test_weights_stay_with_their_series() -> None:
    batch = collate([IrregularSeries(np.zeros((i, 1)), np.arange(i), weight=i / 2) for i in (1, 2, 3)])
    assert batch.weights.tolist() == batch.pack().unpack().weights.tolist() == [0.5, 1.0, 1.5]
    assert batch.rows([2, 0]).weights.tolist() == [1.5, 0.5]
    assert batch.weights.dtype == torch.float32
    assert collate([IrregularSeries([[1.0]], [0.0])]).weights is None


def test_missing_static_features_are_masked() -> None:
    batch = collate([IrregularSeries([[1.0]], [0.0], static=[2.0, np.nan])])
    assert batch.static.tolist() == [[2.0, 0.0]]
    assert batch.static_observed.tolist() == [[True, False]]


@pytest.mark.parametrize(
    ("series", "words"),
    [
        ([], "no series"),
        ([IrregularSeries(np.zeros((0, 1)), [], id="e")], "'e' has no time step"),
        ([IrregularSeries([[1.0]], [0]), IrregularSeries([[1.0, 2.0]], [0])], "different numbers of channels"),
        ([IrregularSeries([[1.0]], [0], label=1), IrregularSeries([[1.0]], [0], id="u")], "'u' has no label"),
        ([IrregularSeries([[1e300]], [0], id="big")], "'big' overflow"),
        ([IrregularSeries([[1.0]], [0], id="u", label=np.nan)], "labels of series 'u' are not finite"),
        ([IrregularSeries([[1.0]], [0], label="ill")], "labels: wanted class indices"),
        ([IrregularSeries([[1.0]], [0], label=np.ones(n)) for n in (2, 3)], "labels: wanted .* numbers of one shape"),
        ([IrregularSeries([[1.0]], [0], static=[1.0]), IrregularSeries([[1.0]], [0])], "static"),
        ([IrregularSeries([[1.0]], [0], weight=1), IrregularSeries([[1.0]], [0], id="u")], "'u' has no weight"),
        ([IrregularSeries([[1.0]], [0], weight=1e300, id="u")], "weights of series 'u' overflow"),
    ],
)
def test_series_that_do_not_fit_together(series: list[IrregularSeries], words: str) -> None:
    with pytest.raises(DataError, match=words):
        collate(series)


def test_moving_keeps_everything() -> None:
    batch = collate([IrregularSeries([[1.0]], [0.0], label=1, id="a")])
    moved = batch.to("meta")
    assert moved.values.device.type == "meta"
    assert moved.targets.device.type == "meta"
    assert moved.query_times is None
    assert moved.ids == ("a",)
    assert batch.pack().to("meta").cu_seqlens.device.type == "meta"


def test_data_loader_with_workers() -> None:
    data = IrregularDataset([IrregularSeries(np.full((i + 1, 1), i), np.arange(i + 1)) for i in range(6)])
    batches = list(DataLoader(data, batch_size=4, collate_fn=collate, num_workers=1))
    assert [len(batch) for batch in batches] == [4, 2]
    assert batches[1].values.shape == (2, 6, 1)


@pytest.mark.parametrize("series", [[1, 2], 3, None, np.ones((3, 5)), torch.ones(3, 5)], ids=lambda x: type(x).__name__)
def test_what_is_no_series_is_named(series: Any) -> None:
    with pytest.raises(DataError, match=r"collate: found \w+ at position 0, wanted IrregularSeries"):
        collate(series)
