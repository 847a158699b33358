"""The activations of a fused block, over flat arrays."""

import math

from tides.kernels.cpu.elementary import exp_and_expm1, normal
from tides.kernels.cpu.intervals import compiled
from tides.kernels.cpu.vectors import widest_registers

_DENSITY = 1 / math.sqrt(2 * math.pi)


@compiled
def gelu(y, out):  # type: ignore[no-untyped-def]
    """y Φ(y)."""
    widest_registers()
    for t in range(y.size):
        out[t] = y[t] * normal(y[t])[0]


@compiled
def gelu_and_slope(y, out):  # type: ignore[no-untyped-def]
    """out = y Φ(y), y ← its derivative Φ(y) + y φ(y)."""
    widest_registers()
    density = y.dtype.type(_DENSITY)
    for t in range(y.size):
        share, bell = normal(y[t])
        out[t] = y[t] * share
        y[t] = share + density * y[t] * bell


@compiled
def gated(value, gate):  # type: ignore[no-untyped-def]
    """value ← value · σ(gate)."""
    widest_registers()
    one = value.dtype.type(1)
    for t in range(value.size):
        value[t] = value[t] / (one + exp_and_expm1(-gate[t])[0])


@compiled
def gated_backward(value, gate, gradient, product):  # type: ignore[no-untyped-def]
    """`value` and `gate` ← their gradients from that of the product, which `product` ← is."""
    widest_registers()
    one = value.dtype.type(1)
    for t in range(gate.size):
        gate[t] = one / (one + exp_and_expm1(-gate[t])[0])
    for t in range(gate.size):
        product[t] = value[t] * gate[t]
    for t in range(gate.size):
        value[t] = gradient[t] * gate[t]
    for t in range(gate.size):
        gate[t] = gradient[t] * product[t] * (one - gate[t])
