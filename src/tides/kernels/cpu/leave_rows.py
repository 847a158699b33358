"""The part of a block behind its scan, compiled: out-mix, skip, GELU, GLU and residual, and their gradients."""

from tides.kernels.cpu.block_loops import gated, gated_backward, gelu, gelu_and_slope
from tides.kernels.cpu.column_loops import inverse_norms, turned_back
from tides.kernels.cpu.enter_rows import TILE, d_square
from tides.kernels.cpu.intervals import compiled
from tides.kernels.cpu.mix_products import mix_forward
from tides.kernels.cpu.mix_rows import columns_backward, mix_backward
from tides.kernels.cpu.products import add_products, add_rows, linear_rows
from tides.kernels.cpu.row_loops import dropped, entered, finished, given, left, masked, skip_backward, summed, taken
from tides.kernels.cpu.scratch import borrowed, hold, rooms
from tides.kernels.cpu.vectors import widest_registers


@compiled
def _project(x, states, steps, first, count, valid, panels, sizes, u, code, s):  # type: ignore[no-untyped-def]
    """u, the readout's code, and the states of all directions side by side."""
    entered(x, first, count, sizes.width, sizes.whole, sizes.lanes, panels.scale, panels.shift, valid, u)
    linear_rows(u, sizes.whole, count, panels.codes, sizes.width, code, sizes.code_whole, sizes.code_whole)
    for k in range(sizes.directions):
        taken(states, k * steps + first, count, sizes.planes, sizes.lanes, s, sizes.states_whole, k * sizes.planes)


@compiled
def _finish(first, count, valid, panels, sizes, settings, u, code, mixed, inverse, y):  # type: ignore[no-untyped-def]
    """y, the layer's output, and the inverse norms."""
    normed = panels.readout_forms.size > 0
    if normed:
        eps = u.dtype.type(settings.eps)
        inverse_norms(code, sizes.code_whole, count, sizes.code, panels.readout_triangles, eps, inverse, sizes.whole)
    finished(mixed, inverse, normed, u, panels.skip, count, sizes.whole, sizes.lanes, y)
    masked(y, first, count, sizes.whole, valid)


@compiled
def _gates(active, count, panels, sizes, value, gate):  # type: ignore[no-untyped-def]
    inner = sizes.inner_whole
    linear_rows(active, sizes.whole, count, panels.value, sizes.width, value, inner, inner)
    linear_rows(active, sizes.whole, count, panels.gate, sizes.width, gate, inner, inner)


@compiled
def leave_forward(x, states, steps, valid, kept, panels, sizes, settings, begin, end, mixed, out):  # type: ignore[no-untyped-def]
    """`out` and `mixed` (n, h) of steps [begin, end); `kept` (2, n · h) are the masks of dropout, or empty."""
    widest_registers()
    x, states, valid, kept, panels, mixed, out = borrowed((x, states, valid, kept, panels, mixed, out))
    whole, lanes, inner = sizes.whole, sizes.lanes, sizes.inner_whole
    rows = TILE * whole
    space, (u, inverse, y, active, mix, code, s, value, gate) = rooms(
        (rows, rows, rows, rows, rows, (TILE + 1) * sizes.code_whole, TILE * sizes.states_whole, TILE * inner,
         TILE * inner), x,
    )  # fmt: skip
    scaled_up = 1 / (1 - settings.dropout)
    depth = sizes.states
    for first in range(begin, end, TILE):
        count = min(TILE, end - first)
        _project(x, states, steps, first, count, valid, panels, sizes, u, code, s)
        own, after = first * sizes.width, (first + count) * sizes.width
        mix_forward(
            s, sizes.states_whole, depth, count, code, sizes.code_whole, sizes.code, panels.readout, mix, whole,
            (x[after:], states[(first + count) * sizes.planes :], mixed[own:], out[own:]),
        )  # fmt: skip
        given(mix, whole, 0, first, count, sizes.width, lanes, mixed)
        _finish(first, count, valid, panels, sizes, settings, u, code, mix, inverse, y)
        gelu(y, active)
        dropped(active, first, count, sizes.width, whole, kept, 0, scaled_up)
        _gates(active, count, panels, sizes, value, gate)
        gated(value, gate)
        linear_rows(value, inner, count, panels.outer, sizes.inner, y, whole, whole)
        dropped(y, first, count, sizes.width, whole, kept, 1, scaled_up)
        left(x, first, count, sizes.width, whole, lanes, y, panels.ones, out)
    hold(space)


