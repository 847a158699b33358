"""The passes of a wide block in front of its mixes, norm and heads, and their gradients.

Sums over rows are left program by program in a table whose rows lie W apart.
"""

import triton
import triton.language as tl

from tides.kernels.triton.block_kernels import load_input, rates
from tides.kernels.triton.launched import launched
from tides.kernels.triton.wide_kernels import place


@launched
def normalise_kernel(
    x, affine, valid, u, N, A: tl.constexpr, AB: tl.constexpr, BM: tl.constexpr, HAS_VALID: tl.constexpr
):
    """u = x ⊙ scale + shift, zero over padding."""
    row, a, at, inside = place(N, A, AB, BM)
    values = load_input(x, affine, valid, row, row < N, A, AB, HAS_VALID)
    tl.store(u + at, values, inside)


@launched
def normalise_backward_kernel(
    gradient, x, affine, valid, du, dx, share, N, W, A: tl.constexpr, AB: tl.constexpr, BM: tl.constexpr,
    HAS_VALID: tl.constexpr,
):  # fmt: skip
    """dx: the residual's gradient and that of u; the sums for scale and shift (2, h)."""
    row, a, at, inside = place(N, A, AB, BM)
    change = tl.load(du + at, inside, 0.0)
    if HAS_VALID:
        change = tl.where(tl.load(valid + row, row < N, 0)[:, None] != 0, change, 0.0)
    scale = tl.load(affine + a, a < A, 0.0)[None, :]
    tl.store(dx + at, tl.load(gradient + at, inside, 0.0) + change * scale, inside)
    share += tl.program_id(0).to(tl.int64) * W
    tl.store(share + a, tl.sum(change * tl.load(x + at, inside, 0.0), axis=0), a < A)
    tl.store(share + A + a, tl.sum(change, axis=0), a < A)


@triton.jit
def load_theta(heads, bias, row, mode, inside, WIDTH: tl.constexpr, P: tl.constexpr):
    """The linear map of the decay."""
    theta = tl.load(heads + row[:, None] * WIDTH + mode[None, :], inside, 0.0)
    return theta + tl.load(bias + mode, mode < P, 0.0)[None, :]


@launched
def heads_kernel(
    heads, bias, norm, decay, drive_code, readout_code, N, eps, limit, P: tl.constexpr, R: tl.constexpr,
    PB: tl.constexpr, IB: tl.constexpr, BM: tl.constexpr, RATE_NORM: tl.constexpr, REPARAM: tl.constexpr,
    CLIPPED: tl.constexpr,
):  # fmt: skip
    """Re λ (n, p) and both codes z̃ (n, r + 1) from the products (n, p + 2r) of the heads."""
    row, mode, at, inside = place(N, P, PB, BM)
    # The device's own exponential in float32 is off by the same at every step, and a long memory adds that up.
    theta = load_theta(heads, bias, row, mode, inside, P + 2 * R, P).to(tl.float64)
    if RATE_NORM:
        inverse = tl.rsqrt(tl.sum(theta * theta, axis=1) / P + eps)
        theta = theta * inverse[:, None] * tl.load(norm + mode, mode < P, 0.0)[None, :]
    rate, _ = rates(theta, limit, REPARAM, CLIPPED)
    tl.store(decay + at, rate.to(tl.float32), inside)
    i = tl.arange(0, IB)[None, :]
    live = (row < N)[:, None]
    source = heads + row[:, None] * (P + 2 * R) + P + i
    target = row[:, None] * (R + 1) + i
    code = tl.load(source, live & (i < R), 1.0) + tl.load(bias + P + i, i < R, 0.0)
    tl.store(drive_code + target, code, live & (i <= R))
    code = tl.load(source + R, live & (i < R), 1.0) + tl.load(bias + P + R + i, i < R, 0.0)
    tl.store(readout_code + target, code, live & (i <= R))


@launched
def heads_backward_kernel(
    heads, bias, norm, d_decay, d_drive_code, more_drive_code, d_readout_code, more_readout_code, d_heads, share, N, W,
    eps, limit, P: tl.constexpr, R: tl.constexpr, PB: tl.constexpr, IB: tl.constexpr, BM: tl.constexpr,
    RATE_NORM: tl.constexpr, REPARAM: tl.constexpr, CLIPPED: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """Gradient of the linear maps; the sums for their biases (p + 2r) and for the decay norm's weight (p).

    Codes get gradients from their mix and, with `NORM`, from its norm.
    """
    row, mode, at, inside = place(N, P, PB, BM)
    share += tl.program_id(0).to(tl.int64) * W
    theta = load_theta(heads, bias, row, mode, inside, P + 2 * R, P)
    d_theta = tl.load(d_decay + at, inside, 0.0)
    if RATE_NORM:
        inverse = tl.rsqrt(tl.sum(theta * theta, axis=1) / P + eps)[:, None]
        weight = tl.load(norm + mode, mode < P, 0.0)[None, :]
        _, slope = rates(theta * inverse * weight, limit, REPARAM, CLIPPED)
        d_theta = tl.where(inside, d_theta * slope, 0.0)
        tl.store(share + P + 2 * R + mode, tl.sum(d_theta * theta * inverse, axis=0), mode < P)
        d_theta = d_theta * weight
        along = tl.sum(d_theta * theta, axis=1)[:, None] / P * inverse * inverse
        d_theta = inverse * (d_theta - theta * along)
    else:
        _, slope = rates(theta, limit, REPARAM, CLIPPED)
        d_theta = d_theta * slope
    first = row[:, None] * (P + 2 * R)
    tl.store(d_heads + first + mode[None, :], d_theta, inside)
    tl.store(share + mode, tl.sum(tl.where(inside, d_theta, 0.0), axis=0), mode < P)
    i = tl.arange(0, IB)
    wanted = (row < N)[:, None] & (i < R)[None, :]
    source = row[:, None] * (R + 1) + i[None, :]
    d_drive = tl.load(d_drive_code + source, wanted, 0.0)
    d_readout = tl.load(d_readout_code + source, wanted, 0.0)
    if NORM:
        d_drive += tl.load(more_drive_code + source, wanted, 0.0)
        d_readout += tl.load(more_readout_code + source, wanted, 0.0)
    target = d_heads + first + P + i[None, :]
    tl.store(target, d_drive, wanted)
    tl.store(target + R, d_readout, wanted)
    tl.store(share + P + i, tl.sum(d_drive, axis=0), i < R)
    tl.store(share + P + R + i, tl.sum(d_readout, axis=0), i < R)
