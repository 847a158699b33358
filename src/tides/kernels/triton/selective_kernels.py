"""The selective scan of Mamba on the GPU: a program walks through time with the states of some channels in registers.

Arrays: u, δ, y (b, l, e); B, C (b, l, n); A (e, n); states (b, l, e, n). Offsets are 64-bit. What channels of several
programs add to is written per program and added up afterwards in a fixed order.
"""

import triton
import triton.language as tl


@triton.jit
def selective_forward(
    u, delta, drive, readout, decay, y, states, L, E, N, blocks,
    KEEP: tl.constexpr, BE: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """s ← exp(δ A) s + δ u Bᵀ and y = s C; all states are written where they are to be kept."""
    row, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    channel, n = block * BE + tl.arange(0, BE), tl.arange(0, BN)
    in_e, in_n = channel < E, n < N
    inside = in_e[:, None] & in_n[None, :]
    rate = tl.load(decay + channel[:, None] * N + n[None, :], inside, 0.0)
    at_e = row.to(tl.int64) * L * E + channel
    at_n = row.to(tl.int64) * L * N + n
    s = tl.zeros([BE, BN], tl.float32)
    # One step ahead, so that a load and the step before it overlap.
    x, d = tl.load(u + at_e, in_e, 0.0), tl.load(delta + at_e, in_e, 0.0)
    b, c = tl.load(drive + at_n, in_n, 0.0), tl.load(readout + at_n, in_n, 0.0)
    for k in range(L):
        more_e, more_n = in_e & (k + 1 + 0 * channel < L), in_n & (k + 1 + 0 * n < L)
        next_x, next_d = tl.load(u + at_e + E, more_e, 0.0), tl.load(delta + at_e + E, more_e, 0.0)
        next_b, next_c = tl.load(drive + at_n + N, more_n, 0.0), tl.load(readout + at_n + N, more_n, 0.0)
        s = tl.exp(d[:, None] * rate) * s + (d * x)[:, None] * b[None, :]
        tl.store(y + at_e, tl.sum(s * c[None, :], 1), in_e)
        if KEEP:
            tl.store(states + at_e[:, None] * N + n[None, :], s, inside)
        x, d, b, c = next_x, next_d, next_b, next_c
        at_e += E
        at_n += N


@triton.jit
def selective_backward(
    gradient, u, delta, drive, readout, decay, states, du, ddelta, ddrive, dreadout, ddecay, L, E, N, blocks,
    BE: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Gradients, backwards in time. g is that of s: g ← ȳ Cᵀ + exp(δ A) g of the step after."""
    row, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    channel, n = block * BE + tl.arange(0, BE), tl.arange(0, BN)
    in_e, in_n = channel < E, n < N
    inside = in_e[:, None] & in_n[None, :]
    rate = tl.load(decay + channel[:, None] * N + n[None, :], inside, 0.0)
    last = row.to(tl.int64) * L + L - 1
    at_e, at_n = last * E + channel, last * N + n
    at_part = (tl.program_id(0).to(tl.int64) * L + L - 1) * N + n
    carried, drate = tl.zeros([BE, BN], tl.float32), tl.zeros([BE, BN], tl.float32)
    s = tl.load(states + at_e[:, None] * N + n[None, :], inside, 0.0)
    for k in range(L):
        earlier = inside & (k + 1 + 0 * n[None, :] < L)
        before = tl.load(states + (at_e - E)[:, None] * N + n[None, :], earlier, 0.0)
        gy, x, d = tl.load(gradient + at_e, in_e, 0.0), tl.load(u + at_e, in_e, 0.0), tl.load(delta + at_e, in_e, 0.0)
        b, c = tl.load(drive + at_n, in_n, 0.0), tl.load(readout + at_n, in_n, 0.0)
        a = tl.exp(d[:, None] * rate)
        g = gy[:, None] * c[None, :] + carried
        tl.store(dreadout + at_part, tl.sum(gy[:, None] * s, 0), in_n)
        tl.store(ddrive + at_part, tl.sum(g * (d * x)[:, None], 0), in_n)
        driven = tl.sum(g * b[None, :], 1)
        carried = a * g
        moved = carried * before
        tl.store(du + at_e, d * driven, in_e)
        tl.store(ddelta + at_e, x * driven + tl.sum(moved * rate, 1), in_e)
        drate += moved * d[:, None]
        s = before
        at_e -= E
        at_n -= N
        at_part -= N
    here = (row.to(tl.int64) * E + channel)[:, None] * N + n[None, :]
    tl.store(ddecay + here, drate, inside)
