"""Passes over the rows of a batch with few channels: torch's own take two or three for what is one here."""

import triton.language as tl

from tides.kernels.triton.launched import launched


@launched
def map_kernel(x, weight, bias, out, N, D: tl.constexpr, H: tl.constexpr, HB: tl.constexpr, BM: tl.constexpr):
    """x Wᵀ + b (n, h) for x (n, d) and W (h, d)."""
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    h = tl.arange(0, HB)
    total = tl.load(bias + h, h < H, 0.0)[None, :]
    for d in tl.static_range(D):
        total += tl.load(x + row * D + d, row < N, 0.0)[:, None] * tl.load(weight + h * D + d, h < H, 0.0)[None, :]
    tl.store(out + row[:, None] * H + h[None, :], total, (row < N)[:, None] & (h < H)[None, :])


@launched
def map_backward_kernel(
    gradient, x, partial, N, tiles, D: tl.constexpr, DB: tl.constexpr, H: tl.constexpr, HB: tl.constexpr,
    BM: tl.constexpr,
):  # fmt: skip
    """Sums of each program's rows for Wᵀ (d, h) and, behind it, b."""
    program = tl.program_id(0).to(tl.int64)
    h = tl.arange(0, HB)
    d = tl.arange(0, DB)
    of_weight = tl.zeros((DB, HB), tl.float32)
    of_bias = tl.zeros((HB,), tl.float32)
    for tile in range(tiles):
        row = (program * tiles + tile) * BM + tl.arange(0, BM)
        g = tl.load(gradient + row[:, None] * H + h[None, :], (row < N)[:, None] & (h < H)[None, :], 0.0)
        of_bias += tl.sum(g, axis=0)
        for k in tl.static_range(D):
            share = tl.sum(g * tl.load(x + row * D + k, row < N, 0.0)[:, None], axis=0)
            of_weight += tl.where(d[:, None] == k, share[None, :], 0.0)
    partial += program * (D + 1) * H
    tl.store(partial + d[:, None] * H + h[None, :], of_weight, (d < D)[:, None] & (h < H)[None, :])
    tl.store(partial + D * H + h, of_bias, h < H)


@launched
def total_kernel(x, partial, L, tiles, H: tl.constexpr, HB: tl.constexpr, BM: tl.constexpr):
    """Sums of each program's steps of a series: `partial` is (b, programs, h)."""
    series = tl.program_id(1).to(tl.int64)
    program = tl.program_id(0)
    h = tl.arange(0, HB)
    total = tl.zeros((BM, HB), tl.float32)
    for tile in range(tiles):
        step = (program * tiles + tile) * BM + tl.arange(0, BM)
        at = (series * L + step)[:, None] * H + h[None, :]
        total += tl.load(x + at, (step < L)[:, None] & (h < H)[None, :], 0.0)
    tl.store(partial + (series * tl.num_programs(0) + program) * H + h, tl.sum(total, axis=0), h < H)


@launched
def spread_kernel(row, out, L, H: tl.constexpr, HB: tl.constexpr, BM: tl.constexpr):
    """The same row (h) for all steps of a series."""
    series = tl.program_id(1).to(tl.int64)
    step = tl.program_id(0) * BM + tl.arange(0, BM)
    h = tl.arange(0, HB)
    value = tl.load(row + series * H + h, h < H, 0.0)
    at = (series * L + step)[:, None] * H + h[None, :]
    tl.store(out + at, value[None, :] + tl.zeros((BM, 1), tl.float32), (step < L)[:, None] & (h < H)[None, :])
