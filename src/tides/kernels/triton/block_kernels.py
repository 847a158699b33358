"""A whole block in two passes over its steps: norm, heads and input mix before the scan; output mix and tail behind it.

`packed` holds one model's weights end to end (`packing.Layout`); several models lie behind each other and are the
grid's second axis. Every pass makes u = x ⊙ scale + shift anew from the block's input, so that x alone is kept for the
backward pass. A program goes through many tiles of steps with the weights in shared memory (`tile_kernels` says how
steps lie in it); where a mix is too large for that, each tile fetches its matrices.
"""

import triton
import triton.language as tl

from tides.kernels.triton.launched import launched
from tides.kernels.triton.product_kernels import (
    halve_matrix,
    halve_rows,
    inverse_rms,
    load_sets,
    load_vector,
    mix,
    open_matrices,
    product,
    turned,
)
from tides.kernels.triton.tail_kernels import gelu, load_matrix, sigmoid
from tides.kernels.triton.tile_kernels import channels, left_of, load_tile, store_tile

STANDARD, EXP, STABLE, SOFTPLUS = 0, 1, 2, 3


@triton.jit
def load_input(
    x, affine, valid, row, live, H: tl.constexpr, HB: tl.constexpr, HAS_VALID: tl.constexpr
):  # fmt: skip
    """u = x ⊙ scale + shift (rows, HB) with its channels one after the other, zeros outside and over padding."""
    h = tl.arange(0, HB)
    raw = tl.load(x + row[:, None] * H + h[None, :], live[:, None] & (h < H)[None, :], 0.0)
    scale = tl.load(affine + h, h < H, 0.0)
    shift = tl.load(affine + H + h, h < H, 0.0)
    keep = live
    if HAS_VALID:
        keep = keep & (tl.load(valid + row, live, 0) != 0)
    return tl.where(keep[:, None], raw * scale[None, :] + shift[None, :], 0.0)


@triton.jit
def load_steps(
    x, affine, valid, first, stop, H: tl.constexpr, HB: tl.constexpr, BM: tl.constexpr, HAS_VALID: tl.constexpr,
    AGAIN: tl.constexpr = False,
):  # fmt: skip
    """A tile of x, of u = x ⊙ scale + shift with zeros outside and over padding, and which rows are kept."""
    raw = load_tile(x, first, stop, H, BM, HB, AGAIN=AGAIN)
    u, keep = normalise(raw, affine, valid, first, stop, H, HB, BM, HAS_VALID)
    return raw, u, keep


@triton.jit
def normalise(
    raw, affine, valid, first, stop, H: tl.constexpr, HB: tl.constexpr, BM: tl.constexpr, HAS_VALID: tl.constexpr
):  # fmt: skip
    """u and the kept rows of a tile of x."""
    h = channels(HB)
    scale = tl.load(affine + h, h < H, 0.0)
    shift = tl.load(affine + H + h, h < H, 0.0)
    row = tl.arange(0, BM)
    keep = row < left_of(first, stop, BM)
    if HAS_VALID:
        keep = keep & (tl.load(valid + first + row, keep, 0) != 0)
    return tl.where(keep[:, None], raw * scale[None, :] + shift[None, :], 0.0), keep


@triton.jit
def load_down(down, H: tl.constexpr, R: tl.constexpr, HB: tl.constexpr, IB: tl.constexpr, DOWN: tl.constexpr):
    """The halves of W_down (IB, HB) and their unit; the identity for a head of full rank, whose code is u itself."""
    h = channels(HB)
    i = channels(IB)
    if DOWN:
        return halve_matrix(load_matrix(down, i, h, R, H))
    else:
        return halve_matrix(((i[:, None] == h[None, :]) & (h < H)[None, :]).to(tl.float32))


