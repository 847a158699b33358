"""λ̄, gain and what their gradients need, for a flat stretch of (step, mode) pairs: the part of a scan that is parallel.

Formulas: `chunked.discretise` and `chunked.evolve`. Everything is real planes; `half_angle` is Im λ δ / 2 in float64.
The loops are short on purpose: with few arrays each, the compiler can prove that they do not overlap and vectorise.
"""

from typing import Any

import numpy as np

from tides.kernels.cpu.compiled_code import compiler
from tides.kernels.cpu.elementary import EXACT_MATH, exp_and_expm1, quarter_turns, sin_and_cos
from tides.kernels.cpu.lane_values import load, load_as, spread, store, where_less
from tides.kernels.cpu.vectors import VECTOR, widest_registers

ZOH, BILINEAR, DIRAC = 0, 1, 2
METHODS = {"zoh": ZOH, "bilinear": BILINEAR, "dirac": DIRAC}

compiled: Any = compiler(EXACT_MATH)

_SMALLEST_SQUARE = 1e-30
_TAYLOR_SQUARE = 0.25


@compiled
def zoh_forward(n, growth, half_angle, delta, lam_re, lam_im, gain_re, gain_im):  # type: ignore[no-untyped-def]
    """λ̄ = e^z and gain = δ φ₁(z) = δ (e^z − 1)/z, z = growth + 2i·half_angle."""
    widest_registers()
    real = growth.dtype.type
    one, two, half, tiny = real(1), real(2), real(0.5), real(_SMALLEST_SQUARE)
    for j in range(n):
        lam_re[j], gain_re[j] = exp_and_expm1(growth[j])
    for j in range(n):
        gain_im[j], lam_im[j] = quarter_turns(half_angle[j], one)
    for j in range(n):
        e, m = lam_re[j], gain_re[j]
        sine, cosine = sin_and_cos(gain_im[j], lam_im[j])
        versine = two * sine * sine
        lam_im[j] = two * sine * e * cosine
        lam_re[j] = e - e * versine
        gain_re[j] = m - m * versine - versine  # Re e^z − 1
    for j in range(n):
        gain_im[j] = real(half_angle[j]) * two
    for j in range(n):
        a, b, d = growth[j], gain_im[j], delta[j]
        re, im = gain_re[j], lam_im[j]
        square = a * a + b * b
        small = square < tiny
        scale = d / (one if small else square)
        gain_re[j] = d + d * a * half if small else (re * a + im * b) * scale
        gain_im[j] = d * b * half if small else (im * a - re * b) * scale


@compiled
def zoh_slope(n, growth, half_angle, delta, lam_re, lam_im, gain_re, gain_im, k_re, k_im, taylor):  # type: ignore[no-untyped-def]
    """K = δ² φ₁'(z) behind `zoh_forward`; φ₁' = (e^z − φ₁)/z, or its Taylor polynomial for |z| < ½.

    Whole vectors: up to one of them is read and written behind the n numbers.
    """
    real = growth.dtype.type
    one, radius = spread(real(1)), spread(real(_TAYLOR_SQUARE))
    for j in range(0, n, VECTOR // growth.itemsize):
        a, angle, d = load(growth, j), load_as(half_angle, j, growth), load(delta, j)
        b, twice = angle + angle, a + a
        square = a * a + b * b
        # z² = 2a z − |z|² takes the powers of z out one by one: two real products for each.
        near, before = spread(taylor[0]), spread(real(0))
        for i in range(1, taylor.size - 1):
            near, before = taylor[i] + twice * near - square * before, near
        near_re, near_im = taylor[taylor.size - 1] + a * near - square * before, b * near
        scale = d / where_less(square, radius, one, square)
        re, im = d * load(lam_re, j) - load(gain_re, j), d * load(lam_im, j) - load(gain_im, j)
        store(where_less(square, radius, d * d * near_re, (re * a + im * b) * scale), k_re, j)
        store(where_less(square, radius, d * d * near_im, (im * a - re * b) * scale), k_im, j)


@compiled
def bilinear_forward(n, growth, half_angle, delta, lam_re, lam_im, gain_re, gain_im):  # type: ignore[no-untyped-def]
    """λ̄ = 2/(1 − z/2) − 1 and gain = δ/(1 − z/2)."""
    real = growth.dtype.type
    one, two, half = real(1), real(2), real(0.5)
    for j in range(n):
        re, im = one - half * growth[j], real(half_angle[j])
        square = re * re + im * im
        lam_re[j], lam_im[j] = re / square, im / square
    for j in range(n):
        d, re, im = delta[j], lam_re[j], lam_im[j]
        gain_re[j], gain_im[j] = d * re, d * im
        lam_re[j], lam_im[j] = two * re - one, two * im


@compiled
def bilinear_slope(n, growth, half_angle, delta, w_re, w_im, k_re, k_im):  # type: ignore[no-untyped-def]
    """W = 1/(1 − z/2)² and K = δ²/2 W."""
    real = growth.dtype.type
    one, two, half = real(1), real(2), real(0.5)
    for j in range(n):
        re, im = one - half * growth[j], real(half_angle[j])
        square = re * re + im * im
        re, im = re / square, im / square
        w_re[j], w_im[j] = re * re - im * im, two * re * im
    for j in range(n):
        factor = half * delta[j] * delta[j]
        k_re[j], k_im[j] = factor * w_re[j], factor * w_im[j]


def taylor_coefficients(dtype: Any) -> Any:
    """(n+1)/(n+2)! from the highest power down: as many as half an ulp takes for |z| < ½."""
    terms = 9 if dtype == np.float32 else 16
    coefficients, factorial = [], 2.0
    for n in range(terms):
        coefficients.append((n + 1) / factorial)
        factorial *= n + 3
    return np.array(coefficients[::-1], dtype=dtype)