@compiled
def _glu_backward(active, gradient, count, panels, sizes, value, gate, d_gated, product, d_active, sums):  # type: ignore[no-untyped-def]
    """`d_active` from the gradient of the block's output."""
    widest_registers()
    whole, inner, lanes = sizes.whole, sizes.inner_whole, sizes.lanes
    _gates(active, count, panels, sizes, value, gate)
    d_gated[:] = d_gated.dtype.type(0)
    add_rows(gradient, whole, count, panels.outer_turned, sizes.width, d_gated, inner, inner)
    gated_backward(value, gate, d_gated, product)
    add_products(product, inner, 1, count, sizes.inner, gradient, whole, whole, sums.outer)
    summed(gradient, count, whole, whole, lanes, sums.outer_bias)
    add_products(active, whole, 1, count, sizes.width, value, inner, inner, sums.value)
    add_products(active, whole, 1, count, sizes.width, gate, inner, inner, sums.gate)
    summed(value, count, inner, inner, lanes, sums.value_bias)
    summed(gate, count, inner, inner, lanes, sums.gate_bias)
    d_active[:] = d_active.dtype.type(0)
    add_rows(value, inner, count, panels.value_turned, sizes.inner, d_active, whole, whole)
    add_rows(gate, inner, count, panels.gate_turned, sizes.inner, d_active, whole, whole)


@compiled
def leave_backward(  # type: ignore[no-untyped-def]
    x, states, steps, valid, kept, panels, sizes, settings, begin, end, mixed, gradient, sums, d_states, du
):
    """Gradients of the states and of u (n, h) from that of the output (n, h)."""
    widest_registers()
    x, states, valid, kept, panels, mixed = borrowed((x, states, valid, kept, panels, mixed))
    gradient, sums, d_states, du = borrowed((gradient, sums, d_states, du))
    whole, lanes, inner, size = sizes.whole, sizes.lanes, sizes.inner_whole, sizes.code
    rows, of_states, of_inner = TILE * whole, TILE * sizes.states_whole, TILE * inner
    of_code = (TILE + 1) * sizes.code_whole
    space, parts = rooms(
        (rows, rows, rows, rows, rows, rows, rows, rows, of_code, of_code, of_states, of_states, of_states * size,
         of_inner, of_inner, of_inner, of_inner, TILE * size, TILE * size, TILE * sizes.monomials,
         TILE * (whole + 1)), x,
    )  # fmt: skip
    u, inverse, y, active, mix, g, d_y, own, code, d_code, s, ds, work = parts[:13]
    value, gate, d_gated, product, code_turned, d_turned, products, slopes_turned = parts[13:]
    scaled_up = 1 / (1 - settings.dropout)
    depth = sizes.states
    normed = panels.readout_forms.size > 0
    for first in range(begin, end, TILE):
        count = min(TILE, end - first)
        _project(x, states, steps, first, count, valid, panels, sizes, u, code, s)
        taken(mixed, first, count, sizes.width, lanes, mix, whole, 0)
        _finish(first, count, valid, panels, sizes, settings, u, code, mix, inverse, y)
        gelu_and_slope(y, active)
        dropped(active, first, count, sizes.width, whole, kept, 0, scaled_up)
        taken(gradient, first, count, sizes.width, lanes, g, whole, 0)
        dropped(g, first, count, sizes.width, whole, kept, 1, scaled_up)
        _glu_backward(active, g, count, panels, sizes, value, gate, d_gated, product, d_y, sums)
        dropped(d_y, first, count, sizes.width, whole, kept, 0, scaled_up)
        for j in range(d_y.size):
            d_y[j] *= y[j]
        masked(d_y, first, count, whole, valid)
        skip_backward(d_y, u, panels.skip, count, whole, lanes, own, sums.skip)
        if normed:
            d_square(mix, inverse, d_y)
        d_turned[:] = d_turned.dtype.type(0)
        after = (first + count) * sizes.width
        mix_backward(
            d_y, sizes.width, whole, count, code, sizes.code_whole, size, panels.readout_turned, s, depth,
            sizes.states_whole, work, ds, d_turned, TILE, sums.readout,
            (x[after:], states[(first + count) * sizes.planes :], mixed[after:], gradient[after:]),
        )  # fmt: skip
        if normed:
            columns_backward(
                inverse, whole, count, code, sizes.code_whole, size, panels.readout_forms, lanes, code_turned,
                slopes_turned, products, d_turned, TILE, sums.readout_forms,
            )  # fmt: skip
        turned_back(d_turned, TILE, count, size, d_code, sizes.code_whole)
        for k in range(sizes.directions):
            given(ds, sizes.states_whole, k * sizes.planes, k * steps + first, count, sizes.planes, lanes, d_states)
        add_rows(d_code, sizes.code_whole, count, panels.codes_turned, sizes.code, own, whole, whole)
        add_products(u, whole, 1, count, sizes.width, d_code, sizes.code_whole, sizes.code_whole, sums.codes)
        summed(d_code, count, sizes.code_whole, sizes.code_whole, lanes, sums.codes_bias)
        given(own, whole, 0, first, count, sizes.width, lanes, du)
    hold(space)
