"""Batch norm in front of a block: statistics of every channel over the valid rows, scale and shift, and back."""

import triton.language as tl

from tides.kernels.triton.launched import launched


@launched
def moments_kernel(
    x, valid, partial, N, tiles, H: tl.constexpr, HB: tl.constexpr, BM: tl.constexpr, HAS_VALID: tl.constexpr
):
    """Count, mean and centred sum of squares (3, h) of each program's rows: `partial` is (model, program, 3, h)."""
    model = tl.program_id(1).to(tl.int64)
    program = tl.program_id(0).to(tl.int64)
    h = tl.arange(0, HB)
    count = tl.zeros((HB,), tl.float32)
    mean = tl.zeros((HB,), tl.float32)
    squares = tl.zeros((HB,), tl.float32)
    for tile in range(tiles):
        row = (program * tiles + tile) * BM + tl.arange(0, BM)
        keep = row < N
        row += model * N
        if HAS_VALID:
            keep = keep & (tl.load(valid + row, keep, 0) != 0)
        inside = keep[:, None] & (h < H)[None, :]
        values = tl.load(x + row[:, None] * H + h[None, :], inside, 0.0)
        found = tl.sum(keep.to(tl.float32), axis=0)
        there = tl.sum(values, axis=0) / tl.maximum(found, 1.0)
        centred = tl.where(inside, values - there[None, :], 0.0)
        # The sums of two sets of rows from those of each.
        total = tl.maximum(count + found, 1.0)
        shift = there - mean
        squares += tl.sum(centred * centred, axis=0) + shift * shift * (count * found / total)
        mean += shift * (found / total)
        count += found
    partial += (model * tl.num_programs(0) + program) * 3 * H + h
    tl.store(partial, count, h < H)
    tl.store(partial + H, mean, h < H)
    tl.store(partial + 2 * H, squares, h < H)


@launched
def affine_kernel(
    partial, running_mean, running_var, affine, kept, programs, eps, momentum, H: tl.constexpr, HB: tl.constexpr,
    BM: tl.constexpr, BATCH: tl.constexpr,
):  # fmt: skip
    """Scale and shift (2, h) from the programs' moments (`BATCH`; the running ones follow) or from the running ones.

    `kept` gets the batch's mean and 1/count (2, h) for the backward pass.
    """
    h = tl.arange(0, HB)
    inside = h < H
    mean = tl.load(running_mean + h, inside, 0.0)
    var = tl.load(running_var + h, inside, 0.0)
    if BATCH:
        total = tl.zeros((HB,), tl.float32)
        weighted = tl.zeros((HB,), tl.float32)
        for start in range(0, programs, BM):
            program = start + tl.arange(0, BM)
            there = (program < programs)[:, None] & inside[None, :]
            at = partial + program[:, None] * 3 * H + h[None, :]
            count = tl.load(at, there, 0.0)
            total += tl.sum(count, axis=0)
            weighted += tl.sum(count * tl.load(at + H, there, 0.0), axis=0)
        centre = weighted / total
        squares = tl.zeros((HB,), tl.float32)
        for start in range(0, programs, BM):
            program = start + tl.arange(0, BM)
            there = (program < programs)[:, None] & inside[None, :]
            at = partial + program[:, None] * 3 * H + h[None, :]
            apart = tl.load(at + H, there, 0.0) - centre[None, :]
            squares += tl.sum(
                tl.where(there, tl.load(at + 2 * H, there, 0.0) + tl.load(at, there, 0.0) * apart * apart, 0.0), axis=0
            )
        unbiased = squares / (total - 1.0)
        tl.store(running_mean + h, mean + momentum * (centre - mean), inside)
        tl.store(running_var + h, var + momentum * (unbiased - var), inside)
        mean = centre
        var = squares / total
        tl.store(kept + h, mean, inside)
        tl.store(kept + H + h, 1.0 / total, inside)
    scale = tl.rsqrt(var + eps)
    tl.store(affine + h, scale, inside)
    tl.store(affine + H + h, -mean * scale, inside)


@launched
def norm_backward_kernel(
    x, valid, affine, kept, d_affine, dx, N, H: tl.constexpr, HB: tl.constexpr, BM: tl.constexpr,
    HAS_VALID: tl.constexpr,
):  # fmt: skip
    """What the statistics add to dx: (dμ + 2 dσ² (x − μ))/n over the valid rows."""
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    h = tl.arange(0, HB)
    keep = row < N
    if HAS_VALID:
        keep = keep & (tl.load(valid + row, keep, 0) != 0)
    inside = keep[:, None] & (h < H)[None, :]
    at = row[:, None] * H + h[None, :]
    scale = tl.load(affine + h, h < H, 0.0)
    mean = tl.load(kept + h, h < H, 0.0)
    share = tl.load(kept + H + h, h < H, 0.0)
    d_scale = tl.load(d_affine + h, h < H, 0.0)
    d_shift = tl.load(d_affine + H + h, h < H, 0.0)
    # scale = (σ² + ε)^(−½) and shift = −μ scale.
    d_mean = -scale * d_shift * share
    slope = -scale * scale * scale * (d_scale - mean * d_shift) * share
    apart = tl.load(x + at, inside, 0.0) - mean[None, :]
    tl.store(dx + at, tl.load(dx + at, inside, 0.0) + d_mean[None, :] + slope[None, :] * apart, inside)
