"""GELU, the gated linear unit and the residual in one pass over the steps, forwards and backwards."""

import triton
import triton.language as tl

from tides.kernels.triton.launched import launched


@triton.jit
def gelu(y):
    """y Φ(y) and its slope, Φ(y) + y φ(y).

    Φ(−a) = 2^q(a) with a polynomial q of degree 8, off by 8e-8 of 1 at most; far out it goes to −∞, as it should. An
    error function, which covers its range in pieces, takes three times the instructions.
    """
    a = tl.abs(y)
    q = 7.5645488e-3 + a * (-5.1659403e-4 + a * (-3.4613269e-5 + a * (9.285797e-6 + a * -5.0073532e-7)))
    beyond = tl.exp2(-0.99999977 + a * (-1.1511176 + a * (-0.45910033 + a * (-5.2836996e-2 + a * q))))
    cumulative = tl.where(y < 0.0, beyond, 1.0 - beyond)
    return y * cumulative, cumulative + y * (0.3989422804014327 * tl.exp2(y * y * -0.72134752))


@triton.jit
def sigmoid(x):
    """1/(1 + e^−x) as the square of a root: a division would be prepared for numbers of any size."""
    root = tl.rsqrt(1.0 + tl.exp2(x * -1.4426950))
    return root * root


@triton.jit
def load_matrix(pointer, rows, columns, R, C):
    return tl.load(
        pointer + rows[:, None] * C + columns[None, :], (rows < R)[:, None] & (columns < C)[None, :], 0.0
    )  # fmt: skip


@launched
def tail_kernel(
    x, y, value, value_bias, gate, gate_bias, out, out_bias, result, N, H, F,
    BM: tl.constexpr, HB: tl.constexpr, FB: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    h = tl.arange(0, HB)
    f = tl.arange(0, FB)
    at = row[:, None] * H + h[None, :]
    inside = (row < N)[:, None] & (h < H)[None, :]
    activated, _ = gelu(tl.load(y + at, inside, 0.0))
    linear = tl.dot(activated, tl.trans(load_matrix(value, f, h, F, H)), input_precision=PRECISION)
    linear += tl.load(value_bias + f, f < F, 0.0)[None, :]
    gating = tl.dot(activated, tl.trans(load_matrix(gate, f, h, F, H)), input_precision=PRECISION)
    gating = sigmoid(gating + tl.load(gate_bias + f, f < F, 0.0)[None, :])
    added = tl.dot(linear * gating, tl.trans(load_matrix(out, h, f, H, F)), input_precision=PRECISION)
    added += tl.load(out_bias + h, h < H, 0.0)[None, :]
    tl.store(result + at, tl.load(x + at, inside, 0.0) + added, inside)


@launched
def tail_backward_kernel(
    gradient, y, value, value_bias, gate, gate_bias, out, dy, d_value, d_gate, d_out, d_biases, N, H, F, tiles,
    BM: tl.constexpr, HB: tl.constexpr, FB: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of y, and one partial sum of every weight gradient per program."""
    program = tl.program_id(0).to(tl.int64)
    h = tl.arange(0, HB)
    f = tl.arange(0, FB)
    w_value = load_matrix(value, f, h, F, H)
    w_gate = load_matrix(gate, f, h, F, H)
    w_out = load_matrix(out, h, f, H, F)
    b_value = tl.load(value_bias + f, f < F, 0.0)[None, :]
    b_gate = tl.load(gate_bias + f, f < F, 0.0)[None, :]
    acc_value = tl.zeros((FB, HB), tl.float32)
    acc_gate = tl.zeros((FB, HB), tl.float32)
    acc_out = tl.zeros((HB, FB), tl.float32)
    acc_value_bias = tl.zeros((FB,), tl.float32)
    acc_gate_bias = tl.zeros((FB,), tl.float32)
    acc_out_bias = tl.zeros((HB,), tl.float32)
    for tile in range(tiles):
        row = (program * tiles + tile) * BM + tl.arange(0, BM)
        at = row[:, None] * H + h[None, :]
        inside = (row < N)[:, None] & (h < H)[None, :]
        g = tl.load(gradient + at, inside, 0.0)
        piece = tl.load(y + at, inside, 0.0)
        activated, slope = gelu(piece)
        linear = tl.dot(activated, tl.trans(w_value), input_precision=PRECISION) + b_value
        gating = sigmoid(tl.dot(activated, tl.trans(w_gate), input_precision=PRECISION) + b_gate)
        d_gated = tl.dot(g, w_out, input_precision=PRECISION)
        acc_out += tl.dot(tl.trans(g), linear * gating, input_precision=PRECISION)
        d_linear = d_gated * gating
        d_gating = d_gated * linear * gating * (1.0 - gating)
        acc_value += tl.dot(tl.trans(d_linear), activated, input_precision=PRECISION)
        acc_gate += tl.dot(tl.trans(d_gating), activated, input_precision=PRECISION)
        acc_value_bias += tl.sum(d_linear, axis=0)
        acc_gate_bias += tl.sum(d_gating, axis=0)
        acc_out_bias += tl.sum(g, axis=0)
        d_activated = tl.dot(d_linear, w_value, input_precision=PRECISION)
        d_activated += tl.dot(d_gating, w_gate, input_precision=PRECISION)
        tl.store(dy + at, d_activated * slope, inside)
    matrix = program * FB * HB
    tl.store(d_value + matrix + f[:, None] * HB + h[None, :], acc_value)
    tl.store(d_gate + matrix + f[:, None] * HB + h[None, :], acc_gate)
    tl.store(d_out + matrix + h[:, None] * FB + f[None, :], acc_out)
    biases = d_biases + program * (2 * FB + HB)
    tl.store(biases + f, acc_value_bias)
    tl.store(biases + FB + f, acc_gate_bias)
    tl.store(biases + 2 * FB + h, acc_out_bias)