@triton.jit
def project_code(
    u, unit, weight, weight_unit, down, H: tl.constexpr, R: tl.constexpr, IB: tl.constexpr, DOWN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """z̃ = [W_down u + c; 1] as a tile (rows, IB), from the halves of u and of W_down."""
    i = channels(IB)
    code = product(u, turned(weight), PRECISION) * (unit * weight_unit)
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
    u, unit, weight, weight_unit, packed, eps, limit, H: tl.constexpr, P: tl.constexpr, PB: tl.constexpr,
    RATE_NORM: tl.constexpr, REPARAM: tl.constexpr, CLIPPED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The linear map θ (rows, PB), its inverse rms (rows), the norm's weight, Re λ and dρ/dθ.

    From the halves of u and of the weight (PB, HB).
    """
    mode = channels(PB)
    theta = product(u, turned(weight), PRECISION) * (unit * weight_unit)
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
    s, backward_s, first, stop, P2: tl.constexpr, OB: tl.constexpr, BM: tl.constexpr, BOTH: tl.constexpr
):  # fmt: skip
    """The planes of s (rows, OB); the backward direction's behind the forward one's."""
    tile = load_tile(s, first, stop, P2, BM, OB)
    if BOTH:
        tile += load_tile(backward_s, first, stop, P2, BM, OB, SHIFT=P2)
    return tile


@triton.jit
def signed(states, OB: tl.constexpr):
    """Planes with the im parts negated."""
    return tl.where((channels(OB) % 2 == 1)[None, :], -states, states)


@triton.jit
def kept(seed, salt, row, channel, DROP: tl.constexpr):
    """Dropout's factors of the channels: 1/(1 − p) where a unit is kept, 0 elsewhere; the same on every visit."""
    key = (tl.load(seed) * 1073741824.0).to(tl.int32) + salt
    at = row[:, None] * channel.shape[0] + channel[None, :]
    return tl.where(tl.rand(key, at.to(tl.int32)) >= DROP, 1.0 / (1.0 - DROP), 0.0)


@launched
def enter_kernel(
    x, affine, valid, packed, kernel, root, decay, drive, N, start, W, tiles, at_down, eps, limit,
    H: tl.constexpr, P: tl.constexpr, R: tl.constexpr, HB: tl.constexpr, PB: tl.constexpr, OB: tl.constexpr,
    IB: tl.constexpr, BM: tl.constexpr, COUNT: tl.constexpr, ROOTS: tl.constexpr, STAGES: tl.constexpr,
    RESIDENT: tl.constexpr, DOWN: tl.constexpr, NORM: tl.constexpr, RATE_NORM: tl.constexpr, REPARAM: tl.constexpr,
    CLIPPED: tl.constexpr, HAS_VALID: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Decay rates (n, p) and drives (n, 2p) of a part of the batch, which begins at the row `start`."""
    program = tl.program_id(0).to(tl.int64)
    model = tl.program_id(1).to(tl.int64)
    stop = N - start
    begin = model * N + start
    packed += model * W
    affine += model * 2 * H
    x += begin * H
    valid += begin
    decay += model * N * P
    drive += model * N * (2 * P)
    down = packed + at_down
    weight, weight_unit = halve_matrix(load_matrix(packed, channels(PB), channels(HB), P, H))
    code_weight, code_unit = load_down(down, H, R, HB, IB, DOWN)
    matrices, vectors = open_matrices(kernel, model, (R + 1) * OB * HB, HB)
    sets = load_sets(matrices, R, R + 1, COUNT, HB, OB, RESIDENT)
    roots, root_vectors = open_matrices(root, model, (R + 1) * HB * IB, HB)
    root_sets = load_sets(roots, R, R, ROOTS, IB, HB, RESIDENT and NORM)
    # All matrices are there; else the compiler would have all warps wait for each other in every tile.
    tl.debug_barrier()
    for tile in tl.range(tiles, num_stages=1, disable_licm=True):
        first = (program * tiles + tile) * BM
        _, u, keep = load_steps(x, affine, valid, first, stop, H, HB, BM, HAS_VALID)
        halves, unit = halve_rows(u)
        _, _, _, rate, _ = decay_head(
            halves, unit, weight, weight_unit, packed, eps, limit, H, P, PB, RATE_NORM, REPARAM, CLIPPED, PRECISION
        )
        store_tile(decay, rate, first, stop, P, P)
        code = project_code(halves, unit, code_weight, code_unit, down, H, R, IB, DOWN, PRECISION)
        scaled = u
        if NORM:
            z, unit = halve_rows(code)
            rho = inverse_rms(
                z, unit, roots, root_vectors, root_sets, eps, R, ROOTS, STAGES, IB, HB, RESIDENT, PRECISION
            )
            scaled = u * rho
        halves, unit = halve_rows(scaled * load_vector(vectors, HB))
        v = mix(halves, code, matrices, sets, R, COUNT, STAGES, HB, OB, IB, RESIDENT, PRECISION) * unit
        store_tile(drive, tl.where(keep[:, None], v, 0.0), first, stop, 2 * P, 2 * P)


@triton.jit
def read_out(
    halves, unit, code_weight, weight_unit, down, matrices, vectors, sets, roots, root_vectors, root_sets, states, eps,
    H: tl.constexpr, R: tl.constexpr, HB: tl.constexpr, OB: tl.constexpr, IB: tl.constexpr, COUNT: tl.constexpr,
    ROOTS: tl.constexpr, STAGES: tl.constexpr, RESIDENT: tl.constexpr, DOWN: tl.constexpr, NORM: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Re(C s) of a tile of steps (rows, HB), with the code z̃ and the inverse norms ρ that it was made with.

    Behind them the units of the states' rows and of the code's.
    """
    v, state_unit = halve_rows(signed(states, OB))
    code = project_code(halves, unit, code_weight, weight_unit, down, H, R, IB, DOWN, PRECISION)
    y = mix(v, code, matrices, sets, R, COUNT, STAGES, OB, HB, IB, RESIDENT, PRECISION)
    y = y * state_unit * load_vector(vectors, HB)
    rho = tl.zeros_like(y) + 1.0
    z, code_unit = halve_rows(code)
    if NORM:
        rho = inverse_rms(
            z, code_unit, roots, root_vectors, root_sets, eps, R, ROOTS, STAGES, IB, HB, RESIDENT, PRECISION
        )
    return y * rho, code, rho, state_unit, code_unit


@launched
def leave_kernel(
    x, affine, valid, packed, mirror, root, s, backward_s, seed, out, N, W, tiles, at_down, at_skip, eps, factor,
    H: tl.constexpr, P: tl.constexpr, R: tl.constexpr, F: tl.constexpr, HB: tl.constexpr, FB: tl.constexpr,
    OB: tl.constexpr, IB: tl.constexpr, BM: tl.constexpr, COUNT: tl.constexpr, ROOTS: tl.constexpr,
    STAGES: tl.constexpr, RESIDENT: tl.constexpr, DOWN: tl.constexpr, NORM: tl.constexpr, BOTH: tl.constexpr,
    HAS_VALID: tl.constexpr, DROP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """x + GLU(GELU(Re(C s) + skip ⊙ u)); `factor` is 2 for conjugate halves."""
    program = tl.program_id(0).to(tl.int64)
    model = tl.program_id(1).to(tl.int64)
    packed += model * W
    affine += model * 2 * H
    x += model * N * H
    out += model * N * H
    valid += model * N
    s += model * N * (2 * P)
    backward_s += model * N * (2 * P)
    seed += model
    h = channels(HB)
    f = channels(FB)
    down = packed + at_down
    value = packed + at_skip + H
    gate = value + F * H + F
    last = gate + F * H + F
    code_weight, code_unit = load_down(down, H, R, HB, IB, DOWN)
    m_value, value_unit = halve_matrix(load_matrix(value, f, h, F, H))
    m_gate, gate_unit = halve_matrix(load_matrix(gate, f, h, F, H))
    m_last, last_unit = halve_matrix(load_matrix(last, h, f, H, F))
    matrices, vectors = open_matrices(mirror, model, (R + 1) * HB * OB, HB)
    sets = load_sets(matrices, R, R + 1, COUNT, OB, HB, RESIDENT)
    roots, root_vectors = open_matrices(root, model, (R + 1) * HB * IB, HB)
    root_sets = load_sets(roots, R, R, ROOTS, IB, HB, RESIDENT and NORM)
    tl.debug_barrier()
    for tile in tl.range(tiles, num_stages=1, disable_licm=True):
        first = (program * tiles + tile) * BM
        _, u, _ = load_steps(x, affine, valid, first, N, H, HB, BM, HAS_VALID)
        # Loaded before the first product, the states wait for memory together with x.
        states = load_state(s, backward_s, first, N, 2 * P, OB, BM, BOTH)
        halves, unit = halve_rows(u)
        y, _, _, _, _ = read_out(
            halves, unit, code_weight, code_unit, down, matrices, vectors, sets, roots, root_vectors, root_sets,
            states, eps, H, R, HB, OB, IB, COUNT, ROOTS, STAGES, RESIDENT, DOWN, NORM, PRECISION,
        )  # fmt: skip
        raw, u, keep = load_steps(x, affine, valid, first, N, H, HB, BM, HAS_VALID, AGAIN=True)
        y = y * factor + u * tl.load(packed + at_skip + h, h < H, 0.0)[None, :]
        activated, _ = gelu(tl.where(keep[:, None], y, 0.0))
        if DROP > 0:
            row = model * N + first + tl.arange(0, BM)
            activated = activated * kept(seed, 0, row, h, DROP)
        halves, unit = halve_rows(activated)
        linear = product(halves, turned(m_value), PRECISION) * (unit * value_unit)
        linear += tl.load(value + F * H + f, f < F, 0.0)[None, :]
        gating = product(halves, turned(m_gate), PRECISION) * (unit * gate_unit)
        gating = sigmoid(gating + tl.load(gate + F * H + f, f < F, 0.0)[None, :])
        halves, unit = halve_rows(linear * gating)
        added = product(halves, turned(m_last), PRECISION) * (unit * last_unit)
        added += tl.load(last + H * F + h, h < H, 0.0)[None, :]
        if DROP > 0:
            added = added * kept(seed, 1, row, h, DROP)
        store_tile(out, raw + added, first, N, H, H)
