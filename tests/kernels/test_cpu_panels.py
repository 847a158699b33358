"""Panels of the compiled step: the same products as a matrix, nothing written beyond the rows, every size."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

numba = pytest.importorskip("numba", reason="the compiled step needs numba (extra `speed`)")

from tides.kernels.cpu.panels import aligned, linear, panel_lanes, panels  # noqa: E402

TOLERANCE = {"float32": 1e-5, "float64": 1e-14}
SENTINEL = 7


@numba.njit
def run(weights, at, vector, n, out, m):  # type: ignore[no-untyped-def]
    return linear(weights, at, vector, n, out, m)


def packed(weight: Any, bias: Any) -> Any:
    return panels(torch.from_numpy(weight), torch.from_numpy(bias), panel_lanes(weight.dtype)).numpy()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 70), st.integers(0, 40), st.sampled_from(sorted(TOLERANCE)), st.integers(0, 2**31))
def test_products_of_every_size(rows: int, columns: int, dtype: str, seed: int) -> None:
    generator = np.random.default_rng(seed)
    weight, bias, vector = (
        generator.standard_normal(shape).astype(dtype) for shape in ((rows, columns), (rows,), (columns,))
    )
    out = np.full(rows + 3, SENTINEL, dtype=dtype)
    section = packed(weight, bias)
    # What stands before and behind a section is not part of it.
    lanes = panel_lanes(dtype)
    weights = aligned(np.concatenate([np.full(lanes, np.nan, dtype), section, np.full(lanes, np.nan, dtype)]))
    assert run(weights, lanes, vector, columns, out, rows) == lanes + section.size
    wanted = bias.astype(np.float64) + weight.astype(np.float64) @ vector.astype(np.float64)
    scale = 1 + np.abs(bias) + np.abs(weight) @ np.abs(vector)
    assert np.all(np.abs(out[:rows] - wanted) <= TOLERANCE[dtype] * scale)
    assert np.all(out[rows:] == SENTINEL)


@pytest.mark.parametrize("dtype", sorted(TOLERANCE))
def test_nan_and_infinity_reach_the_result(dtype: str) -> None:
    weight, bias = np.eye(3, dtype=dtype), np.zeros(3, dtype=dtype)
    out = np.zeros(3, dtype=dtype)
    run(packed(weight, bias), 0, np.array([1, np.nan, 1], dtype=dtype), 3, out, 3)
    assert np.isnan(out).all()


@pytest.mark.parametrize("dtype", sorted(TOLERANCE))
def test_sections_begin_with_a_cache_line(dtype: str) -> None:
    values = np.arange(37, dtype=dtype)
    for _ in range(8):
        copy = aligned(values)
        assert copy.ctypes.data % 64 == 0
        np.testing.assert_array_equal(copy, values)


def test_arrays_of_other_types_or_layouts_are_refused() -> None:
    weights, vector, out = np.zeros(64, np.float32), np.zeros(4, np.float32), np.zeros(4, np.float32)
    with pytest.raises(numba.TypingError):
        run(weights, 0, vector.astype(np.float64), 4, out, 4)
    with pytest.raises(numba.TypingError):
        run(weights, 0, np.zeros(8, np.float32)[::2], 4, out, 4)
