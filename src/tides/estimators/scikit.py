"""Everything taken from scikit-learn, in one place that says what to install if it is missing."""

from tides.errors import TidesError

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.metrics import r2_score
    from sklearn.utils import _safe_indexing as pick_rows
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import (
        assert_all_finite,
        check_array,
        check_consistent_length,
        check_is_fitted,
        column_or_1d,
        validate_data,
    )
except ImportError as error:
    raise TidesError('estimators need scikit-learn 1.6 or newer: pip install "tides-ssm[sklearn]"') from error

__all__ = [
    "BaseEstimator",
    "ClassifierMixin",
    "RegressorMixin",
    "assert_all_finite",
    "check_array",
    "check_classification_targets",
    "check_consistent_length",
    "check_is_fitted",
    "check_random_state",
    "column_or_1d",
    "pick_rows",
    "r2_score",
    "validate_data",
]
