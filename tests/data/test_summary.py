"""The numbers of `describe`, and its page of plots."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tides.data import IrregularDataset, IrregularSeries, describe, from_long, from_wide
from tides.data.summary_plot import plot_summary
from tides.errors import DataError


def make() -> IrregularDataset:
    series = [
        IrregularSeries([[1.0, np.nan, 5.0], [3.0, np.nan, 5.0]], [0.0, 2.0], label=0, group="g"),
        IrregularSeries([[5.0, np.nan, np.nan]], [4.0], label=1, group="g"),
        IrregularSeries([[7.0, np.nan, 5.0], [7.0, np.nan, 5.0], [1.0, np.nan, 5.0]], [0.0, 0.0, 9.0], label=1),
    ]
    return IrregularDataset(series, channels=("a", "never", "flat"), unit="h", class_names=("no", "yes"))


def test_numbers() -> None:
    summary = describe(make())
    assert (summary.series, summary.steps) == (3, 6)
    assert summary.lengths["median"] == 2
    assert summary.gaps["max"] == 9.0
    assert (summary.durations["min"], summary.durations["median"], summary.durations["max"]) == (0.0, 2.0, 9.0)
    a, never, flat = summary.channels
    assert (a.observed, a.missing, a.mean, a.min, a.max) == (6, 0.0, 4.0, 1.0, 7.0)
    assert a.std == pytest.approx(np.std([1, 3, 5, 7, 7, 1]))
    assert (never.missing, never.mean) == (1.0, None)
    assert flat.std == 0.0
    assert summary.missing == pytest.approx(7 / 18)
    assert summary.labels == {"kind": "class", "counts": {"no": 1, "yes": 2}}
    notes = "\n".join(summary.notes)
    for words in (
        "1 series has a single",
        "1 gap is 0",
        "1 channel was never observed: never",
        "1 channel is constant: flat",
        "classes have fewer than 10",
    ):
        assert words in notes
    assert json.loads(json.dumps(summary.to_dict()))["channels"][0]["name"] == "a"


@pytest.mark.parametrize(("ticks", "unit"), [(1, "s"), (10**3, "ms"), (10**6, "us"), (10**9, "ns")])
def test_a_clock_that_counts_from_1970_has_its_unit(ticks: int, unit: str) -> None:
    """A horizon of 24 h would be 24 of these ticks."""
    moments = (1_767_225_600 + np.array([0, 40, 90, 0, 50, 70])) * ticks

    def notes(times: Any, stated: str | None) -> str:
        frame = pd.DataFrame({"i": [1, 1, 1, 2, 2, 2], "t": times, "x": np.arange(6.0)})
        return "\n".join(describe(from_wide(frame, id="i", time="t", unit=stated)).notes)

    span = f"times from {moments.min()} to {moments.max()} look like {unit} since 1970: is 'h' their unit"
    assert span in notes(moments, "h")
    quiet = [
        (moments, unit),
        (moments, None),
        (moments, "cycles"),
        (np.arange(6.0), "h"),
        (pd.to_datetime(moments), "h"),
    ]
    for times, stated in [*quiet, (moments, {"s": "seconds", "us": "µs"}.get(unit, unit))]:
        assert "1970" not in notes(times, stated)


def test_regular_data_is_called_regular() -> None:
    data = IrregularDataset([IrregularSeries(np.ones((4, 1)), [0, 1, 2, 3])])
    assert any("regularly sampled" in note for note in describe(data).notes)


def notes_of(**columns: Any) -> str:
    """Notes on twelve series of three steps, with these columns beside their id, time and value."""
    rows = {"i": np.repeat(np.arange(12), 3), "t": np.tile(np.arange(3.0), 12), "x": np.arange(36.0) % 7}
    table = pd.DataFrame(rows | {name: np.repeat(column, 3) for name, column in columns.items() if name != "i"})
    table["i"] = np.repeat(columns.get("i", np.arange(12)), 3)
    static = [name for name in columns if name in ("name", "sex")]
    return "\n".join(describe(from_wide(table, id="i", time="t", static=static)).notes)


def test_events_are_no_constant_channels() -> None:
    """A column of ones, as the guide has it: they happen, or they do not."""
    log = pd.DataFrame({"i": [1, 1, 1, 2, 2, 2], "t": [0.0, 1, 3, 0, 2, 3], "what": list("aabbac"), "x": 1.0})
    roles: dict[str, Any] = {"id": "i", "time": "t", "channel": "what", "value": "x"}
    assert "constant" not in "\n".join(describe(from_long(log, **roles)).notes)
    assert "2 channels are constant: a, b" in "\n".join(describe(from_long(log.assign(x=2.0), **roles)).notes)


def test_what_describes_a_series_is_no_channel() -> None:
    notes = notes_of(age=np.arange(12.0), ward=np.arange(12) % 3)
    assert "2 channels never change within a series: age, ward; what describes a series is static" in notes
    assert "never change" not in notes_of()
    assert "never change" not in notes_of(one=np.ones(12))  # constant over all series, as another note says


def test_channels_in_two_units() -> None:
    generator = np.random.default_rng(0)

    def notes(level: Any, n: int = 20) -> list[str]:
        series = [
            IrregularSeries(level(i) * (1 + 0.05 * generator.normal(size=(6, 1))), np.arange(6.0), id=i)
            for i in range(n)
        ]
        return [note for note in describe(IrregularDataset(series, channels=("temp",))).notes if "two levels" in note]

    (found,) = notes(lambda i: 98.0 if i % 4 else 36.9)
    assert found.startswith("channel at two levels, depending on the series: temp (near 37.1 in 5, near 9")
    # Glucose in mmol/L and mg/dL: what is apart on a logarithmic scale alone.
    assert notes(lambda i: generator.uniform(4, 9) * (18 if i % 2 else 1))
    assert not notes(lambda i: generator.uniform(4, 9))
    assert not notes(lambda i: 98.0 if i % 4 else 36.9, n=16), "four series are not enough to tell"
    assert not notes(lambda i: generator.normal())
    assert not notes(lambda i: 110.0 if i % 2 else 80.0), "patients may differ that much"
    assert not notes(lambda i: 1.0 if i % 2 else 0.0, n=1)


def test_numbers_that_may_mean_missing() -> None:
    def notes(values: list[float]) -> str:
        series = [IrregularSeries(np.array(values)[:, None], np.arange(len(values)))]
        return "\n".join(describe(IrregularDataset(series, channels=("hr",))).notes)

    assert "channel hr is -999 or from 60 to 90: does -999 mean missing?" in notes([60.0, -999.0, 72.0, -999.0, 90.0])
    assert "channel hr is 9999 or from 60 to 90: does 9999 mean missing?" in notes([60.0, 9999.0, 90.0])
    many = [IrregularSeries(np.tile([[-999.0], [60.0], [90.0]], 5), np.arange(3.0))]
    assert [note for note in describe(IrregularDataset(many)).notes if "missing?" in note] == [
        "5 channels: channel_0 is -999 or from 60 to 90; channel_1 is -999 or from 60 to 90; "
        "channel_2 is -999 or from 60 to 90; …: does -999 mean missing?"
    ]
    for values in ([60.0, 99.0, 90.0], [-999.0, -999.0], [-999.0, 60.0], [0.0, 500.0, 999.0], [60.0, -1000.0, 90.0]):
        assert "missing?" not in notes(values)


def test_names_that_may_mean_the_same() -> None:
    assert "categories of sex 'F' and 'f ' differ only in spelling" in notes_of(sex=["F", "M", "f "] * 4)
    assert "static column name has 12 categories for 12 series" in notes_of(name=list("abcdefghijkl"))
    assert "ids '1' and '1.0' differ" in notes_of(i=["1", "1.0", *map(str, range(2, 12))])
    assert r"ids 'e\u0301' and '\xe9' differ" in notes_of(i=["\u00e9", "e\u0301", *map(str, range(10))])
    assert r"ids '1' and '\u200b1' differ" in notes_of(i=["1", "\u200b1", *map(str, range(2, 12))])
    quiet = notes_of(i=[f"1-{i}" for i in range(6)] + [f"11-{i}" for i in range(6)], sex=["F", "M", None] * 4)
    quiet += notes_of(i=np.arange(12) + 2**60) + notes_of(i=[f"{i / 7}" for i in range(12)])
    assert "differ" not in quiet
    assert "categories" not in quiet
    table = pd.DataFrame({"i": 1, "t": [0.0, 1.0], "c": ["heart rate", "Heart_Rate "], "v": 1.0})
    notes = describe(from_long(table, id="i", time="t", channel="c", value="v")).notes
    assert "channels 'Heart_Rate ' and 'heart rate' differ only in spelling: do they mean the same?" in notes
    table = pd.DataFrame({"i": 1, "t": [0.0, 1, 2, 3, 4], "c": ["a", "A", "b", "B", "a "], "v": 1.0})
    notes = describe(from_long(table, id="i", time="t", channel="c", value="v")).notes
    assert "channels 'A' and 'a' (and 2 further pairs) differ only in spelling: do they mean the same?" in notes


@pytest.mark.parametrize("labels", ["class", "number", "none"])
def test_page_of_plots(tmp_path: Path, labels: str) -> None:
    pytest.importorskip("matplotlib")
    data = make()
    if labels != "class":
        change = {"label": 0.5} if labels == "number" else {"label": None}
        data = IrregularDataset([one.replace(**change) for one in data], channels=data.channels)
    plot_summary(data, describe(data), tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 10_000
    with pytest.raises(DataError, match="cannot be written"):
        plot_summary(data, describe(data), tmp_path / "no" / "page.png")


def test_names_with_dollars_are_no_mathematics(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    names = [rf"$\none{{$ {i}" for i in range(2)]
    series = [IrregularSeries(np.zeros((2, 2)), np.arange(2.0), label=i, id=str(i)) for i in range(2)]
    data = IrregularDataset(series, channels=names, class_names=names)
    plot_summary(data, describe(data), tmp_path / "page.png")
    assert (tmp_path / "page.png").is_file()
