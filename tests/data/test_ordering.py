"""The fast sort equals the plain one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tides.data.ordering import stable_order


@given(
    st.integers(1, 300),
    st.sampled_from([(0, 1), (0, 3), (-5, 5), (0, 70_000), (-(2**40), 2**40), (-(2**62), 2**62)]),
    st.integers(0, 2**32),
    st.booleans(),
)
def test_equals_lexsort(n: int, span: tuple[int, int], seed: int, whole: bool) -> None:
    rng = np.random.default_rng(seed)
    key = rng.integers(*span, n)
    time = rng.integers(-3, 3, n).astype(np.int64 if whole else np.float64)
    order, plain = stable_order(key, time), np.lexsort((time, key))
    np.testing.assert_array_equal(np.arange(n) if order is None else order, plain)


def test_sorted_rows_need_no_order() -> None:
    assert stable_order(np.array([1, 1, 2]), np.array([0.0, 0.0, -1.0])) is None
