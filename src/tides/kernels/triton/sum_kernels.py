"""Sums over programs, in a fixed order."""

import triton
import triton.language as tl

from tides.kernels.triton.launched import launched


@launched
def sum_kernel(
    partial, out, rest, rows, width, split, stride, step, count, later, column, BR: tl.constexpr, BC: tl.constexpr,
    ADD: tl.constexpr,
):  # fmt: skip
    """out[mix, model, c] = Σ_r partial[mix, model, r, c], with `ADD` on top of what is there.

    The first `count` rows count, and from `column` on, which BC divides, the first `later` ones. Models lie `stride`
    apart in `out`, mixes `step`; columns from `split` on go to `rest` (model, width − split).
    """
    model = tl.program_id(1).to(tl.int64)
    out += model * stride + tl.program_id(2) * step
    rest += model * (width - split)
    model += tl.program_id(2) * tl.num_programs(1)
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    total = tl.zeros((BC,), tl.float32)
    if tl.program_id(0) * BC >= column:
        count = later
    for start in range(0, count, BR):
        row = start + tl.arange(0, BR)
        at = (model * rows + row)[:, None] * width + c[None, :]
        total += tl.sum(tl.load(partial + at, (row < count)[:, None] & (c < width)[None, :], 0.0), axis=0)
    behind = (c >= split) & (c < width)
    if ADD:
        total += tl.load(out + c, c < split, 0.0) + tl.load(rest + c - split, behind, 0.0)
    tl.store(out + c, total, c < split)
    tl.store(rest + c - split, total, behind)


@triton.jit
def load_rows(partial, model, row, rows, mode, P):
    """partial[model, row, mode] (rows, modes)."""
    at = (model * rows + row)[:, None] * P + mode[None, :]
    return tl.load(partial + at, (row < rows)[:, None] & (mode < P)[None, :], 0.0)


@launched
def clock_sums_kernel(
    d_frequency, d_scale, d_frequency_behind, d_scale_behind, d_lam, packed, d_packed, rows, batch, W, at_frequency, P,
    BR: tl.constexpr, BP: tl.constexpr, BOTH: tl.constexpr, HAS_LAM: tl.constexpr,
):  # fmt: skip
    """Gradients of frequencies and log time scales from those of every chunk (model, row, p), all directions.

    `d_lam` (model, batch, p, 2) is the gradient of the last eigenvalues, whose imaginary part is the frequency.
    """
    model = tl.program_id(1).to(tl.int64)
    mode = tl.program_id(0) * BP + tl.arange(0, BP)
    frequencies = tl.zeros((BR, BP), tl.float32)
    scales = tl.zeros((BR, BP), tl.float32)
    for start in range(0, rows, BR):
        row = start + tl.arange(0, BR)
        # All on their way from memory together.
        frequencies += load_rows(d_frequency, model, row, rows, mode, P)
        scales += load_rows(d_scale, model, row, rows, mode, P)
        if BOTH:
            frequencies += load_rows(d_frequency_behind, model, row, rows, mode, P)
            scales += load_rows(d_scale_behind, model, row, rows, mode, P)
    frequency = tl.sum(frequencies, axis=0)
    scale = tl.sum(scales, axis=0)
    if HAS_LAM:
        for sequence in range(batch):
            at = ((model * batch + sequence) * P + mode) * 2 + 1
            frequency += tl.load(d_lam + at, mode < P, 0.0)
    at = model * W + at_frequency + mode
    tl.store(d_packed + at, frequency, mode < P)
    step = tl.exp(tl.load(packed + at + P, mode < P, 0.0))
    tl.store(d_packed + at + P, scale * step, mode < P)
