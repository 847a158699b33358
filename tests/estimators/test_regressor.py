from pathlib import Path

import numpy as np
import pytest

from tests.estimators.series import FAST, levels
from tides.data import IrregularDataset
from tides.errors import DataError
from tides.estimators import TIDESRegressor


def numbered(n: int, seed: int = 0) -> IrregularDataset:
    data = levels(n, seed)
    return IrregularDataset([s.replace(label=1000.0 + 50.0 * (s.label or 0)) for s in data], channels=("a", "b"))


def test_numbers_come_back_in_their_own_units(tmp_path: Path) -> None:
    model = TIDESRegressor(**{**FAST, "epochs": 15}).fit(numbered(60))
    assert model.score(numbered(40, 1)) > 0.7
    found = model.predict(numbered(40, 1))
    assert found.shape == (40,)
    assert 950 < found.min() < 1020 < found.max() < 1100
    loaded = TIDESRegressor.load(model.save(tmp_path))
    np.testing.assert_array_equal(loaded.predict(numbered(5)), model.predict(numbered(5)))


def test_several_targets() -> None:
    data = levels(30)
    y = np.stack([np.arange(30) % 2, -5.0 * (np.arange(30) % 2)], axis=1)
    model = TIDESRegressor(**FAST).fit(data, y)
    assert model.predict(data).shape == (30, 2)
    assert model.score(data, y) > 0.3


def test_bad_targets_are_refused() -> None:
    with pytest.raises(DataError, match="requires y to be passed"):
        TIDESRegressor(**FAST).fit(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="NaN"):
        TIDESRegressor(**FAST).fit(np.ones((4, 3)), [1.0, 2.0, np.nan, 3.0])
    with pytest.raises(ValueError, match="inconsistent"):
        TIDESRegressor(**FAST).fit(np.ones((4, 3)), [1.0, 2.0])
