"""One observation through a whole model, compiled: no operator is dispatched, nothing is allocated.

Weights lie in one flat array, section behind section; `plan` has a row of sizes and offsets per block, and a last one
for the whole model. The column norms' quadratic forms lie in a second array, in float64. States are planes
(6, block, mode): s, λ and drive. Few arrays are passed, because passing one costs as much as a layer's norm.
"""

import math

import numpy as np

from tides.kernels.cpu.elementary import exp_and_expm1, normal
from tides.kernels.cpu.intervals import BILINEAR, DIRAC, compiled, zoh_forward
from tides.kernels.cpu.intervals import bilinear_forward as bilinear
from tides.kernels.cpu.panels import linear
from tides.kernels.cpu.scratch import borrowed

# Columns of `plan`.
(NORM, DECAY, DECAY_DEPTH, DECAY_SELECTIVE, DECAY_NORMED, FREQUENCY, FREQUENCY_DEPTH, FREQUENCY_SELECTIVE,
 FREQUENCY_NORMED, STEP, STEP_HEAD, DRIVE, DRIVE_KIND, DRIVE_RANK, DRIVE_FORMS, READOUT, READOUT_KIND, READOUT_RANK,
 READOUT_FORMS, SKIP, TAIL, TAIL_WIDTH, PLAN_SIZE) = range(23)  # fmt: skip
# Columns of its last row.
(METHOD, FOLLOWING, REPARAM, NORM_KIND, ENCODER, ENCODER_DEPTH, HEAD, POOL, SCALING, INPUTS, MASKED, GAP_CHANNEL) = (
    range(12)
)
STATIC, LOW_RANK, FULL = 0, 1, 2
BATCH_NORM, LAYER_NORM, RMS_NORM = 0, 1, 2
NO_POOL, MEAN_POOL, LAST_POOL, TIME_POOL = 0, 1, 2, 3
# Numbers of `settings`.
(EPS, NORM_EPS, CLIP, OUTPUT_FACTOR, TIME_SCALE) = range(5)
# What `run_step` says of its input.
FINE, BAD_VALUE, BAD_GAP = 0, 1, 2


@compiled
def _gated(value, gate, n):  # type: ignore[no-untyped-def]
    """value ← value · σ(gate)."""
    one = value.dtype.type(1)
    for j in range(n):
        e, _ = exp_and_expm1(-gate[j])
        value[j] *= one / (one + e)


@compiled
def _residual_blocks(weights, at, depth, x, n, work):  # type: ignore[no-untyped-def]
    """x ← x + (W1 x + b1) ⊙ σ(W2 x + b2), `depth` times."""
    for _ in range(depth):
        at = linear(weights, at, x, n, work[0], n)
        at = linear(weights, at, x, n, work[1], n)
        _gated(work[0], work[1], n)
        for j in range(n):
            x[j] += work[0, j]
    return at


@compiled
def _mode_head(weights, at, depth, selective, normed, eps, u, theta, work):  # type: ignore[no-untyped-def]
    """W g(u) + bias, normalised over the modes; the bias alone if static."""
    n, modes = u.size, theta.size
    if selective == 0:
        theta[:] = weights[at : at + modes]
        return
    features = work[2, :n]
    features[:] = u
    at = _residual_blocks(weights, at, depth, features, n, work)
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
def _reparameterise(theta, kind, clip):  # type: ignore[no-untyped-def]
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
def _code(weights, at, kind, rank, u, code):  # type: ignore[no-untyped-def]
    """z̃ of a mix into `code`: [1], [W_down u + c; 1] or [u; 1]; returns its size and where the kernel begins."""
    if kind == LOW_RANK:
        at = linear(weights, at, u, u.size, code, rank)
    elif kind == FULL:
        code[: u.size] = u
    size = rank + 1
    code[rank] = code.dtype.type(1)
    return size, at


@compiled
def _inverse_rms(forms, at, code, size, precise, inverse):  # type: ignore[no-untyped-def]
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
def _mix(weights, at, code, size, x, n, out, m, coefficients):  # type: ignore[no-untyped-def]
    """out = Σ_i Σ_a code_i x_a K[:, i, a]."""
    for i in range(size):
        row = coefficients[i * n : (i + 1) * n]
        factor = code[i]
        for a in range(n):
            row[a] = factor * x[a]
    linear(weights, at, coefficients, size * n, out, m)


