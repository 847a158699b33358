"""The list-like face of a data set."""

import numpy as np
import pandas as pd
import pytest

from tides.data import IrregularDataset, IrregularSeries, from_long, from_wide
from tides.errors import DataError


def make(n: int = 5, **extra: object) -> IrregularDataset:
    series = [
        IrregularSeries(np.full((i + 1, 2), float(i)), np.arange(i + 1) * 2.0, label=i % 2, id=f"s{i}")
        for i in range(n)
    ]
    return IrregularDataset(series, channels=("a", "b"), unit="h", class_names=("x", "y"), **extra)  # type: ignore[arg-type]


def test_indexing_by_number_slice_list_and_mask() -> None:
    data = make()
    assert data[3].id == "s3"
    assert data[-1].id == "s4"
    assert data[1:3].ids == ["s1", "s2"]
    assert data[[4, 0]].ids == ["s4", "s0"]
    assert data[np.array([True, False, False, True, False])].ids == ["s0", "s3"]
    assert len(data[[]]) == 0
    assert data[1:][[0]].ids == ["s1"]
    assert data.shape == (5,)
    assert data[[4, 0], ...].ids == ["s4", "s0"]
    assert data[2:].channels == ("a", "b")
    with pytest.raises(IndexError):
        data[5]


def test_statistics() -> None:
    data = make()
    np.testing.assert_array_equal(data.lengths, [1, 2, 3, 4, 5])
    np.testing.assert_array_equal(data.labels, [0, 1, 0, 1, 0])
    assert data.median_gap() == 2.0
    assert data[:1].median_gap() == 1.0
    counts = sum(np.bincount(channel, minlength=2) for channel, _ in data.entries())
    np.testing.assert_array_equal(counts, [15, 15])


def test_map_is_applied_at_access() -> None:
    seen: list[str] = []

    def shift(series: IrregularSeries) -> IrregularSeries:
        seen.append(series.id)
        return series.replace(values=series.values + 1)

    mapped = make().map(shift)
    assert seen == []
    assert mapped[2].values[0, 0] == 3.0
    assert seen == ["s2"]


def test_the_fingerprint_tells_contents_apart() -> None:
    data = make()
    assert make().fingerprint() == data.fingerprint()
    assert data[:].map(lambda series: series).fingerprint() == make().map(lambda series: series).fingerprint()
    hidden = [one.replace(observed=np.zeros_like(one.observed)) for one in data]
    others = {
        "order": data[::-1],
        "fewer": data[:4],
        "repeated": data[[0, 1, 2, 3, 4, 4]],
        "labels": IrregularDataset([one.replace(label=1) for one in data], schema=data.schema),
        "times": IrregularDataset([one.replace(times=one.times + 1) for one in data], schema=data.schema),
        "static": IrregularDataset([one.replace(static=np.ones(1)) for one in data], schema=data.schema),
        "values": IrregularDataset([one.replace(values=one.values + 1) for one in data], schema=data.schema),
        "hidden": IrregularDataset(hidden, schema=data.schema),
        "weights": IrregularDataset([one.replace(weight=1) for one in data], schema=data.schema),
        "weight": IrregularDataset([one.replace(weight=2.0) for one in data], schema=data.schema),
        "unit": IrregularDataset(list(data), channels=("a", "b"), unit="s", class_names=("x", "y")),
    }
    found = {name: other.fingerprint() for name, other in others.items()}
    assert len({data.fingerprint(), *found.values()}) == 1 + len(others), found
    unread = [one.replace(values=one.values + 7) for one in hidden]
    assert IrregularDataset(unread, schema=data.schema).fingerprint() == found["hidden"]


def test_median_gap_ignores_ties() -> None:
    data = IrregularDataset([IrregularSeries(np.zeros((4, 1)), [0, 0, 0, 3])])
    assert data.median_gap() == 3.0


def test_series_of_different_width_are_refused() -> None:
    with pytest.raises(DataError, match=r"series 1 .* has 3 channels; the data set has 2"):
        IrregularDataset([IrregularSeries(np.zeros((1, 2)), [0]), IrregularSeries(np.zeros((1, 3)), [0], id="odd")])


def test_weights_belong_to_all_series_or_to_none() -> None:
    data = make()
    assert data.weights is None
    weighed = IrregularDataset([one.replace(weight=i) for i, one in enumerate(data)], schema=data.schema)
    found = weighed[[3, 1]].map(lambda series: series.replace(values=-series.values)).weights
    assert found is not None
    assert (found.tolist(), found.dtype) == ([3.0, 1.0], np.float64)
    assert weighed.labelled.all()
    half = IrregularDataset([weighed[0], data[1]], schema=data.schema)
    with pytest.raises(DataError, match="series 's1' has no weight while others have one"):
        _ = half.weights
    for odd in (-1.0, np.nan, np.inf, "1", 1j):
        with pytest.raises(DataError, match=r"series 's0': its weight is .*; wanted a finite number ≥ 0"):
            data[0].replace(weight=odd)
    assert data[0].replace(weight=np.float32(0.5)).weight == 0.5


def test_half_labelled_data_says_which_series_lacks_a_label() -> None:
    data = IrregularDataset([IrregularSeries([[1.0]], [0], label=1, id="a"), IrregularSeries([[1.0]], [0], id="b")])
    with pytest.raises(DataError, match="'b' has no label"):
        _ = data.labels
    named = IrregularDataset([IrregularSeries([[1.0]], [0], label="calm"), IrregularSeries([[1.0]], [0], label="ill")])
    with pytest.raises(DataError, match="labels: wanted class indices"):
        _ = named.labels


@pytest.mark.parametrize("layout", ["list", "wide", "long", "mapped"])
@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_entries_are_those_of_the_chosen_series(layout: str, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tides.data.dataset._PIECE", piece)
    rng = np.random.default_rng(0)
    rows = {"i": np.repeat(np.arange(9), 4), "t": np.tile(np.arange(4.0), 9)}
    frame = pd.DataFrame(rows | {name: np.where(rng.random(36) < 0.5, np.nan, rng.normal(size=36)) for name in "ab"})
    data = from_wide(frame, id="i", time="t")
    if layout == "long":
        data = from_long(frame.melt(["i", "t"]), id="i", time="t", channel="variable", value="value")
    elif layout == "list":
        data = IrregularDataset(list(data), schema=data.schema)
    elif layout == "mapped":
        data = data.map(lambda series: series)
    for chosen in ([0, 1, 2, 3, 4, 5, 6, 7, 8], [8, 2, 3, 4, 0], [5, 5, 6], [3], []):
        found = [pair for channels, values in data[chosen].entries() for pair in zip(channels, values, strict=True)]
        wanted = [
            (channel, one.values[step, channel])
            for one in (data[i] for i in chosen)
            for step, channel in zip(*np.nonzero(one.observed), strict=True)
        ]
        assert sorted(found) == sorted(wanted)
