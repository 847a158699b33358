"""The gradients of a block's mixes: back through the output mix before the scan's adjoint, the input mix behind it.

What the mixes' large weights need (`left`, `d_square`, the code) is written out for `block_weight_kernel`, a range of
steps at a time, which begins at the row `start`. States, drives, decay rates and codes belong to a part of the batch
that begins at the row `first`.
"""

import triton
import triton.language as tl

from tides.kernels.triton.block_kernels import load_down, load_state, normalise, project_code, read_out, signed
from tides.kernels.triton.launched import launched
from tides.kernels.triton.product_kernels import (
    halve_rows,
    inverse_rms,
    load_sets,
    load_vector,
    mix,
    mix_backward,
    open_matrices,
)
from tides.kernels.triton.tile_kernels import (
    channels,
    largest_of,
    largest_rows,
    load_tile,
    store_tile,
    zero_largest,
    zero_largest_rows,
)
from tides.kernels.triton.unit_kernels import CODE, KINDS, LEFT, RIGHT, SQUARE, raise_to, raise_unit


@triton.jit
def through_norms(
    slope, code, matrices, vectors, sets, R: tl.constexpr, GRAMS: tl.constexpr, STAGES: tl.constexpr, HB: tl.constexpr,
    IB: tl.constexpr, RESIDENT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The code's gradient through the column norms: 2 Σ_h slope_h (G_h z̃)_i."""
    halves, unit = halve_rows(slope * load_vector(vectors, HB))
    total = mix(halves, code, matrices, sets, R, GRAMS, STAGES, HB, IB, IB, RESIDENT, PRECISION)
    return total * (2.0 * unit)


@launched
def readout_kernel(
    x, affine, valid, packed, mirror, root, s, backward_s, out, inverse, codes, units, N, W, start, rows, tiles, first,
    at_down, eps, factor,
    H: tl.constexpr, P: tl.constexpr, R: tl.constexpr, HB: tl.constexpr, OB: tl.constexpr, IB: tl.constexpr,
    BM: tl.constexpr, COUNT: tl.constexpr, ROOTS: tl.constexpr, STAGES: tl.constexpr, RESIDENT: tl.constexpr,
    DOWN: tl.constexpr, NORM: tl.constexpr, BOTH: tl.constexpr, HAS_VALID: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Re(C s) of a range, made again for the tail's gradient; ρ and the code for `readout_backward_kernel`."""
    program = tl.program_id(0).to(tl.int64)
    model = tl.program_id(1).to(tl.int64)
    stop = tl.minimum(rows, N - start)
    begin = model * N + start
    packed += model * W
    affine += model * 2 * H
    x += begin * H
    valid += begin
    s += (begin - first) * (2 * P)
    backward_s += (begin - first) * (2 * P)
    out += model * rows * H
    inverse += model * rows * H
    codes += model * rows * R
    down = packed + at_down
    code_weight, code_unit = load_down(down, H, R, HB, IB, DOWN)
    matrices, vectors = open_matrices(mirror, model, (R + 1) * HB * OB, HB)
    sets = load_sets(matrices, R, R + 1, COUNT, OB, HB, RESIDENT)
    roots, root_vectors = open_matrices(root, model, (R + 1) * HB * IB, HB)
    root_sets = load_sets(roots, R, R, ROOTS, IB, HB, RESIDENT and NORM)
    # All matrices are there; else the compiler would have all warps wait for each other in every tile.
    tl.debug_barrier()
    most_state = zero_largest_rows(BM)
    most_code = zero_largest_rows(BM)
    near = program * tiles * BM
    end = tl.minimum(stop, near + tiles * BM)
    ahead = load_tile(x, near, end, H, BM, HB)
    states_ahead = load_state(s, backward_s, near, end, 2 * P, OB, BM, BOTH)
    for tile in tl.range(tiles, num_stages=1, disable_licm=True):
        near = (program * tiles + tile) * BM
        u, _ = normalise(ahead, affine, valid, near, stop, H, HB, BM, HAS_VALID)
        halves, unit = halve_rows(u)
        y, code, rho, state_unit, row_unit = read_out(
            halves, unit, code_weight, code_unit, down, matrices, vectors, sets, roots, root_vectors, root_sets,
            states_ahead, eps, H, R, HB, OB, IB, COUNT, ROOTS, STAGES, RESIDENT, DOWN, NORM, PRECISION,
        )  # fmt: skip
        # The next tile's, on their way from memory while the rest of this one is computed.
        ahead = load_tile(x, near + BM, end, H, BM, HB)
        states_ahead = load_state(s, backward_s, near + BM, end, 2 * P, OB, BM, BOTH)
        store_tile(out, y * factor, near, stop, H, H)
        if NORM:
            store_tile(inverse, rho, near, stop, H, H)
        store_tile(codes, code, near, stop, R, R)
        most_state = largest_rows(most_state, state_unit)
        most_code = largest_rows(most_code, row_unit)
    raise_unit(units + model * KINDS, RIGHT, most_state)
    raise_unit(units + model * KINDS, CODE, most_code)


@launched
def readout_backward_kernel(
    kernel, gram, s, backward_s, d_s, d_backward_s, d_y, left, d_square, codes, units, d_codes, N, start, rows, tiles,
    first, factor,
    H: tl.constexpr, P: tl.constexpr, R: tl.constexpr, HB: tl.constexpr, OB: tl.constexpr, IB: tl.constexpr,
    BM: tl.constexpr, COUNT: tl.constexpr, GRAMS: tl.constexpr, STAGES: tl.constexpr, RESIDENT: tl.constexpr,
    NORM: tl.constexpr, BOTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """From dy, Re(C s) (in left) and ρ (in d_square): the gradients of s and of the code."""
    program = tl.program_id(0).to(tl.int64)
    model = tl.program_id(1).to(tl.int64)
    stop = tl.minimum(rows, N - start)
    begin = model * N + start
    s += (begin - first) * (2 * P)
    backward_s += (begin - first) * (2 * P)
    d_s += (begin - first) * (2 * P)
    d_backward_s += (begin - first) * (2 * P)
    d_codes += (begin - first) * R
    d_y += begin * H
    left += model * rows * H
    d_square += model * rows * H
    codes += model * rows * R
    i = channels(IB)
    matrices, vectors = open_matrices(kernel, model, (R + 1) * OB * HB, HB)
    sets = load_sets(matrices, R, R + 1, COUNT, HB, OB, RESIDENT)
    grams, gram_vectors = open_matrices(gram, model, (R + 1) * IB * HB, HB)
    gram_sets = load_sets(grams, R, R + 1, GRAMS, HB, IB, RESIDENT and NORM)
    most_left = zero_largest(BM)
    most_square = zero_largest(BM)
    tl.debug_barrier()
    for tile in tl.range(tiles, num_stages=1, disable_licm=True):
        near = (program * tiles + tile) * BM
        change = load_tile(d_y, near, stop, H, BM, HB)
        code = load_tile(codes, near, stop, R, BM, IB)
        code = tl.where((i == R)[None, :], 1.0, code)
        # Loads before stores, which wait for what they store.
        if NORM:
            rho = load_tile(d_square, near, stop, H, BM, HB)
            y = load_tile(left, near, stop, H, BM, HB)
        states = load_state(s, backward_s, near, stop, 2 * P, OB, BM, BOTH)
        scaled = change * factor
        d_code = tl.zeros((BM, IB), tl.float32)
        if NORM:
            slope = -0.5 * rho * rho * change * y
            store_tile(d_square, slope, near, stop, H, H)
            most_square = largest_of(most_square, slope)
            d_code = through_norms(
                slope, code, grams, gram_vectors, gram_sets, R, GRAMS, STAGES, HB, IB, RESIDENT, PRECISION
            )
            scaled = scaled * rho
        store_tile(left, scaled, near, stop, H, H)
        most_left = largest_of(most_left, scaled)
        halves, unit = halve_rows(scaled * load_vector(vectors, HB))
        d_v, d_mixed = mix_backward(
            halves, signed(states, OB), code, matrices, sets, R, COUNT, STAGES, HB, OB, IB, RESIDENT, PRECISION
        )
        store_tile(d_codes, d_code + d_mixed * unit, near, stop, R, R)
        d_v = d_v * unit
        d_v = tl.where((channels(OB) % 2 == 1)[None, :], -d_v, d_v)
        store_tile(d_s, d_v, near, stop, 2 * P, 2 * P)
        if BOTH:
            store_tile(d_backward_s, d_v, near, stop, 2 * P, 2 * P, SHIFT=2 * P)
    raise_to(units + model * KINDS, LEFT, most_left)
    raise_to(units + model * KINDS, SQUARE, most_square)


@launched
def drive_backward_kernel(
    x, affine, valid, packed, mirror, root, gram, d_drive, d_u, left, d_square, codes, units, d_codes,
    N, W, start, rows, tiles, first, at_down, at_skip, eps,
    H: tl.constexpr, P: tl.constexpr, R: tl.constexpr, HB: tl.constexpr, OB: tl.constexpr, IB: tl.constexpr,
    BM: tl.constexpr, COUNT: tl.constexpr, ROOTS: tl.constexpr, GRAMS: tl.constexpr, STAGES: tl.constexpr,
    RESIDENT: tl.constexpr, DOWN: tl.constexpr, NORM: tl.constexpr, HAS_VALID: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """From the drive's gradient and dy (in d_u): what skip and input mix add to du, and the gradient of the code."""
    program = tl.program_id(0).to(tl.int64)
    model = tl.program_id(1).to(tl.int64)
    stop = tl.minimum(rows, N - start)
    begin = model * N + start
    packed += model * W
    affine += model * 2 * H
    x += begin * H
    valid += begin
    d_u += begin * H
    d_drive += (begin - first) * (2 * P)
    d_codes += (begin - first) * R
    left += model * rows * H
    d_square += model * rows * H
    codes += model * rows * R
    down = packed + at_down
    h = channels(HB)
    code_weight, code_unit = load_down(down, H, R, HB, IB, DOWN)
    matrices, vectors = open_matrices(mirror, model, (R + 1) * HB * OB, HB)
    sets = load_sets(matrices, R, R + 1, COUNT, OB, HB, RESIDENT)
    roots, root_vectors = open_matrices(root, model, (R + 1) * HB * IB, HB)
    root_sets = load_sets(roots, R, R, ROOTS, IB, HB, RESIDENT and NORM)
    grams, gram_vectors = open_matrices(gram, model, (R + 1) * IB * HB, HB)
    gram_sets = load_sets(grams, R, R + 1, GRAMS, HB, IB, RESIDENT and NORM)
    most_u = zero_largest_rows(BM)
    most_square = zero_largest(BM)
    most_drive = zero_largest_rows(BM)
    most_code = zero_largest_rows(BM)
    tl.debug_barrier()
    near = program * tiles * BM
    end = tl.minimum(stop, near + tiles * BM)
    ahead = load_tile(x, near, end, H, BM, HB)
    g_ahead = load_tile(d_drive, near, end, 2 * P, BM, OB)
    for tile in tl.range(tiles, num_stages=1, disable_licm=True):
        near = (program * tiles + tile) * BM
        u, keep = normalise(ahead, affine, valid, near, stop, H, HB, BM, HAS_VALID)
        g = g_ahead
        halves, unit = halve_rows(u)
        most_u = largest_rows(most_u, unit)
        code = project_code(halves, unit, code_weight, code_unit, down, H, R, IB, DOWN, PRECISION)
        store_tile(codes, code, near, stop, R, R)
        scaled = u
        z, unit = halve_rows(code)
        most_code = largest_rows(most_code, unit)
        if NORM:
            rho = inverse_rms(
                z, unit, roots, root_vectors, root_sets, eps, R, ROOTS, STAGES, IB, HB, RESIDENT, PRECISION
            )
            scaled = u * rho
        store_tile(left, scaled, near, stop, H, H)
        scaled = scaled * load_vector(vectors, HB)
        # Over padding, too, the weights' sums multiply what is there.
        halves, unit = halve_rows(g)
        most_drive = largest_rows(most_drive, unit)
        unit = tl.where(keep[:, None], unit, 0.0)
        d_v, d_code = mix_backward(
            halves, scaled, code, matrices, sets, R, COUNT, STAGES, OB, HB, IB, RESIDENT, PRECISION
        )
        d_v = d_v * unit
        d_code = d_code * unit
        before = load_tile(d_u, near, stop, H, BM, HB)
        # The next tile's; earlier, while the mix takes the registers, they would be in its way.
        ahead = load_tile(x, near + BM, end, H, BM, HB)
        g_ahead = load_tile(d_drive, near + BM, end, 2 * P, BM, OB)
        if NORM:
            slope = -0.5 * rho * rho * d_v * scaled
            d_v = d_v * rho
            store_tile(d_square, slope, near, stop, H, H)
            most_square = largest_of(most_square, slope)
            d_code += through_norms(
                slope, code, grams, gram_vectors, gram_sets, R, GRAMS, STAGES, HB, IB, RESIDENT, PRECISION
            )
        store_tile(d_codes, d_code, near, stop, R, R)
        skip = tl.load(packed + at_skip + h, h < H, 0.0)[None, :]
        store_tile(d_u, before * skip + d_v * load_vector(vectors, HB), near, stop, H, H)
    most = 1.0
    if NORM:
        # ρ is largest where its last row is all there is.
        most = tl.max(tl.where(channels(HB) < H, tl.rsqrt(load_vector(root_vectors, HB, 1) + eps), 0.0))
    raise_to(units + model * KINDS, LEFT, most_u * (most * 2.0**15))
    raise_to(units + model * KINDS, SQUARE, most_square)
    raise_unit(units + model * KINDS, RIGHT, most_drive)
    raise_unit(units + model * KINDS, CODE, most_code)
