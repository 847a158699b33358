"""exp, expm1, sin, cos and erf as polynomials that compilers turn into vector code; library calls would not be.

Range reduction: e^a = 2ⁿ e^r with |r| ≤ ln 2 / 2, and angles modulo π/2 with |r| ≤ π/4. Angles are always float64,
so that an angle of thousands of radians keeps its digits in float32 too. NaN stays NaN; nothing else does.

Every function has a float32 and a float64 form, chosen when the caller is compiled. Constants are typed, because a
literal would turn float32 arithmetic into float64.
"""

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

_f, _i = np.float32, np.int32

# Instructions may be fused, never reordered: range reduction depends on the order.
EXACT_MATH = {"contract"}
_OPTIONS: Any = {"fastmath": EXACT_MATH, "nogil": True}

_LOG2E, _LOG2E_F = 1 / math.log(2), _f(1 / math.log(2))
_LN2_HIGH, _LN2_LOW = 0.693145751953125, 1.42860682030941723212e-6
_LN2_HIGH_F, _LN2_LOW_F = _f(0.693359375), _f(-2.12194440e-4)
_TWO_OVER_PI = 2 / math.pi
# π/2 in three parts of 33 bits: their products with integers below 2²⁰ are exact.
_PIO2_1, _PIO2_2, _PIO2_3 = 1.57079632673412561417, 6.07710050630396597660e-11, 2.02226624871116645580e-21

# expm1(r) = r + r² P(r): float32 by a minimax polynomial, float64 by Taylor's series.
_E0, _E1, _E2 = _f(1.9875691500e-4), _f(1.3981999507e-3), _f(8.3334519073e-3)
_E3, _E4, _E5 = _f(4.1665795894e-2), _f(1.6666665459e-1), _f(5.0000001201e-1)
_T = tuple(1 / math.factorial(n) for n in range(2, 15))

_S1, _S2, _S3 = _f(-1.6666654611e-1), _f(8.3321608736e-3), _f(-1.9515295891e-4)
_C1, _C2, _C3 = _f(4.166664568298827e-2), _f(-1.388731625493765e-3), _f(2.443315711809948e-5)
_SIN = tuple((-1) ** n / math.factorial(2 * n + 1) for n in range(1, 9))
_COS = tuple((-1) ** n / math.factorial(2 * n) for n in range(2, 9))

_HALF, _ONE, _1_5, _TWO = _f(0.5), _f(1), _f(1.5), _f(2)
_LIMIT, _LIMIT_F = 1400.0, _f(150)
_WHOLE, _FLAT = _f(1.5 * 2**23), _f(80)


def exp_and_expm1(a: Any) -> tuple[Any, Any]:
    """(e^a, e^a − 1), both to the last digit or two; infinite and −1 where they over- and underflow."""
    return math.exp(a), math.expm1(a)


@overload(exp_and_expm1, jit_options=_OPTIONS, inline="always")
def _(a):  # type: ignore[no-untyped-def]
    if a == types.float32:

        def single(a):  # type: ignore[no-untyped-def]
            above = -_LIMIT_F if a < -_LIMIT_F else a
            x = _LIMIT_F if above > _LIMIT_F else above
            n = np.rint(x * _LOG2E_F)
            r = (x - n * _LN2_HIGH_F) - n * _LN2_LOW_F
            q = r + r * r * (((((_E0 * r + _E1) * r + _E2) * r + _E3) * r + _E4) * r + _E5)
            # 2ⁿ in two factors, so that subnormal and infinite results come out right.
            whole = _i(n)
            half = _i(whole >> _i(1))
            one = _i((half + _i(127)) << _i(23)).view(np.float32)
            two = _i((whole - half + _i(127)) << _i(23)).view(np.float32)
            return (_ONE + q) * one * two, q * one * two + (one * two - _ONE)

        return single

    def double(a):  # type: ignore[no-untyped-def]
        above = -_LIMIT if a < -_LIMIT else a
        x = _LIMIT if above > _LIMIT else above
        n = np.rint(x * _LOG2E)
        r = (x - n * _LN2_HIGH) - n * _LN2_LOW
        series = _T[12]
        series = series * r + _T[11]
        series = series * r + _T[10]
        series = series * r + _T[9]
        series = series * r + _T[8]
        series = series * r + _T[7]
        series = series * r + _T[6]
        series = series * r + _T[5]
        series = series * r + _T[4]
        series = series * r + _T[3]
        series = series * r + _T[2]
        series = series * r + _T[1]
        q = r + r * r * (series * r + _T[0])
        whole = np.int64(n)
        half = whole >> 1
        one = np.int64((half + 1023) << 52).view(np.float64)
        two = np.int64((whole - half + 1023) << 52).view(np.float64)
        return (1.0 + q) * one * two, q * one * two + (one * two - 1.0)

    return double


def exp_between(a: Any) -> Any:
    """e^a to the last digit or two for −87 ≤ a ≤ 87, where it is neither subnormal nor infinite in float32."""
    return math.exp(a)


@overload(exp_between, jit_options=_OPTIONS, inline="always")
def _(a):  # type: ignore[no-untyped-def]
    if a == types.float32:

        def single(a):  # type: ignore[no-untyped-def]
            # Beside 1.5 · 2²³ the last digits of a number are whole ones: n stands in the lowest bits.
            shifted = _f(a * _LOG2E_F + _WHOLE)
            n = shifted - _WHOLE
            r = (a - n * _LN2_HIGH_F) - n * _LN2_LOW_F
            q = r + r * r * (((((_E0 * r + _E1) * r + _E2) * r + _E3) * r + _E4) * r + _E5)
            return _i(_f(_ONE + q).view(np.int32) + _i(_f(shifted).view(np.int32) << _i(23))).view(np.float32)

        return single

    return lambda a: exp_and_expm1(a)[0]


