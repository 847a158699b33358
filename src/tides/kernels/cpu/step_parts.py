"""The parts of a block for one observation, compiled: heads, mixes, norms, intervals and the tail.

Each reads its weights from one flat array, beginning at an offset. Which parts a model has, and where their weights
lie, is for `step_loops` to know.
"""

import math

import numpy as np

from tides.kernels.cpu.elementary import exp_and_expm1
from tides.kernels.cpu.intervals import BILINEAR, DIRAC, compiled, zoh_forward
from tides.kernels.cpu.intervals import bilinear_forward as bilinear
from tides.kernels.cpu.panels import linear

# Kinds of mixes and of norms.
STATIC, LOW_RANK, FULL = 0, 1, 2
BATCH_NORM, LAYER_NORM, RMS_NORM = 0, 1, 2


@compiled
def _gated(value, gate, n):  # type: ignore[no-untyped-def]
    """value ← value · σ(gate)."""
    one = value.dtype.type(1)
    for j in range(n):
        e, _ = exp_and_expm1(-gate[j])
        value[j] *= one / (one + e)


@compiled
def residual_blocks(weights, at, depth, x, n, work):  # type: ignore[no-untyped-def]
    """x ← x + (W1 x + b1) ⊙ σ(W2 x + b2), `depth` times."""
    for _ in range(depth):
        at = linear(weights, at, x, n, work[0], n)
        at = linear(weights, at, x, n, work[1], n)
        _gated(work[0], work[1], n)
        for j in range(n):
            x[j] += work[0, j]
    return at


@compiled
def mode_head(weights, at, depth, selective, normed, eps, u, theta, work):  # type: ignore[no-untyped-def]
    """W g(u) + bias, normalised over the modes; the bias alone if static."""
    n, modes = u.size, theta.size
    if selective == 0:
        theta[:] = weights[at : at + modes]
        return
    features = work[2, :n]
    features[:] = u
    at = residual_blocks(weights, at, depth, features, n, work)
    at = linear(weights, at, features, n, theta, modes)
    if normed:
        square = theta.dtype.type(0)
        for p in range(modes):
            square += theta[p] * theta[p]
        scale = theta.dtype.type(1.0 / math.sqrt(square / modes + eps))
        norm = weights[at : at + modes]
        for p in range(modes):
            theta[p] *= scale * norm[p]


@compiled
def reparameterise(theta, kind, clip):  # type: ignore[no-untyped-def]
    """Re λ = ρ(θ) in the order of `REPARAMS`: standard, exp, stable, softplus."""
    real = theta.dtype.type
    for p in range(theta.size):
        x = theta[p]
        if kind == 1:
            x = -exp_and_expm1(x)[0]
        elif kind == 2:
            x = real(-1) / (x * x + real(0.5))
        elif kind == 3:
            x = -(x if x > real(40) else real(math.log1p(math.exp(x))))
        theta[p] = min(x, clip)


@compiled
def make_code(weights, at, kind, rank, u, code):  # type: ignore[no-untyped-def]
    """z̃ of a mix into `code`: [1], [W_down u + c; 1] or [u; 1]; returns its size and where the kernel begins."""
    if kind == LOW_RANK:
        at = linear(weights, at, u, u.size, code, rank)
    elif kind == FULL:
        code[: u.size] = u
    size = rank + 1
    code[rank] = code.dtype.type(1)
    return size, at


@compiled
def inverse_rms(forms, at, code, size, precise, inverse):  # type: ignore[no-untyped-def]
    """1/√(z̃ᵀ G_h z̃ + eps) for every column h, in float64 up to the root; a form per column, i ≤ j row by row."""
    n, count, real = inverse.size, size * (size + 1) // 2, inverse.dtype.type
    one = real(1)
    monomials, square, factors = precise[0], precise[1], precise[3, :size]
    for i in range(size):
        factors[i] = code[i]
    end = 0
    for i in range(size):
        others = factors[i:]
        begin, end = end, end + others.size
        row = monomials[begin:end]
        for j in range(others.size):
            row[j] = factors[i] * others[j]
    linear(forms, at, monomials, count, square, n)
    for h in range(n):
        inverse[h] = one / real(math.sqrt(square[h]))


