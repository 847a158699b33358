"""scikit-learn's own checks of its conventions. A matrix is read as one series of one channel in each row."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from tides.estimators import TIDESClassifier, TIDESForecaster, TIDESRegressor

SMALL: dict[str, Any] = {"hidden_size": 8, "state_size": 4, "depth": 1, "random_state": 0}
ESTIMATORS = [
    TIDESClassifier(**SMALL, epochs=10),
    # One of its checks wants R² > 0.5 where a single position of ten matters: that takes size and time to learn, and
    # a fifth of the rows would be trained without that position if values were hidden.
    TIDESRegressor(
        hidden_size=16, state_size=8, epochs=30, validation=0.0, model={"pool": "last"}, random_state=0, input_drop=0.0
    ),
    TIDESForecaster(3, **SMALL, epochs=3),
]
# Checks that need no training.
QUICK = {
    "check_do_not_raise_errors_in_init_or_set_param",
    "check_estimator_cloneable",
    "check_estimator_get_tags_default_keys",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_estimators_unfitted",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_valid_tag_types",
}
# Check: why it does not apply.
EXCEPTIONS = {
    "check_sample_weight_equivalence_on_dense_data": (
        "it repeats series instead of weighing them, which makes other batches and other scales: weights are those of "
        "the loss (tests/training/test_weights.py, and for weights of 0 and 1 tests/estimators/test_weights.py)"
    )
}


def name_of(check: Callable[..., Any]) -> str:
    return str(getattr(check, "func", check).__name__)


@pytest.mark.slow
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda estimator: EXCEPTIONS)
def test_conventions(estimator: Any, check: Callable[..., None]) -> None:
    check(estimator)


def quick_checks() -> list[Any]:
    """(estimator, check) of the cheap ones, with readable names."""
    found = []
    for estimator in ESTIMATORS:
        for one, check in estimator_checks_generator(estimator):
            if name_of(check) in QUICK:
                found.append(pytest.param(one, check, id=f"{type(estimator).__name__}-{name_of(check)}"))
    return found


@pytest.mark.parametrize(("estimator", "check"), quick_checks())
def test_conventions_that_need_no_training(estimator: Any, check: Callable[..., None]) -> None:
    check(estimator)


def test_the_quick_checks_exist() -> None:
    # Releases of scikit-learn rename and drop some of them.
    assert len(quick_checks()) >= 3 * 8


def test_the_shared_arguments_have_the_same_defaults() -> None:
    first, second, third = (
        {name: p.default for name, p in inspect.signature(type(one)).parameters.items()} for one in ESTIMATORS
    )
    assert set(second) == set(first) - {"class_weight"}
    # A forecast has no summary: it is not of a series as a whole.
    assert first["summary"] == second["summary"]
    assert "summary" not in third
    for name in set(second) - {"summary"}:
        assert first[name] == second[name] == third[name], name


def test_without_scikit_learn_the_message_says_what_to_install() -> None:
    code = (
        "import sys\n"
        "sys.modules['sklearn'] = None\n"
        "import tides\n"
        "try: tides.estimators.TIDESClassifier\n"
        "except tides.TidesError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "tides-ssm[sklearn]"' in done.stdout


@pytest.mark.parametrize("kind", [TIDESClassifier, TIDESRegressor, TIDESForecaster])
def test_every_argument_is_kept_as_it_was_given(kind: Any) -> None:
    """Arguments pass through two constructors; one that is lost on the way would take its default, unnoticed."""
    given = {name: object() for name in inspect.signature(kind.__init__).parameters if name != "self"}
    kept = kind(**given).get_params(deep=False)
    assert {name for name in given if kept[name] is not given[name]} == set()
    assert set(kept) == set(given)
