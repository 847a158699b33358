"""The embedded systems: right physics, balanced classes, the same data every time."""

from dataclasses import replace

import numpy as np
import pytest

from tides.data import collate, systems
from tides.data.oscillators import CALCIUM, HODGKIN_HUXLEY, SYSTEMS, System, integrate
from tides.errors import DataError


def peaks(trace: np.ndarray, above: float) -> int:
    inner = trace[1:-1]
    return int(((inner > trace[:-2]) & (inner >= trace[2:]) & (inner > above)).sum())


@pytest.mark.parametrize("system", SYSTEMS.values(), ids=SYSTEMS)
def test_integration_converges_with_order_four(system: System) -> None:
    parameters = {name: np.array([value]) for name, value in system.parameters.items()}
    start = np.array(system.initial)[:, None]
    duration = system.span / 10
    ends = [integrate(replace(system, step=system.step / k), parameters, start, duration)[1][0, -1] for k in (1, 2, 8)]
    coarse, fine = (np.abs(end - ends[2]).max() for end in ends[:2])
    assert coarse > 8 * fine


def test_hodgkin_huxley_rests_at_its_textbook_potential() -> None:
    parameters = {name: np.array([value]) for name, value in HODGKIN_HUXLEY.parameters.items()}
    parameters["stimulus"] = np.array([0.0])
    _, states = integrate(HODGKIN_HUXLEY, parameters, np.array(HODGKIN_HUXLEY.initial)[:, None], 80.0)
    assert states[0, -1, 0] == pytest.approx(-65.0, abs=0.1)


@pytest.mark.parametrize(("system", "above"), [(HODGKIN_HUXLEY, -20.0), (CALCIUM, 0.6)], ids=SYSTEMS)
def test_regimes_differ_in_what_they_are_named_after(system: System, above: float) -> None:
    control = np.concatenate([np.linspace(regime.low, regime.high, 8) for regime in system.regimes])
    _, states = systems.simulate(system.name, len(control), control=control, spread=0.02)
    counts = np.array([peaks(one[:, 0], above) for one in states]).reshape(-1, 8)
    rest, slow, fast = counts
    assert max(rest) == 0
    assert min(slow) >= 2
    assert min(fast) > max(slow)


@pytest.mark.parametrize("name", SYSTEMS)
def test_forecasting_data(name: str) -> None:
    data = systems.forecasting(name, n=6, points=40)
    span = SYSTEMS[name].span
    for one in data:
        assert one.times[-1] < one.query_times[0]
        assert one.query_times[-1] <= span
        assert one.observed.any(axis=1).all()
        assert one.target_observed.all()
        assert len(np.unique(np.diff(one.times))) > 5
    batch = collate(data, first_gap="start")
    assert batch.targets.shape[2] == len(SYSTEMS[name].channels)


def test_data_depends_on_the_seed_alone() -> None:
    one, same, other = (systems.forecasting("calcium", n=2, points=10, seed=seed)[1].values for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert one.shape != other.shape or not np.allclose(one, other)


def test_classification_data_is_balanced_and_partly_observed() -> None:
    data = systems.classification(n=30, points=20)
    assert np.bincount(data.labels).tolist() == [10, 10, 10]
    assert data.class_names == ("rest", "slow waves", "fast waves")
    assert data.lengths.min() >= 10
    assert data.lengths.max() <= 20
    hidden = 1.0 - np.mean(np.concatenate([one.observed for one in data]))
    assert 0.25 < hidden < 0.5  # half of the entries, less those kept so that no step is empty


def test_refusals() -> None:
    with pytest.raises(DataError, match="hodgkin-huxley, calcium"):
        systems.simulate("lorenz", 1)
    with pytest.raises(DataError, match="missing=1"):
        systems.forecasting(n=1, missing=1.0)
    with pytest.raises(DataError, match="n=0"):
        systems.simulate("calcium", 0)
    for argument, value in (("spread", -0.1), ("spread", np.nan), ("span", -1.0), ("span", 0.0), ("span", np.inf)):
        with pytest.raises(DataError, match=f"{argument}={value}; wanted"):
            systems.simulate("calcium", 2, **{argument: value})
    with pytest.raises(DataError, match=r"control: found shape \(3,\); wanted \(2,\)"):
        systems.simulate("calcium", 2, control=np.ones(3))


def test_regular_series_share_one_clock() -> None:
    data = systems.classification(n=6, points=16, missing=0.0, regular=True)
    assert data.lengths.tolist() == [16] * 6
    for one in data:
        np.testing.assert_array_equal(one.times, np.linspace(0.0, SYSTEMS["calcium"].span, 16))
        assert one.observed.all()
