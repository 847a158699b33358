"""Elementary functions inside kernels: accurate in float32 for every argument, and free of library calls.

sin and cos reduce their argument in float64 where float32 does not suffice (|Im λ| δ reaches thousands of radians).
expm1 and φ₂ are Taylor polynomials near zero, where the textbook forms cancel; φ₁ is made from expm1.
"""

import triton
import triton.language as tl


@triton.jit
def sincos(x):
    """(sin x, cos x): reduction by quarter turns, then polynomials for |r| ≤ π/4."""
    # Next to 3 · 2²² floats are integers, and what they end with is the number of turns.
    shifted = x * 0.63661977 + 12582912.0
    turns = shifted - 12582912.0
    quadrant = shifted.to(tl.int32, bitcast=True)
    # π/2 in three parts, the first two so short that their products with fewer than 2^13 turns are exact.
    r = ((x - turns * 1.5703125) - turns * 4.837512969970703e-4) - turns * 7.549789948768648e-8
    # As integers, which a warp compares in one instruction.
    if tl.max((tl.abs(x) > 12866.0).to(tl.int32)) > 0:
        wide = x.to(tl.float64)
        many = tl.floor(wide * 0.6366197723675814 + 0.5)
        r = ((wide - many * 1.5707963267948966) - many * 6.123233995736766e-17).to(tl.float32)
        quadrant = (many - 4.0 * tl.floor(many * 0.25)).to(tl.int32)
        # Arguments beyond float64's resolution of a radian have no phase left; they must only stay finite.
        r = tl.minimum(tl.maximum(r, -1.0), 1.0)
    r2 = r * r
    sine = r + r * r2 * (-1.6666667e-1 + r2 * (8.3333333e-3 + r2 * (-1.9841270e-4 + r2 * 2.7557319e-6)))
    cosine = 1.0 + r2 * (-0.5 + r2 * (4.1666667e-2 + r2 * (-1.3888889e-3 + r2 * (2.4801587e-5 - r2 * 2.7557319e-7))))
    odd = (quadrant & 1) != 0
    return turned(tl.where(odd, cosine, sine), quadrant), turned(tl.where(odd, sine, cosine), quadrant + 1)


@triton.jit
def turned(x, quadrant):
    """−x in every second pair of quadrants: their second bit is x's sign."""
    return (x.to(tl.int32, bitcast=True) ^ ((quadrant & 2) << 30)).to(tl.float32, bitcast=True)


@triton.jit
def accurate_exp(x):
    """e^x to about one unit in the last place; the device's own is off by about |x| of them."""
    halvings = tl.floor(x * 1.4426950 + 0.5)
    # ln 2 in two parts, the first so short that its products are exact.
    r = (x - halvings * 0.693359375) + halvings * 2.1219444e-4
    series = 1.0 + r * (
        1.0
        + r
        * (0.5 + r * (1.6666667e-1 + r * (4.1666667e-2 + r * (8.3333333e-3 + r * (1.3888889e-3 + r * 1.9841270e-4)))))
    )
    return series * tl.exp2(halvings)


@triton.jit
def expm1_real(x):
    """e^x − 1."""
    series = x * (
        1.0
        + x
        * (0.5 + x * (1.6666667e-1 + x * (4.1666667e-2 + x * (8.3333333e-3 + x * (1.3888889e-3 + x * 1.9841270e-4)))))
    )
    return tl.where(tl.abs(x) < 0.3, series, tl.exp(x) - 1.0)


@triton.jit
def exponentials(zr, zi):
    """e^z − 1 = expm1(a)(1 − 2σ²) − 2σ² + i e^a 2σ cos(b/2), σ = sin(b/2), and e^z.

    Adding 1 to the first would leave the second with an absolute error, which long intervals multiply. Near e^a = 1 it
    is the better way: the sum is rounded once, and a long memory multiplies what the device's own e^a is off by.
    """
    growth = expm1_real(zr)
    size = tl.where(tl.abs(zr) < 0.3, 1.0 + growth, tl.exp(zr))
    s, c = sincos(zi * 0.5)
    versine = 2.0 * s * s
    sine = 2.0 * s * c
    return growth * (1.0 - versine) - versine, (growth + 1.0) * sine, size * (1.0 - versine), size * sine


@triton.jit
def multiply(ar, ai, br, bi):
    return ar * br - ai * bi, ar * bi + ai * br


@triton.jit
def phi1(zr, zi, er, ei):
    """φ₁(z) = (e^z − 1)/z, given e^z − 1, which is accurate near zero."""
    square = zr * zr + zi * zi
    tiny = square < 1e-30
    inverse = 1.0 / tl.where(tiny, 1.0, square)
    fr = (er * zr + ei * zi) * inverse
    fi = (ei * zr - er * zi) * inverse
    return tl.where(tiny, 1.0, fr), fi


@triton.jit
def phi1_slope(zr, zi, ar, ai, pr, pi):
    """φ₁'(z) = (e^z − φ₁)/z, given e^z and φ₁; near zero φ₁ − φ₂ with φ₂(z) = Σ zⁿ/(n+2)!."""
    square = zr * zr + zi * zi
    small = square < 0.25
    nr = tl.where(small, zr, 0.0)
    ni = tl.where(small, zi, 0.0)
    # Real coefficients: Horner's scheme for the remainder by t² − 2 Re(z) t + |z|², which is 0 at t = z.
    twice = 2.0 * nr
    size = tl.where(small, square, 0.0)
    last = nr * 0.0 + 2.0876757e-9
    b = twice * last + 2.5052108e-8
    last, b = b, twice * b + (2.7557319e-7 - size * last)
    last, b = b, twice * b + (2.7557319e-6 - size * last)
    last, b = b, twice * b + (2.4801587e-5 - size * last)
    last, b = b, twice * b + (1.9841270e-4 - size * last)
    last, b = b, twice * b + (1.3888889e-3 - size * last)
    last, b = b, twice * b + (8.3333333e-3 - size * last)
    last, b = b, twice * b + (4.1666667e-2 - size * last)
    last, b = b, twice * b + (1.6666667e-1 - size * last)
    qr = nr * b + (0.5 - size * last)
    qi = ni * b
    inverse = 1.0 / tl.where(small, 1.0, square)
    dr = ar - pr
    di = ai - pi
    fr = (dr * zr + di * zi) * inverse
    fi = (di * zr - dr * zi) * inverse
    return tl.where(small, pr - qr, fr), tl.where(small, pi - qi, fi)