@compiled
def _normalise(kind, weights, at, eps, x, u):  # type: ignore[no-untyped-def]
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
def _known_steps(weights, at, gap, delta, half):  # type: ignore[no-untyped-def]
    """δ of every mode, and δ/2 in float64 for the angle."""
    unit = weights[at : at + delta.size]
    for p in range(delta.size):
        delta[p] = gap * unit[p]
        half[p] = np.float64(gap) * np.float64(unit[p]) * 0.5


@compiled
def _selected_steps(weights, at, u, gap, delta, half):  # type: ignore[no-untyped-def]
    """The same where a head looks at u."""
    modes = delta.size
    at = linear(weights, at, u, u.size, delta, modes)
    for p in range(modes):
        x = delta[p] + gap * weights[at + p]
        delta[p] = x if x > 40 else math.log1p(math.exp(x))
        half[p] = np.float64(delta[p]) * 0.5


@compiled
def _evolve(method, following, begin, end, planes, half, state):  # type: ignore[no-untyped-def]
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
def _block(k, plan, spec, settings, weights, forms, x, gap, states, wide, half, precise):  # type: ignore[no-untyped-def]
    """Block k: norm → SSM → GELU → GLU, added to x (h) in place. `wide` is scratch of rows ≥ every size."""
    n, modes = x.size, states.shape[2]
    begin, end = k * modes, (k + 1) * modes
    flat, planes = states.reshape(6, states.shape[1] * modes), wide[12:18]
    decay, frequency = flat[2, begin:end], flat[3, begin:end]
    real = x.dtype.type
    u, y, inverse, pairs = wide[3, :n], wide[4, :n], wide[5, :n], wide[6, : 2 * modes]
    code, mixed, coefficients, work = wide[7], wide[8], wide[9], wide[:3]
    _normalise(spec[NORM_KIND], weights, plan[NORM], settings[NORM_EPS], x, u)
    if plan[STEP_HEAD]:
        _selected_steps(weights, plan[STEP], u, gap, planes[1, begin:end], half[begin:end])
        if spec[FOLLOWING]:
            _evolve(spec[METHOD], True, begin, end, planes, half, flat)
    _mode_head(
        weights, plan[DECAY], plan[DECAY_DEPTH], plan[DECAY_SELECTIVE], plan[DECAY_NORMED], settings[EPS], u, decay,
        work,
    )  # fmt: skip
    _reparameterise(decay, spec[REPARAM], real(settings[CLIP]))
    _mode_head(
        weights, plan[FREQUENCY], plan[FREQUENCY_DEPTH], plan[FREQUENCY_SELECTIVE], plan[FREQUENCY_NORMED],
        settings[EPS], u, frequency, work,
    )  # fmt: skip
    size, at = _code(weights, plan[DRIVE], plan[DRIVE_KIND], plan[DRIVE_RANK], u, code)
    mixed[:n] = u
    if plan[DRIVE_FORMS] >= 0:
        _inverse_rms(forms, plan[DRIVE_FORMS], code, size, precise, inverse)
        for h in range(n):
            mixed[h] *= inverse[h]
    _mix(weights, at, code, size, mixed, n, pairs, 2 * modes, coefficients)
    for p in range(modes):
        flat[4, begin + p], flat[5, begin + p] = pairs[2 * p], pairs[2 * p + 1]
    if not spec[FOLLOWING]:
        _evolve(spec[METHOD], False, begin, end, planes, half, flat)
        flat[4:, begin:end] = real(0)
    size, at = _code(weights, plan[READOUT], plan[READOUT_KIND], plan[READOUT_RANK], u, code)
    for p in range(modes):
        mixed[2 * p], mixed[2 * p + 1] = flat[0, begin + p], flat[1, begin + p]
    _mix(weights, at, code, size, mixed, 2 * modes, y, n, coefficients)
    if plan[READOUT_FORMS] >= 0:
        _inverse_rms(forms, plan[READOUT_FORMS], code, size, precise, inverse)
        for h in range(n):
            y[h] *= inverse[h]
    factor = real(settings[OUTPUT_FACTOR])
    skip = weights[plan[SKIP] : plan[SKIP] + n]
    for h in range(n):
        y[h] = factor * y[h] + skip[h] * u[h]
    for h in range(n):
        y[h] *= normal(y[h])[0]
    _tail(weights, plan[TAIL], plan[TAIL_WIDTH], y, x, work)