def logistic(a: Any) -> Any:
    """1/(1 + e^−a); beyond ±80, where nothing is left beside one, that of ±80: subnormal numbers are slow."""
    return 1 / (1 + math.exp(-a))


@overload(logistic, jit_options=_OPTIONS, inline="always")
def _(a):  # type: ignore[no-untyped-def]
    if a == types.float32:

        def single(a):  # type: ignore[no-untyped-def]
            above = -_FLAT if a < -_FLAT else a
            within = _FLAT if above > _FLAT else above
            return _ONE / (_ONE + exp_between(-within))

        return single

    return lambda a: 1.0 / (1.0 + exp_and_expm1(-a)[0])


def quarter_turns(angle: Any, like: Any) -> tuple[Any, Any]:
    """(r, quadrant) of a float64 angle = r + quadrant · π/2 modulo 2π with |r| ≤ π/4, in the precision of `like`.

    By itself, because loops with a float64 in them take float32 in vectors of half the width.
    """
    quadrant = round(angle * _TWO_OVER_PI)
    return angle - quadrant * (math.pi / 2), quadrant % 4


@overload(quarter_turns, jit_options=_OPTIONS, inline="always")
def _(angle, like):  # type: ignore[no-untyped-def]
    if like == types.float32:

        def single(angle, like):  # type: ignore[no-untyped-def]
            k = np.rint(angle * _TWO_OVER_PI)
            return _f((angle - k * _PIO2_1) - k * _PIO2_2), _f(k - 4.0 * np.floor(k * 0.25))

        return single

    def double(angle, like):  # type: ignore[no-untyped-def]
        k = np.rint(angle * _TWO_OVER_PI)
        return ((angle - k * _PIO2_1) - k * _PIO2_2) - k * _PIO2_3, k - 4.0 * np.floor(k * 0.25)

    return double


def sin_and_cos(reduced: Any, quadrant: Any) -> tuple[Any, Any]:
    """(sin, cos) of what `quarter_turns` has found."""
    angle = reduced + quadrant * (math.pi / 2)
    return math.sin(angle), math.cos(angle)


@overload(sin_and_cos, jit_options=_OPTIONS, inline="always")
def _(reduced, quadrant):  # type: ignore[no-untyped-def]
    if reduced == types.float32:

        def single(reduced, quadrant):  # type: ignore[no-untyped-def]
            # Beyond every reduction the result is arbitrary, but still a sine.
            above = -_ONE if reduced < -_ONE else reduced
            r = _ONE if above > _ONE else above
            x = r * r
            sine = r + r * x * ((_S3 * x + _S2) * x + _S1)
            cosine = _ONE - _HALF * x + x * x * ((_C3 * x + _C2) * x + _C1)
            # The quadrant decides which is which, and the signs; no branches, they would stop vectorisation.
            odd = abs(quadrant - _TWO) == _ONE
            s = cosine if odd else sine
            c = sine if odd else cosine
            return s if quadrant < _TWO else -s, -c if abs(quadrant - _1_5) < _ONE else c

        return single

    def double(reduced, quadrant):  # type: ignore[no-untyped-def]
        above = -1.0 if reduced < -1.0 else reduced
        r = 1.0 if above > 1.0 else above
        x = r * r
        s = ((_SIN[7] * x + _SIN[6]) * x + _SIN[5]) * x + _SIN[4]
        s = (((s * x + _SIN[3]) * x + _SIN[2]) * x + _SIN[1]) * x + _SIN[0]
        c = ((_COS[6] * x + _COS[5]) * x + _COS[4]) * x + _COS[3]
        c = ((c * x + _COS[2]) * x + _COS[1]) * x + _COS[0]
        sine, cosine = r + r * x * s, 1.0 - 0.5 * x + x * x * c
        odd = abs(quadrant - 2.0) == 1.0
        s = cosine if odd else sine
        c = sine if odd else cosine
        return s if quadrant < 2.0 else -s, -c if abs(quadrant - 1.5) < 1.0 else c

    return double


# Abramowitz and Stegun 7.1.26: erfc(a) = t (A1 + t (A2 + …)) e^(−a²), t = 1/(1 + P a), to 1.5e-7.
_P = _f(0.3275911)
_A1, _A2, _A3, _A4, _A5 = _f(0.254829592), _f(-0.284496736), _f(1.421413741), _f(-1.453152027), _f(1.061405429)
_ZERO, _FAR = _f(0), _f(40)
_ROOT_HALF, _ROOT_HALF_F = math.sqrt(0.5), _f(math.sqrt(0.5))


def normal(x: Any) -> tuple[Any, Any]:
    """(Φ(x), e^(−x²/2)): the normal distribution function, to 1e-7 in float32, and its density without the factor."""
    return 0.5 + 0.5 * math.erf(x * _ROOT_HALF), math.exp(-0.5 * x * x)


@overload(normal, jit_options=_OPTIONS, inline="always")
def _(x):  # type: ignore[no-untyped-def]
    if x == types.float32:

        def single(x):  # type: ignore[no-untyped-def]
            # Beyond e^−40 nothing is left beside one, and subnormal numbers would slow every later product down.
            square = _HALF * x * x
            bell = exp_between(-square) if square < _FAR else _ZERO
            t = _ONE / (_ONE + _P * (abs(x) * _ROOT_HALF_F))
            tail = _HALF * bell * (t * (_A1 + t * (_A2 + t * (_A3 + t * (_A4 + t * _A5)))))
            return tail if x < 0 else _ONE - tail, bell

        return single

    def double(x):  # type: ignore[no-untyped-def]
        return 0.5 + 0.5 * math.erf(x * _ROOT_HALF), math.exp(-0.5 * x * x)

    return double
