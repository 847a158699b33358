"""The passes of a wide block's tail between its products: x + drop(W (a ⊙ σ(g)) + c), [a, g] = V drop(GELU(y)) + b.

Sums over rows are left program by program in a table whose rows lie W apart.
"""

import triton
import triton.language as tl

from tides.kernels.triton.block_kernels import kept
from tides.kernels.triton.launched import launched
from tides.kernels.triton.tail_kernels import gelu
from tides.kernels.triton.wide_kernels import place


@triton.jit
def load_gates(linear, bias, row, f, inside, F: tl.constexpr):
    """a and σ(g) from the products (n, 2f)."""
    at = row[:, None] * (2 * F) + f[None, :]
    value = tl.load(linear + at, inside, 0.0) + tl.load(bias + f, f < F, 0.0)[None, :]
    gate = tl.load(linear + at + F, inside, 0.0) + tl.load(bias + F + f, f < F, 0.0)[None, :]
    return at, value, tl.sigmoid(gate)


@launched
def gate_kernel(linear, bias, gated, N, A: tl.constexpr, AB: tl.constexpr, BM: tl.constexpr):
    """a ⊙ σ(g)."""
    row, f, at, inside = place(N, A, AB, BM)
    _, value, gate = load_gates(linear, bias, row, f, inside, A)
    tl.store(gated + at, value * gate, inside)


@launched
def gate_backward_kernel(
    linear, bias, d_gated, gated, share, N, W, A: tl.constexpr, AB: tl.constexpr, BM: tl.constexpr
):
    """a ⊙ σ(g) again; the gradient of [a, g] goes to its place, and the sums for its bias (2f)."""
    row, f, at, inside = place(N, A, AB, BM)
    there, value, gate = load_gates(linear, bias, row, f, inside, A)
    tl.store(gated + at, value * gate, inside)
    change = tl.load(d_gated + at, inside, 0.0)
    d_value = change * gate
    d_gate = d_value * value * (1.0 - gate)
    tl.store(linear + there, d_value, inside)
    tl.store(linear + there + A, d_gate, inside)
    share += tl.program_id(0).to(tl.int64) * W
    tl.store(share + f, tl.sum(d_value, axis=0), f < A)
    tl.store(share + A + f, tl.sum(d_gate, axis=0), f < A)


@launched
def residual_kernel(
    x, added, bias, seed, out, N, A: tl.constexpr, AB: tl.constexpr, BM: tl.constexpr, DROP: tl.constexpr
):
    row, a, at, inside = place(N, A, AB, BM)
    change = tl.load(added + at, inside, 0.0) + tl.load(bias + a, a < A, 0.0)[None, :]
    if DROP > 0:
        change = change * kept(seed, 1, row, a, DROP)
    tl.store(out + at, tl.load(x + at, inside, 0.0) + change, inside)


@launched
def activate_kernel(
    y, gradient, seed, activated, dropped, share, N, W, A: tl.constexpr, AB: tl.constexpr, BM: tl.constexpr,
    DROP: tl.constexpr,
):  # fmt: skip
    """drop(GELU(y)), the gradient behind the last dropout where there is one, and the sums for the last bias."""
    row, a, at, inside = place(N, A, AB, BM)
    unit, _ = gelu(tl.load(y + at, inside, 0.0))
    change = tl.load(gradient + at, inside, 0.0)
    if DROP > 0:
        unit = unit * kept(seed, 0, row, a, DROP)
        change = change * kept(seed, 1, row, a, DROP)
        tl.store(dropped + at, change, inside)
    tl.store(activated + at, unit, inside)
    tl.store(share + tl.program_id(0).to(tl.int64) * W + a, tl.sum(change, axis=0), a < A)
