"""An aeon classifier: `fit(X, y)` on collections (cases, channels, length) or lists of (channels, length_i)."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tides.errors import DataError, TidesError
from tides.estimators.classifier import TIDESClassifier
from tides.estimators.recipe import RECIPE

try:
    from aeon.classification import BaseClassifier
except ImportError as error:
    raise TidesError('the aeon adapter needs aeon: pip install "tides-ssm[uea]"') from error


class AeonTIDESClassifier(BaseClassifier):  # type: ignore[misc]
    """`TIDESClassifier` behind aeon's interface; unequal lengths and missing values (NaN) are fine.

    aeon's collections have no timestamps. Either `times` holds those of all cases (length,), or `time_channel` says
    which channel of X is the clock; otherwise times are 0, 1, 2, …. `options` are further arguments of
    `TIDESClassifier`.
    """

    _tags: ClassVar[dict[str, Any]] = {
        "X_inner_type": ["np-list", "numpy3D"],
        "capability:multivariate": True,
        "capability:unequal_length": True,
        "capability:missing_values": True,
        "algorithm_type": "deeplearning",
        "python_dependencies": "torch",
    }

    def __init__(
        self,
        times: Any = None,
        time_channel: int | None = None,
        hidden_size: int = RECIPE.hidden_size,
        state_size: int = RECIPE.state_size,
        depth: int = RECIPE.depth,
        epochs: int = RECIPE.epochs,
        class_weight: Any = None,
        options: Mapping[str, Any] | None = None,
        random_state: Any = None,
    ) -> None:
        self.times = times
        self.time_channel = time_channel
        self.hidden_size = hidden_size
        self.state_size = state_size
        self.depth = depth
        self.epochs = epochs
        self.class_weight = class_weight
        self.options = options
        self.random_state = random_state
        super().__init__()

    def _fit(self, X: Any, y: Any) -> "AeonTIDESClassifier":
        values, times = self._split(X)
        self.estimator_ = TIDESClassifier(
            hidden_size=self.hidden_size,
            state_size=self.state_size,
            depth=self.depth,
            epochs=self.epochs,
            class_weight=self.class_weight,
            random_state=self.random_state,
            layout="channels-first",  # as aeon has it
            **(self.options or {}),
        ).fit(values, y, times=times)
        return self

    def _predict(self, X: Any) -> NDArray[Any]:
        values, times = self._split(X)
        return self.estimator_.predict(values, times=times)

    def _predict_proba(self, X: Any) -> NDArray[np.float64]:
        values, times = self._split(X)
        return self.estimator_.predict_proba(values, times=times)

    def _split(self, X: Any) -> tuple[list[NDArray[Any]], Any]:
        """Values and times of each case."""
        cases = [np.asarray(case) for case in X]
        if self.time_channel is None:
            return cases, None if self.times is None else [np.asarray(self.times)[: case.shape[1]] for case in cases]
        if self.times is not None:
            raise DataError("times, time_channel: found both, wanted one of them")
        others = [i for i in range(cases[0].shape[0]) if i != self.time_channel]
        if len(others) in (0, cases[0].shape[0]):
            raise DataError(f"time_channel: found {self.time_channel}, X has {cases[0].shape[0]} channels")
        return [case[others] for case in cases], [case[self.time_channel] for case in cases]

    @classmethod
    def _get_test_params(cls, parameter_set: str = "default") -> dict[str, Any]:
        """Small enough for aeon's own checks."""
        return {"hidden_size": 4, "state_size": 2, "depth": 1, "epochs": 2}
