"""Elementary functions of the `cpu` backend against numpy's in float64."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba", reason="the cpu backend needs numba")

import numba

from tides.kernels.cpu.elementary import exp_between, logistic, quarter_turns, sin_and_cos

# Two units in the last digit.
LAST = {np.float32: 2.4e-7, np.float64: 4.5e-16}
KINDS = pytest.mark.parametrize("real", [np.float32, np.float64])


@numba.njit
def _fill(x, powers, shares):  # type: ignore[no-untyped-def]
    for j in range(x.size):
        powers[j] = exp_between(x[j])
        shares[j] = logistic(x[j])


@numba.njit
def _turn(angles, sines, cosines):  # type: ignore[no-untyped-def]
    for j in range(angles.size):
        reduced, quadrant = quarter_turns(angles[j], sines[j])
        sines[j], cosines[j] = sin_and_cos(reduced, quadrant)


@KINDS
def test_powers_and_shares_keep_their_digits(real: Any) -> None:
    x = np.linspace(-79, 79, 100_001).astype(real)
    powers, shares = np.empty_like(x), np.empty_like(x)
    _fill(x, powers, shares)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(powers, np.exp(exact), rtol=LAST[real])
    np.testing.assert_allclose(shares, 1 / (1 + np.exp(-exact)), rtol=LAST[real])


@KINDS
def test_shares_far_out_are_nothing_and_one(real: Any) -> None:
    x = np.array([-np.inf, -1e4, -90, 90, 1e4, np.inf, np.nan], dtype=real)
    shares = np.empty_like(x)
    _fill(x, np.empty_like(x), shares)
    np.testing.assert_allclose(shares, [0, 0, 0, 1, 1, 1, np.nan], atol=1e-34)


@KINDS
def test_sines_of_thousands_of_turns(real: Any) -> None:
    angles = np.concatenate([np.linspace(-20, 20, 10_001), np.linspace(-9e4, 9e4, 10_001)])
    sines, cosines = np.empty(angles.size, real), np.empty(angles.size, real)
    _turn(angles, sines, cosines)
    np.testing.assert_allclose(sines, np.sin(angles), rtol=0, atol=LAST[real])
    np.testing.assert_allclose(cosines, np.cos(angles), rtol=0, atol=LAST[real])
