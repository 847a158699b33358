"""Both mixes of a wide block: matrix products with the passes of `wide_kernels` between them.

Each is Σ_i z̃_i (x K)_i, with x = u/rms and K (h, i·2p) for the drive, x = s and K (2p, i·h) for the readout, which is
divided by its rms afterwards. Rows are taken in parts where the temporaries would be too large.
"""

from tides.kernels.triton.buffers import Buffer
from tides.kernels.triton.wide_kernels import (
    both_sums_kernel,
    divide_kernel,
    drive_backward_kernel,
    drive_kernel,
    readout_backward_kernel,
    readout_kernel,
)
from tides.kernels.triton.wide_mix import Mix, Norms, OuterSums, Rows, rows_of
from tides.kernels.triton.wide_pass import Shares, WidePass, row_tile
from tides.kernels.triton.wide_products import Halves, room_for_halves


def drive(run: WidePass) -> None:
    """v (n, 2p) of u (n, h) and z̃ (n, i), zero over padding, and the inverse rms (n, h)."""
    plan, mix = run.plan, Mix(run, "drive")
    h, planes, width = mix.width, mix.planes, mix.code * mix.planes
    matrix = mix.weights.matrix(by_plane=False, signed=False)
    forms = mix.weights.forms() if mix.norm else None
    for rows in rows_of(run, width):
        n, u = rows.size, mix.part("u", rows, h)
        if forms is None:
            halves = mix.halve(rows, u, h)
        else:
            square, halves = mix.squares(rows, forms), room_for_halves(plan, n, h)
            grid, tile = row_tile(n, h)
            plan.launch(
                divide_kernel, grid, square, u, mix.part("drive rms", rows, h), *halves, n, **tile, EPS=run.config.eps
            )
            plan.release(square)
        found = mix.product(n, halves, matrix, h, width)
        grid, tile = row_tile(n, planes)
        tensors = (*found, mix.codes(rows), run.valid, mix.part("drive", rows, planes))
        plan.launch(drive_kernel, grid, *tensors, n, rows.start, **tile, I=mix.code, **run.has_valid)
        plan.release(found.product, *halves)
    plan.release(*matrix, *([] if forms is None else [forms]))


def drive_backward(run: WidePass, gradient: Buffer, du: Buffer, d_packed: Buffer) -> tuple[Buffer, Buffer]:
    """Gradients of the code, and of the code through the norm, from that of v; that of u is added to `du`."""
    plan, mix = run.plan, Mix(run, "drive")
    h, planes, width = mix.width, mix.planes, mix.code * mix.width
    d_code, parts = run.room(mix.code), rows_of(run, width)
    norms = Norms(mix, parts)
    matrix = mix.weights.matrix(by_plane=True, signed=False)
    for rows in parts:
        n, g = rows.size, rows.of(gradient, planes)
        halves = mix.halve(rows, g, planes, clear=run.shape.masked)
        found = mix.product(n, halves, matrix, planes, width)
        d_square = norms.room(n)
        grid, tile = row_tile(n, h)
        inputs = (*found, mix.codes(rows), mix.part("u", rows, h), mix.part("drive rms", rows, h))
        outputs = (rows.of(d_code, mix.code), rows.of(du, h), d_square)
        plan.launch(drive_backward_kernel, grid, *inputs, *outputs, n, **tile, I=mix.code, NORM=mix.norm)
        plan.release(found.product, *halves)
        norms.add(rows, d_square)
        norms.release(d_square)
    plan.release(*matrix)
    sums = OuterSums(mix, gradient, run.parts["u"], run.parts.get("drive rms"))
    mix.weights.gradients(sums.d_kernel, sums.largest, norms.finish(), d_packed)
    sums.release()
    plan.release(*norms.products)
    return d_code, norms.d_code


def readout(run: WidePass) -> Buffer:
    """From the planes s (n, 2p): y (n, h), the inverse rms and Re(C s) are kept; drop(GELU(y)) is returned."""
    plan, mix = run.plan, Mix(run, "readout")
    h, planes, width = mix.width, mix.planes, mix.code * mix.width
    activated = run.room(h)
    matrix = mix.weights.matrix(by_plane=True, signed=True)
    forms = mix.weights.forms() if mix.norm else None
    for rows in rows_of(run, width):
        n, square = rows.size, mix.squares(rows, forms)
        halves = mix.halve(rows, mix.part("states", rows, planes), planes)
        found = mix.product(n, halves, matrix, planes, width)
        grid, tile = row_tile(n, h)
        inputs = (*found, mix.codes(rows), square, mix.part("u", rows, h), run.weight("skip"), run.valid, run.seed)
        outputs = (*(mix.part(name, rows, h) for name in ("readout rms", "mixed", "y")), rows.of(activated, h))
        plan.launch(
            readout_kernel, grid, *inputs, *outputs, n, rows.start, run.config.factor, **tile, I=mix.code,
            EPS=run.config.eps, NORM=mix.norm, **run.has_valid, DROP=run.config.dropout,
        )  # fmt: skip
        plan.release(found.product, *halves, *([square] if mix.norm else []))
    plan.release(*matrix, *([] if forms is None else [forms]))
    return activated


def readout_backward(
    run: WidePass, shares: Shares, d_activated: Buffer, du: Buffer, d_packed: Buffer
) -> tuple[Buffer, Buffer, Buffer]:
    """Gradients of s and of the code, and of the code through the norm; that of u through skip goes to `du`.

    With g = dy/rms and K_i = K[:, i]ᵀ, the products g K_i lead to both ds = Σ_i z̃_i g K_i and dz̃_i = s · g K_i.
    """
    plan, mix = run.plan, Mix(run, "readout")
    n, h, planes, width = run.rows, mix.width, mix.planes, mix.code * mix.planes
    parts = rows_of(run, width)
    ds, d_code = run.room(planes), run.room(mix.code)
    norms = Norms(mix, parts)
    divided, d_square, halves = run.room(h), norms.room(n), room_for_halves(plan, n, h)
    whole = Rows(0, n)
    inputs = (d_activated, run.parts["y"], run.parts["u"], run.weight("skip"), run.valid, run.seed)
    norm_inputs = (mix.part("readout rms", whole, h), mix.part("mixed", whole, h))
    outputs = (divided, *halves, du, d_square, shares.of("skip"))
    grid, tile = shares.tile(h)
    plan.launch(
        readout_backward_kernel, grid, *inputs, *norm_inputs, *outputs, n, shares.width, run.config.factor, **tile,
        NORM=mix.norm, **run.has_valid, DROP=run.config.dropout,
    )  # fmt: skip
    matrix = mix.weights.matrix(by_plane=False, signed=True)
    for rows in parts:
        own = Halves(rows.of(halves.parts, 3 * h), rows.of(halves.units, 1))
        found = mix.product(rows.size, own, matrix, h, width)
        states = mix.part("states", rows, planes)
        grid, tile = row_tile(rows.size, planes)
        tensors = (*found, mix.codes(rows), states, rows.of(d_code, mix.code), rows.of(ds, planes))
        plan.launch(both_sums_kernel, grid, *tensors, rows.size, **tile, I=mix.code)
        plan.release(found.product)
        norms.add(rows, rows.of(d_square, h))
    plan.release(*matrix, *halves)
    norms.release(d_square)
    sums = OuterSums(mix, run.parts["states"], divided)
    plan.release(divided)
    mix.weights.gradients(sums.d_kernel, sums.largest, norms.finish(), d_packed)
    sums.release()
    plan.release(*norms.products)
    return ds, d_code, norms.d_code
