import numpy as np
import pytest

pytest.importorskip("aeon", reason="aeon is not installed (its pins exclude the newest numpy and pandas)")

from aeon.testing.estimator_checking import check_estimator

from tides.errors import DataError
from tides.estimators.adapters import AeonTIDESClassifier

SMALL = {"hidden_size": 8, "state_size": 4, "depth": 1, "epochs": 8, "random_state": 0}


@pytest.mark.slow
def test_aeon_accepts_it() -> None:
    check_estimator(AeonTIDESClassifier(hidden_size=4, state_size=2, depth=1, epochs=2), raise_exceptions=True)


def test_the_clock_is_a_channel_or_given_once() -> None:
    rng = np.random.default_rng(0)
    y = np.array(["a", "b"] * 12)
    lengths = rng.integers(4, 9, 24)
    X = [rng.normal(size=(2, n)) + 3 * (i % 2) for i, n in enumerate(lengths)]
    times = [np.sort(rng.uniform(0, 5, n)) for n in lengths]
    with_clock = [np.vstack([t, x]) for t, x in zip(times, X, strict=True)]
    model = AeonTIDESClassifier(time_channel=0, **SMALL)
    model.fit(with_clock, y)
    assert (model.predict(with_clock) == y).mean() > 0.8
    assert model.estimator_.schema_.channels == ("channel_0", "channel_1")
    assert model.estimator_.model_.backbone.calibration.time_scale != 1
    shared = AeonTIDESClassifier(times=np.arange(9) * 2.0, **SMALL)
    shared.fit(X, y)
    assert shared.estimator_.model_.backbone.calibration.time_scale == 2
    with pytest.raises(DataError, match="time_channel: found 7"):
        AeonTIDESClassifier(time_channel=7, **SMALL).fit(X, y)
