"""The activations of a fused block, over flat arrays."""

import math

from tides.kernels.cpu.elementary import logistic, normal
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
    for t in range(value.size):
        value[t] *= logistic(gate[t])


@compiled
def gated_backward(value, gate, gradient, product):  # type: ignore[no-untyped-def]
    """`value` and `gate` ← their gradients from that of the product, which `product` ← is."""
    widest_registers()
    one = value.dtype.type(1)
    for t in range(gate.size):
        share, slope = logistic(gate[t]), gradient[t]
        gated = value[t] * share
        product[t] = gated
        value[t] = slope * share
        gate[t] = slope * gated * (one - share)
