"""A whole block in two passes over its steps: norm, heads and input mix before the scan; output mix and tail behind it.

`packed` holds one model's weights end to end (`packing.Layout`); several models lie behind each other and are the
grid's second axis. Every pass makes u = x ⊙ scale + shift anew from the block's input, so that x alone is kept for the
backward pass.
"""

import triton
import triton.language as tl

from tides.kernels.triton.launched import launched, launched_by_size
from tides.kernels.triton.product_kernels import halve_rows, inverse_rms, mix, open_matrices, product, split
from tides.kernels.triton.tail_kernels import gelu, load_matrix

STANDARD, EXP, STABLE, SOFTPLUS = 0, 1, 2, 3


@triton.jit
def load_input(
    x, affine, valid, row, live, H: tl.constexpr, HB: tl.constexpr, HAS_VALID: tl.constexpr, AGAIN: tl.constexpr = False
):
    """x (rows, HB), u = x ⊙ scale + shift with zeros outside and over padding, and which rows are kept.

    `AGAIN` frees the registers in between: with another policy the compiler does not take it for the same load.
    """
    h = tl.arange(0, HB)
    policy: tl.constexpr = "evict_first" if AGAIN else ""
    raw = tl.load(x + row[:, None] * H + h[None, :], live[:, None] & (h < H)[None, :], 0.0, eviction_policy=policy)
    scale = tl.load(affine + h, h < H, 0.0)
    shift = tl.load(affine + H + h, h < H, 0.0)
    keep = live
    if HAS_VALID:
        keep = keep & (tl.load(valid + row, live, 0) != 0)
    u = tl.where(keep[:, None], raw * scale[None, :] + shift[None, :], 0.0)
    return raw, u, keep


@triton.jit
def load_down(down, H: tl.constexpr, R: tl.constexpr, HB: tl.constexpr, IB: tl.constexpr, DOWN: tl.constexpr):
    """W_down transposed (HB, IB); the identity for a head of full rank, whose code is u itself."""
    h = tl.arange(0, HB)[:, None]
    i = tl.arange(0, IB)[None, :]
    if DOWN:
        return tl.load(down + i * H + h, (i < R) & (h < H), 0.0)
    else:
        return ((i == h) & (h < H)).to(tl.float32)


@triton.jit
def project_code(
    u, weight, down, H: tl.constexpr, R: tl.constexpr, IB: tl.constexpr, DOWN: tl.constexpr, PRECISION: tl.constexpr
):
    """z̃ = [W_down u + c; 1] as a tile (rows, IB), from the halves of u."""
    i = tl.arange(0, IB)
    code = product(u, split(weight), PRECISION)
    if DOWN:
        code += tl.load(down + R * H + i, i < R, 0.0)[None, :]
    return tl.where((i == R)[None, :], 1.0, code)


@triton.jit
def rates(normed, limit, REPARAM: tl.constexpr, CLIPPED: tl.constexpr):
    """Re λ = ρ(θ) and dρ/dθ."""
    if REPARAM == 0:
        rate = normed
        slope = normed * 0.0 + 1.0
    elif REPARAM == 1:
        rate = -tl.exp(normed)
        slope = rate
    elif REPARAM == 2:
        rate = -1.0 / (normed * normed + 0.5)
        slope = 2.0 * normed * rate * rate
    else:
        e = tl.exp(tl.minimum(normed, 40.0))
        series = e * (
            1.0 + e * (-0.5 + e * (0.33333333 + e * (-0.25 + e * (0.2 + e * (-0.16666667 + e * 0.14285714)))))
        )
        rate = -tl.where(normed > 40.0, normed, tl.where(e < 0.1, series, tl.log(1.0 + e)))
        slope = -tl.sigmoid(normed)
    if CLIPPED:
        slope = tl.where(rate <= limit, slope, 0.0)
        rate = tl.minimum(rate, limit)
    return rate, slope