@compiled
def _tail(weights, at, width, y, x, work):  # type: ignore[no-untyped-def]
    """x += W3((W1 y + b1) ⊙ σ(W2 y + b2)) + b3; without hidden units x += b3."""
    n = x.size
    value, gate = work[0], work[1]
    at = linear(weights, at, y, n, value, width)
    at = linear(weights, at, y, n, gate, width)
    _gated(value, gate, width)
    linear(weights, at, value, width, work[2], n)
    for h in range(n):
        x[h] += work[2, h]


@compiled
def _read(spec, settings, weights, x, observed, gap, row):  # type: ignore[no-untyped-def]
    """The encoder's input (values, mask, gap channels), scaled; says whether it is fine."""
    n = x.size
    shift, scale = weights[spec[SCALING] : spec[SCALING] + n], weights[spec[SCALING] + n : spec[SCALING] + 2 * n]
    row[:] = row.dtype.type(0)
    for d in range(n):
        if observed[d]:
            row[d] = (x[d] - shift[d]) / scale[d]
            if not math.isfinite(row[d]):
                return BAD_VALUE
        if spec[MASKED]:
            row[n + d] = 1 if observed[d] else 0
    if spec[GAP_CHANNEL]:
        row[row.size - 1] = gap
    return FINE if 0 <= gap < math.inf else BAD_GAP


@compiled
def run_step(plan, settings, weights, forms, x, observed, gaps, states, held, sums, out, wide, precise):  # type: ignore[no-untyped-def]
    """One observation of every stream: x (b, d), gaps (b) → out (b, …), with states, held and sums updated.

    Nothing has changed when the answer is not `FINE`.
    """
    plan, settings, weights, forms, x, observed, gaps = borrowed((plan, settings, weights, forms, x, observed, gaps))
    states, held, sums, out, wide, precise = borrowed((states, held, sums, out, wide, precise))
    spec, width, blocks, modes = plan[-1], held.shape[1], plan.shape[0] - 1, states.shape[3]
    row, hidden, pooled = wide[10, : spec[INPUTS]], wide[11, :width], wide[4, :width]
    half = precise[2]
    unit = wide.dtype.type(settings[TIME_SCALE])
    for b in range(x.shape[0]):
        problem = _read(spec, settings, weights, x[b], observed[b], gaps[b], row)
        if problem != FINE:
            return problem
    for b in range(x.shape[0]):
        gap = gaps[b] / unit
        _read(spec, settings, weights, x[b], observed[b], gap, row)
        at = _residual_blocks(weights, spec[ENCODER], spec[ENCODER_DEPTH], row, row.size, wide[:3])
        linear(weights, at, row, row.size, hidden, width)
        held[b] = hidden
        if not plan[0, STEP_HEAD]:
            for k in range(blocks):
                at, begin, end = plan[k, STEP], k * modes, (k + 1) * modes
                _known_steps(weights, at, gap, wide[13, begin:end], half[begin:end])
            if spec[FOLLOWING]:
                # The pairs of the last observation acted until now, in every block: nothing of this one is needed.
                _evolve(spec[METHOD], True, 0, blocks * modes, wide[12:18], half, states[b].reshape(6, blocks * modes))
        for k in range(blocks):
            _block(k, plan[k], spec, settings, weights, forms, hidden, gap, states[b], wide, half, precise)
        if spec[POOL] == NO_POOL:
            out[b] = hidden
            continue
        pooled[:] = hidden
        if spec[POOL] != LAST_POOL:
            share = np.float64(gaps[b]) if spec[POOL] == TIME_POOL else 1.0
            sums[b, width] += share
            for h in range(width):
                sums[b, h] += share * hidden[h]
                if sums[b, width] > 0:
                    pooled[h] = sums[b, h] / sums[b, width]
        linear(weights, spec[HEAD], pooled, width, out[b], out.shape[1])
    return FINE
