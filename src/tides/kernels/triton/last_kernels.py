"""The last valid step of every sequence: what a block's state is made of, and where its gradient goes."""

import triton
import triton.language as tl

from tides.kernels.triton.launched import launched


@triton.jit
def last_index(valid, sequence, L, BL: tl.constexpr, HAS_VALID: tl.constexpr):
    """Index of the last valid step, −1 where there is none."""
    last = L - 1
    if HAS_VALID:
        count = tl.zeros((BL,), tl.int32)
        for start in range(0, L, BL):
            step = start + tl.arange(0, BL)
            count += (tl.load(valid + sequence * L + step, step < L, 0) != 0).to(tl.int32)
        last = tl.sum(count, axis=0) - 1
    return last


@launched
def take_last_kernel(
    states, decay, drive, clocks, valid, s, lam, pending, L, P: tl.constexpr, PB: tl.constexpr, BL: tl.constexpr,
    HAS_VALID: tl.constexpr, FOLLOWING: tl.constexpr,
):  # fmt: skip
    """State, eigenvalues and drive (sequence, p, 2) of the last valid step; zeros where there is none.

    A drive is pending with the following hold alone. `clocks` begins with the frequencies (sequence, p).
    """
    sequence = tl.program_id(0).to(tl.int64)
    last = last_index(valid, sequence, L, BL, HAS_VALID)
    mode = tl.arange(0, PB)
    there = (mode < P) & (last + mode * 0 >= 0)
    source = (sequence * L + last) * P + mode
    target = sequence * P + mode
    tl.store(s + 2 * target, tl.load(states + 2 * source, there, 0.0), mode < P)
    tl.store(s + 2 * target + 1, tl.load(states + 2 * source + 1, there, 0.0), mode < P)
    tl.store(lam + 2 * target, tl.load(decay + source, there, 0.0), mode < P)
    tl.store(lam + 2 * target + 1, tl.load(clocks + target, mode < P, 0.0), mode < P)
    real = tl.zeros((PB,), tl.float32)
    imag = tl.zeros((PB,), tl.float32)
    if FOLLOWING:
        real = tl.load(drive + 2 * source, there, 0.0)
        imag = tl.load(drive + 2 * source + 1, there, 0.0)
    tl.store(pending + 2 * target, real, mode < P)
    tl.store(pending + 2 * target + 1, imag, mode < P)


@launched
def add_last_kernel(
    target, change, valid, L, first, step, WIDTH: tl.constexpr, WB: tl.constexpr, BL: tl.constexpr,
    HAS_VALID: tl.constexpr,
):  # fmt: skip
    """Add `change` (sequence, WIDTH, of which every `step`-th number counts) to `target` (sequence, L, WIDTH), which
    begins with the sequence `first`."""
    sequence = first + tl.program_id(0).to(tl.int64)
    target -= first.to(tl.int64) * L * WIDTH
    last = last_index(valid, sequence, L, BL, HAS_VALID)
    o = tl.arange(0, WB)
    there = (o < WIDTH) & (last + o * 0 >= 0)
    at = target + (sequence * L + last) * WIDTH + o
    tl.store(at, tl.load(at, there, 0.0) + tl.load(change + (sequence * WIDTH + o) * step, there, 0.0), there)