@triton.jit
def decay_head(
    u, weight, packed, eps, limit, H: tl.constexpr, P: tl.constexpr, PB: tl.constexpr, RATE_NORM: tl.constexpr,
    REPARAM: tl.constexpr, CLIPPED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The linear map θ (rows, PB), its inverse rms (rows), the norm's weight, Re λ and dρ/dθ.

    From the halves of u and of the transposed weight.
    """
    mode = tl.arange(0, PB)
    theta = product(u, weight, PRECISION)
    theta += tl.load(packed + P * H + mode, mode < P, 0.0)[None, :]
    inverse = tl.sum(theta, axis=1) * 0.0 + 1.0
    scale = mode.to(tl.float32) * 0.0 + 1.0
    normed = theta
    if RATE_NORM:
        inverse = tl.rsqrt(tl.sum(theta * theta, axis=1) / P + eps)
        scale = tl.load(packed + P * H + P + mode, mode < P, 0.0)
        normed = theta * inverse[:, None] * scale[None, :]
    rate, slope = rates(normed, limit, REPARAM, CLIPPED)
    return theta, inverse, scale, rate, slope


@triton.jit
def load_state(
    s, backward_s, row, live, P2: tl.constexpr, OB: tl.constexpr, BOTH: tl.constexpr
):  # fmt: skip
    """The planes of s (rows, OB) with the im parts negated; the backward direction's behind the forward one's."""
    o = tl.arange(0, OB)
    at = row[:, None] * P2 + o[None, :]
    tile = tl.load(s + at, live[:, None] & (o < P2)[None, :], 0.0)
    if BOTH:
        behind = (o >= P2) & (o < 2 * P2)
        tile += tl.load(backward_s + at - P2, live[:, None] & behind[None, :], 0.0)
    return tl.where((o % 2 == 1)[None, :], -tile, tile)


@triton.jit
def kept(seed, salt, row, WIDTH: tl.constexpr, DROP: tl.constexpr):
    """Dropout's factors (rows, WIDTH): 1/(1 − p) where a unit is kept, 0 elsewhere; the same on every visit."""
    key = (tl.load(seed) * 1073741824.0).to(tl.int32) + salt
    at = row[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    return tl.where(tl.rand(key, at.to(tl.int32)) >= DROP, 1.0 / (1.0 - DROP), 0.0)


@launched
def enter_kernel(
    x, affine, valid, packed, kernel, root, decay, drive, N, start, W, at_down, eps, limit,
    H: tl.constexpr, P: tl.constexpr, R: tl.constexpr, HB: tl.constexpr, PB: tl.constexpr, OB: tl.constexpr,
    IB: tl.constexpr, BM: tl.constexpr, COUNT: tl.constexpr, ROOTS: tl.constexpr, STAGES: tl.constexpr,
    DOWN: tl.constexpr, NORM: tl.constexpr, RATE_NORM: tl.constexpr, REPARAM: tl.constexpr, CLIPPED: tl.constexpr,
    HAS_VALID: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Decay rates (n, p) and drives (n, 2p) of a block of steps; they begin with the part, at the row `start`."""
    model = tl.program_id(1).to(tl.int64)
    row = start + tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    live = row < N
    row += model * N
    packed += model * W
    decay -= start.to(tl.int64) * P
    drive -= start.to(tl.int64) * (2 * P)
    _, u, keep = load_input(x, affine + model * 2 * H, valid, row, live, H, HB, HAS_VALID)
    halves = split(u)
    mode = tl.arange(0, PB)
    weight = split(tl.trans(load_matrix(packed, mode, tl.arange(0, HB), P, H)))
    _, _, _, rate, _ = decay_head(halves, weight, packed, eps, limit, H, P, PB, RATE_NORM, REPARAM, CLIPPED, PRECISION)
    tl.store(decay + row[:, None] * P + mode[None, :], rate, live[:, None] & (mode < P)[None, :])

    down = packed + at_down
    code = project_code(halves, load_down(down, H, R, HB, IB, DOWN), down, H, R, IB, DOWN, PRECISION)
    scaled = u
    if NORM:
        scaled = u * inverse_rms(code, root, model, eps, R, ROOTS, STAGES, IB, HB, PRECISION)
    matrices, units = open_matrices(kernel, model, (R + 1) * OB * HB, HB)
    halves, unit = halve_rows(scaled * units)
    v = mix(halves, code, matrices, R, COUNT, STAGES, HB, OB, IB, PRECISION) * unit
    o = tl.arange(0, OB)
    v = tl.where(keep[:, None], v, 0.0)
    tl.store(drive + row[:, None] * (2 * P) + o[None, :], v, live[:, None] & (o < 2 * P)[None, :])


@triton.jit
def read_out(
    halves, packed, mirror, root, s, backward_s, model, row, live, at_down, eps,
    H: tl.constexpr, P: tl.constexpr, R: tl.constexpr, HB: tl.constexpr, OB: tl.constexpr, IB: tl.constexpr,
    COUNT: tl.constexpr, ROOTS: tl.constexpr, STAGES: tl.constexpr, DOWN: tl.constexpr, NORM: tl.constexpr,
    BOTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Re(C s) of a block of steps (rows, HB), with the code z̃ and the inverse norms ρ that it was made with."""
    # Loaded before the first barrier, the states wait for memory together with x.
    v, unit = halve_rows(load_state(s, backward_s, row, live, 2 * P, OB, BOTH))
    down = packed + at_down
    code = project_code(halves, load_down(down, H, R, HB, IB, DOWN), down, H, R, IB, DOWN, PRECISION)
    matrices, units = open_matrices(mirror, model, (R + 1) * HB * OB, HB)
    y = mix(v, code, matrices, R, COUNT, STAGES, OB, HB, IB, PRECISION) * unit * units
    rho = tl.zeros_like(y) + 1.0
    if NORM:
        rho = inverse_rms(code, root, model, eps, R, ROOTS, STAGES, IB, HB, PRECISION)
    return y * rho, code, rho


@launched_by_size
def leave_kernel(
    x, affine, valid, packed, mirror, root, s, backward_s, seed, out, N, W, at_down, at_skip, eps, factor,
    H: tl.constexpr, P: tl.constexpr, R: tl.constexpr, F: tl.constexpr, HB: tl.constexpr, FB: tl.constexpr,
    OB: tl.constexpr, IB: tl.constexpr, BM: tl.constexpr, COUNT: tl.constexpr, ROOTS: tl.constexpr,
    STAGES: tl.constexpr, DOWN: tl.constexpr, NORM: tl.constexpr, BOTH: tl.constexpr, HAS_VALID: tl.constexpr,
    DROP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """x + GLU(GELU(Re(C s) + skip ⊙ u)) of a block of steps; `factor` is 2 for conjugate halves."""
    model = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    live = row < N
    row += model * N
    packed += model * W
    _, u, _ = load_input(x, affine + model * 2 * H, valid, row, live, H, HB, HAS_VALID)
    y, _, _ = read_out(
        split(u), packed, mirror, root, s, backward_s, model, row, live, at_down, eps, H, P, R, HB, OB, IB, COUNT,
        ROOTS, STAGES, DOWN, NORM, BOTH, PRECISION,
    )  # fmt: skip
    raw, u, keep = load_input(x, affine + model * 2 * H, valid, row, live, H, HB, HAS_VALID, AGAIN=True)
    h = tl.arange(0, HB)
    f = tl.arange(0, FB)
    tail = packed + at_skip
    y = y * factor + u * tl.load(tail + h, h < H, 0.0)[None, :]
    y = tl.where(keep[:, None], y, 0.0)
    tail += H
    activated, _ = gelu(y)
    if DROP > 0:
        activated = activated * kept(seed + model, 0, row, HB, DROP)
    halves = split(activated)
    linear = product(halves, split(tl.trans(load_matrix(tail, f, h, F, H))), PRECISION)
    linear += tl.load(tail + F * H + f, f < F, 0.0)[None, :]
    tail += F * H + F
    gating = product(halves, split(tl.trans(load_matrix(tail, f, h, F, H))), PRECISION)
    gating = tl.sigmoid(gating + tl.load(tail + F * H + f, f < F, 0.0)[None, :])
    tail += F * H + F
    added = product(split(linear * gating), split(tl.trans(load_matrix(tail, h, f, H, F))), PRECISION)
    added += tl.load(tail + H * F + h, h < H, 0.0)[None, :]
    if DROP > 0:
        added = added * kept(seed + model, 1, row, HB, DROP)
    tl.store(out + row[:, None] * H + h[None, :], raw + added, live[:, None] & (h < H)[None, :])
