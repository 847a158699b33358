"""Elementary functions inside kernels: accurate in float32 for every argument, and free of library calls.

sin and cos reduce their argument by quarter turns (|Im λ| δ reaches thousands of radians).
expm1 and φ₂ are Taylor polynomials near zero, where the textbook forms cancel; φ₁ is made from expm1.
"""

import triton
import triton.language as tl


@triton.jit
def circle(x):
    """(1 − cos x, sin x, cos x), all accurate near zero, from sine and cosine of half the angle.

    That is reduced by quarter turns, of which every odd one changes signs. Of arguments beyond 2^22 no phase is left in
    float32; they only stay finite.
    """
    # Next to 3 · 2²² floats are integers, and what they end with is the number of turns.
    shifted = x * 0.31830989 + 12582912.0
    turns = shifted - 12582912.0
    # π/2 in three parts, the first two so short that their products with fewer than 2^13 turns are exact.
    r = ((x * 0.5 - turns * 1.5703125) - turns * 4.837512969970703e-4) - turns * 7.549789948768648e-8
    r = tl.minimum(tl.maximum(r, -0.7853982), 0.7853982)
    r2 = r * r
    s = r + r * r2 * (-1.6666654e-1 + r2 * (8.332151e-3 - r2 * 1.951398e-4))
    c = 1.0 + r2 * (-0.5 + r2 * (4.1666623e-2 + r2 * (-1.3886747e-3 + r2 * 2.4388817e-5)))
    twice = s + s
    versine = twice * s
    odd = shifted.to(tl.int32, bitcast=True)
    return (
        tl.where((odd & 1) != 0, 2.0 - versine, versine),
        turned(twice * c, odd),
        turned(1.0 - versine, odd),
    )


@triton.jit
def turned(x, odd):
    """−x where the last bit is set: it becomes x's sign."""
    return (x.to(tl.int32, bitcast=True) ^ (odd << 31)).to(tl.float32, bitcast=True)


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
    series = x + x * x * (0.5 + x * (1.6666538e-1 + x * (4.1666266e-2 + x * (8.3672395e-3 + x * 1.3947585e-3))))
    return tl.where(tl.abs(x) < 0.3, series, tl.exp(x) - 1.0)


@triton.jit
def exponentials(zr, zi):
    """e^z − 1 = expm1(a) cos b − (1 − cos b) + i e^a sin b, and e^z.

    Adding 1 to the first would leave the second with an absolute error, which long intervals multiply. Near e^a = 1 it
    is the better way: the sum is rounded once, and a long memory multiplies what the device's own e^a is off by.
    """
    growth = expm1_real(zr)
    size = tl.where(tl.abs(zr) < 0.3, 1.0 + growth, tl.exp(zr))
    versine, sine, cosine = circle(zi)
    return growth * cosine - versine, (growth + 1.0) * sine, size * cosine, size * sine


@triton.jit
def multiply(ar, ai, br, bi):
    return ar * br - ai * bi, ar * bi + ai * br


@triton.jit
def phi1(zr, zi, er, ei):
    """φ₁(z) = (e^z − 1)/z, given e^z − 1, which is accurate near zero."""
    square = zr * zr + zi * zi
    tiny = square < 1e-30
    # Not 1 / x: a division is prepared for numbers of any size.
    root = tl.rsqrt(tl.where(tiny, 1.0, square))
    inverse = root * root
    fr = (er * zr + ei * zi) * inverse
    fi = (ei * zr - er * zi) * inverse
    return tl.where(tiny, 1.0, fr), fi


@triton.jit
def phi1_slope(zr, zi, ar, ai, pr, pi):
    """φ₁'(z) = (e^z − φ₁)/z, given e^z and φ₁; near zero Σ (n+1) zⁿ/(n+2)!."""
    square = zr * zr + zi * zi
    # Real coefficients: Horner's scheme for the remainder by t² − 2 Re(z) t + |z|², which is 0 at t = z.
    twice = 2.0 * zr
    e = twice * 1.1904762e-3 + 6.9444444e-3
    d = twice * e + (3.3333333e-2 - square * 1.1904762e-3)
    c = twice * d + (1.25e-1 - square * e)
    b = twice * c + (3.3333333e-1 - square * d)
    small = square < 0.09
    root = tl.rsqrt(tl.where(small, 1.0, square))
    inverse = root * root
    dr = ar - pr
    di = ai - pi
    return (
        tl.where(small, zr * b + (0.5 - square * c), (dr * zr + di * zi) * inverse),
        tl.where(small, zi * b, (di * zr - dr * zi) * inverse),
    )