@compiled
def apply_mix(weights, at, code, size, x, n, out, m, coefficients):  # type: ignore[no-untyped-def]
    """out = Σ_i Σ_a code_i x_a K[:, i, a]."""
    for i in range(size):
        row = coefficients[i * n : (i + 1) * n]
        factor = code[i]
        for a in range(n):
            row[a] = factor * x[a]
    linear(weights, at, coefficients, size * n, out, m)


@compiled
def normalise(kind, weights, at, eps, x, u):  # type: ignore[no-untyped-def]
    """The block's norm: an affine map of the running statistics, or of the row itself."""
    n = u.size
    if kind == BATCH_NORM:
        factor, shift = weights[at : at + n], weights[at + n : at + 2 * n]
        for h in range(n):
            u[h] = x[h] * factor[h] + shift[h]
        return
    mean, square = 0.0, 0.0
    if kind == LAYER_NORM:
        for h in range(n):
            mean += x[h]
        mean /= n
    for h in range(n):
        square += (x[h] - mean) ** 2
    scale = 1.0 / math.sqrt(square / n + eps)
    for h in range(n):
        u[h] = (x[h] - mean) * scale


@compiled
def known_steps(weights, at, gap, delta, half):  # type: ignore[no-untyped-def]
    """δ of every mode, and δ/2 in float64 for the angle."""
    unit = weights[at : at + delta.size]
    for p in range(delta.size):
        delta[p] = gap * unit[p]
        half[p] = np.float64(gap) * np.float64(unit[p]) * 0.5


@compiled
def selected_steps(weights, at, u, gap, delta, half):  # type: ignore[no-untyped-def]
    """The same where a head looks at u."""
    modes = delta.size
    at = linear(weights, at, u, u.size, delta, modes)
    for p in range(modes):
        x = delta[p] + gap * weights[at + p]
        delta[p] = x if x > 40 else math.log1p(math.exp(x))
        half[p] = np.float64(delta[p]) * 0.5


@compiled
def evolve(method, following, begin, end, planes, half, state):  # type: ignore[no-untyped-def]
    """s ← λ̄ s + gain v of the modes from begin to end, with their (λ, v) in the state; planes 1 holds δ."""
    growth, delta, angle = planes[0, begin:end], planes[1, begin:end], half[begin:end]
    bar_re, bar_im = planes[2, begin:end], planes[3, begin:end]
    gain_re, gain_im = planes[4, begin:end], planes[5, begin:end]
    for p in range(begin, end):
        planes[0, p] = state[2, p] * planes[1, p]
        half[p] *= np.float64(state[3, p])
    if method == BILINEAR:
        bilinear(end - begin, growth, angle, delta, bar_re, bar_im, gain_re, gain_im)
    else:
        zoh_forward(end - begin, growth, angle, delta, bar_re, bar_im, gain_re, gain_im)
    if method == DIRAC:
        for p in range(end - begin):
            gain_re[p] = bar_re[p] if following else state.dtype.type(1)
            gain_im[p] = bar_im[p] if following else state.dtype.type(0)
    for p in range(begin, end):
        re, im, v, w = state[0, p], state[1, p], state[4, p], state[5, p]
        state[0, p] = planes[2, p] * re - planes[3, p] * im + planes[4, p] * v - planes[5, p] * w
        state[1, p] = planes[2, p] * im + planes[3, p] * re + planes[4, p] * w + planes[5, p] * v


@compiled
def let_pass(method, begin, end, planes, half, state):  # type: ignore[no-untyped-def]
    """The same under "following" without an observation at the end: an impulse acts once any time has passed."""
    if method == DIRAC:
        for p in range(begin, end):
            if planes[1, p] == 0:
                state[4, p] = state[5, p] = state.dtype.type(0)
    evolve(method, True, begin, end, planes, half, state)


@compiled
def add_tail(weights, at, width, y, x, work):  # type: ignore[no-untyped-def]
    """x += W3((W1 y + b1) ⊙ σ(W2 y + b2)) + b3; without hidden units x += b3."""
    n = x.size
    value, gate = work[0], work[1]
    at = linear(weights, at, y, n, value, width)
    at = linear(weights, at, y, n, gate, width)
    _gated(value, gate, width)
    linear(weights, at, value, width, work[2], n)
    for h in range(n):
        x[h] += work[2, h]
