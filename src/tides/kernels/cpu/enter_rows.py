"""The part of a block before its scan, compiled: norm, codes, decay rates and drive, and their gradients."""

from tides.kernels.cpu.column_loops import inverse_norms, turned_back
from tides.kernels.cpu.intervals import compiled
from tides.kernels.cpu.mix_products import mix_forward
from tides.kernels.cpu.mix_rows import columns_backward, mix_backward
from tides.kernels.cpu.products import add_products, add_rows, linear_rows
from tides.kernels.cpu.rates import reparameterised, slopes
from tides.kernels.cpu.row_loops import (
    added,
    entered,
    given,
    left,
    masked,
    modes_backward,
    normalised_modes,
    summed,
    summed_products,
    taken,
)
from tides.kernels.cpu.scratch import borrowed, hold, rooms
from tides.kernels.cpu.vectors import widest_registers

# Steps of a tile: what a pass touches at once stays in a core's nearest caches.
TILE = 96


@compiled
def _project(x, first, count, valid, panels, sizes, u, heads):  # type: ignore[no-untyped-def]
    entered(x, first, count, sizes.width, sizes.whole, sizes.lanes, panels.scale, panels.shift, valid, u)
    step = sizes.heads
    linear_rows(u, sizes.whole, count, panels.heads, sizes.width, heads, step, step)


@compiled
def enter_forward(x, valid, panels, sizes, settings, begin, end, decay, drive):  # type: ignore[no-untyped-def]
    """`decay` (n, p) and `drive` (n, 2p) of steps [begin, end)."""
    widest_registers()
    x, valid, panels, decay, drive = borrowed((x, valid, panels, decay, drive))
    whole, step = sizes.whole, sizes.heads
    space, (u, inverse, heads, out, scales) = rooms(
        (TILE * whole, TILE * whole, (TILE + 1) * step, TILE * sizes.planes_whole, TILE), x
    )
    for first in range(begin, end, TILE):
        count = min(TILE, end - first)
        _project(x, first, count, valid, panels, sizes, u, heads)
        normalised_modes(
            heads, step, sizes.code_whole, count, sizes.modes, sizes.lanes, panels.rate_norm, settings.rates_normed,
            settings.eps, scales, decay, first * sizes.modes,
        )  # fmt: skip
        if panels.drive_forms.size > 0:
            eps = x.dtype.type(settings.eps)
            inverse_norms(heads, step, count, sizes.code, panels.drive_triangles, eps, inverse, whole)
            multiplied(u, inverse, u)
        following, target = x[(first + count) * sizes.width :], drive[first * sizes.planes :]
        mix_forward(
            u, whole, sizes.width, count, heads, step, sizes.code, panels.drive, out, sizes.planes_whole,
            (following, target, following, target),
        )  # fmt: skip
        given(out, sizes.planes_whole, 0, first, count, sizes.planes, sizes.lanes, drive)
    reparameterised(decay[begin * sizes.modes : end * sizes.modes], settings.reparam, settings.limit)
    hold(space)


@compiled
def d_square(u, inverse, du):  # type: ignore[no-untyped-def]
    """du arrives as the gradient of u · inverse and becomes that of u; `inverse` that of the mean square."""
    widest_registers()
    half = inverse.dtype.type(-0.5)
    for j in range(u.size):
        du[j] *= inverse[j]
    for j in range(u.size):
        inverse[j] = half * inverse[j] * inverse[j] * u[j] * du[j]


@compiled
def multiplied(x, factor, out):  # type: ignore[no-untyped-def]
    for j in range(out.size):
        out[j] = x[j] * factor[j]


@compiled
def enter_backward(x, valid, panels, sizes, settings, begin, end, d_decay, d_drive, d_later, gradient, sums, dx):  # type: ignore[no-untyped-def]
    """`dx` (n, h): the residual's `gradient` and what flows through u, of which `d_later` is known.

    `d_later` may be the memory of `dx`.
    """
    widest_registers()
    x, valid, panels, sums, dx = borrowed((x, valid, panels, sums, dx))
    d_decay, d_drive, d_later, gradient = borrowed((d_decay, d_drive, d_later, gradient))
    whole, step, lanes, size = sizes.whole, sizes.heads, sizes.lanes, sizes.code
    rows, of_heads, of_code = TILE * whole, (TILE + 1) * step, TILE * size
    space, parts = rooms(
        (rows, rows, rows, rows, rows * size, of_heads, of_heads, TILE * sizes.planes_whole, TILE * sizes.modes, TILE,
         of_code, of_code, TILE * sizes.monomials, TILE * (whole + 1)), x,
    )  # fmt: skip
    u, inverse, scaled, du, work, heads, d_heads, out, rates, scales = parts[:10]
    code, d_code, products, slopes_turned = parts[10:]
    normed = panels.drive_forms.size > 0
    for first in range(begin, end, TILE):
        count = min(TILE, end - first)
        _project(x, first, count, valid, panels, sizes, u, heads)
        d_code[:] = x.dtype.type(0)
        normalised_modes(
            heads, step, sizes.code_whole, count, sizes.modes, lanes, panels.rate_norm, settings.rates_normed,
            settings.eps, scales, rates, 0,
        )  # fmt: skip
        d_rates = d_decay[first * sizes.modes : (first + count) * sizes.modes]
        slopes(rates[: count * sizes.modes], settings.reparam, settings.limit, d_rates)
        modes_backward(
            heads, step, sizes.code_whole, count, sizes.modes, lanes, panels.rate_norm, settings.rates_normed, scales,
            rates, d_heads, sums.rate_norm,
        )  # fmt: skip
        taken(d_drive, first, count, sizes.planes, lanes, out, sizes.planes_whole, 0)
        source, after = u, (first + count) * sizes.width
        if normed:
            inverse_norms(heads, step, count, size, panels.drive_triangles, x.dtype.type(settings.eps), inverse, whole)
            multiplied(u, inverse, scaled)
            source = scaled
        mix_backward(
            out, sizes.planes, sizes.planes_whole, count, heads, step, size, panels.drive_turned, source, sizes.width,
            whole, work, du, d_code, TILE, sums.drive,
            (x[after:], d_drive[(first + count) * sizes.planes :], d_later[after:], gradient[after:]),
        )  # fmt: skip
        if normed:
            d_square(u, inverse, du)
            columns_backward(
                inverse, whole, count, heads, step, size, panels.drive_forms, lanes, code, slopes_turned, products,
                d_code, TILE, sums.drive_forms,
            )  # fmt: skip
        turned_back(d_code, TILE, count, size, d_heads, step)
        added(d_later, first, count, sizes.width, lanes, du, whole)
        add_rows(d_heads, step, count, panels.heads_turned, step, du, whole, whole)
        masked(du, first, count, whole, valid)
        add_products(u, whole, 1, count, sizes.width, d_heads, step, step, sums.heads)
        summed(d_heads, count, step, step, lanes, sums.heads_bias)
        summed_products(du, u, count, whole, lanes, sums.scale)
        summed(du, count, whole, whole, lanes, sums.shift)
        left(gradient, first, count, sizes.width, whole, lanes, du, panels.scale, dx)
    hold(space)
