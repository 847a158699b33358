"""Rates, efficiencies and the fit, from runs whose outcome is known."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tides.experiments.scale_summary import serial_share, speedup, summarise


def run(workers: int, seconds: float, processors: int | None = None, *, start: float = 0.0, repeat: int = 0) -> Any:
    """Four cells for each worker, `seconds` each, and `start` seconds besides."""
    cells = 4 * workers
    return {
        "repeat": repeat,
        "engine": "local",
        "workers": workers,
        "processors": processors or workers,
        "cells": cells,
        "observations": 1000 * cells,
        "cell_seconds": [seconds] * cells,
        "cell_processor_seconds": [seconds] * cells,
        "processor_seconds": cells * seconds,
        "wall": 4 * seconds + start,
        "load_average": 0.5 + repeat,
        "other_processors": None,
    }


def test_rates_and_efficiency() -> None:
    found = summarise([run(1, 5.0, start=10.0), run(2, 5.0, start=20.0)])
    one, two = found["rows"]
    assert one["cells_per_minute"] == pytest.approx(8)
    assert one["observations_per_second"] == pytest.approx(4000 / 30)
    assert (one["efficiency"], one["processor_efficiency"]) == (1, 1)
    assert two["cells_per_minute"] == pytest.approx(12)
    assert two["efficiency"] == pytest.approx(0.75)
    # The cells themselves are as fast as before; what was lost is the start.
    assert two["processor_efficiency"] == pytest.approx(1)
    assert two["other_seconds"] == pytest.approx(20)
    (fit,) = found["fits"]
    assert fit["serial_share"] == 0


def test_medians_over_the_repeats() -> None:
    runs = [run(1, seconds, repeat=k) for k, seconds in enumerate((5.0, 6.0, 15.0))]
    (row,) = summarise(runs)["rows"]
    assert row["cells_per_minute"] == pytest.approx(10)
    assert row["cells_per_minute_range"] == pytest.approx([4, 12])
    assert row["load_average"] == 2.5
    assert row["repeats"] == 3


def test_the_fit_and_what_it_leaves_out() -> None:
    share = 0.1
    own = [run(n, 5 * (1 + share * (n - 1))) for n in (1, 2, 4)]
    # More workers than processors, and one worker on several, are no points of the law.
    (fit,) = summarise([run(1, 3.0, 4), *own, run(8, 30.0, 4)])["fits"]
    assert fit["serial_share"] == pytest.approx(share)
    assert fit["measured"] == [1, 2, 4]
    assert [row["workers"] for row in fit["extrapolated"]] == [8, 16, 32, 64]
    assert fit["extrapolated"][0]["speedup"] == pytest.approx(8 / 1.7)


def test_the_range_is_that_of_the_repeats() -> None:
    runs = [run(1, 5.0, repeat=k) for k in range(3)]
    runs += [run(2, seconds, repeat=k) for k, seconds in enumerate((5.5, 6.0, 7.5))]
    (fit,) = summarise(runs)["fits"]
    assert fit["serial_share"] == pytest.approx(0.2)
    assert fit["serial_share_range"] == pytest.approx([0.1, 0.5])
    for row in fit["extrapolated"]:
        low, high = row["speedup_range"]
        assert low < row["speedup"] < high


def test_one_worker_is_nothing_to_extrapolate_from() -> None:
    (fit,) = summarise([run(1, 5.0)])["fits"]
    assert fit["serial_share"] is None
    assert "extrapolated" not in fit


def test_a_busy_machine_is_not_extrapolated_from() -> None:
    runs = [run(1, 5.0), {**run(2, 6.0), "other_processors": 0.4}]
    found = summarise(runs)
    assert found["busy"]
    assert found["fits"] == []
    assert [row["other_processors"] for row in found["rows"]] == [None, 0.4]
    assert not summarise([run(1, 5.0), {**runs[1], "other_processors": 0.05}])["busy"]


@given(st.floats(0, 1), st.sets(st.integers(2, 64), min_size=1))
def test_the_share_is_found_again(share: float, counts: set[int]) -> None:
    costs = {n: n / speedup(n, share) for n in counts}
    assert serial_share(costs) == pytest.approx(share, abs=1e-9)
    assert 1 - 1e-9 <= speedup(8, share) <= 8


def test_faster_together_counts_as_no_loss() -> None:
    assert serial_share({2: 0.9}) == 0
