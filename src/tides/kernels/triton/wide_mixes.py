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
from tides.kernels.triton.wide_mix import Mix, NormGradients, OuterSums, weight_gradients
from tides.kernels.triton.wide_pass import Shares, WidePass, row_tile
from tides.kernels.triton.wide_products import room_for_halves


def drive(run: WidePass) -> None:
    """v (n, 2p) of u (n, h) and z̃ (n, i), zero over padding, and the inverse rms (n, h)."""
    plan, mix = run.plan, Mix(run, "drive")
    n, h, planes, u = run.rows, mix.width, mix.planes, run.parts["u"]
    if mix.norm:
        square, halves = mix.squares(), room_for_halves(plan, n, h)
        grid, tile = row_tile(n, h)
        plan.launch(
            divide_kernel, grid, square, u, mix.kept("drive rms"), *halves, n, **tile, EPS=run.config.eps
        )  # fmt: skip
        plan.release(square)
    else:
        halves = mix.halve(u, h)
    matrix = mix.weights.matrix(by_plane=False, signed=False)
    for rows, product in mix.products(halves, matrix, h, mix.code * planes):
        grid, tile = row_tile(rows.size, planes)
        tensors = (*product, mix.codes(rows), run.valid, mix.part("drive", rows, planes))
        plan.launch(drive_kernel, grid, *tensors, *rows[::-1], **tile, I=mix.code, **run.has_valid)


def drive_backward(run: WidePass, gradient: Buffer, du: Buffer, d_packed: Buffer) -> list[Buffer]:
    """Gradients of the code, one from the mix and one from its norm, from that of v; that of u is added to `du`."""
    plan, mix = run.plan, Mix(run, "drive")
    h, planes = mix.width, mix.planes
    d_code, d_square = run.room(mix.code), run.room(h) if mix.norm else run.parts["u"]
    halves = mix.halve(gradient, planes, clear=run.shape.masked)
    matrix = mix.weights.matrix(by_plane=True, signed=False)
    for rows, product in mix.products(halves, matrix, planes, mix.code * h):
        grid, tile = row_tile(rows.size, h)
        inputs = (*product, mix.codes(rows), mix.part("u", rows, h), mix.part("drive rms", rows, h))
        outputs = (rows.of(d_code, mix.code), rows.of(du, h), rows.of(d_square, h))
        plan.launch(drive_backward_kernel, grid, *inputs, *outputs, rows.size, **tile, I=mix.code, NORM=mix.norm)
    norms = NormGradients(mix, d_square) if mix.norm else None
    sums = OuterSums(mix, gradient, run.parts["u"], run.parts.get("drive rms"))
    weight_gradients(mix, sums, norms, d_packed)
    if norms is None:
        return [d_code]
    plan.release(d_square)
    return [d_code, norms.d_code]


def readout(run: WidePass) -> Buffer:
    """From the planes s (n, 2p): y (n, h), the inverse rms and Re(C s) are kept; drop(GELU(y)) is returned."""
    plan, mix = run.plan, Mix(run, "readout")
    h, planes = mix.width, mix.planes
    activated, square = run.room(h), mix.squares() if mix.norm else run.parts["u"]
    halves = mix.halve(run.parts["states"], planes)
    matrix = mix.weights.matrix(by_plane=True, signed=True)
    for rows, product in mix.products(halves, matrix, planes, mix.code * h):
        grid, tile = row_tile(rows.size, h)
        inputs = (*product, mix.codes(rows), rows.of(square, h), mix.part("u", rows, h), run.weight("skip"))
        outputs = (*(mix.part(name, rows, h) for name in ("readout rms", "mixed", "y")), rows.of(activated, h))
        plan.launch(
            readout_kernel, grid, *inputs, run.valid, run.seed, *outputs, *rows[::-1], run.config.factor, **tile,
            I=mix.code, EPS=run.config.eps, NORM=mix.norm, **run.has_valid, DROP=run.config.dropout,
        )  # fmt: skip
    if mix.norm:
        plan.release(square)
    return activated


def readout_backward(
    run: WidePass, shares: Shares, d_activated: Buffer, du: Buffer, d_packed: Buffer
) -> tuple[Buffer, list[Buffer]]:
    """Gradients of s and of the code, one from the mix and one from its norm; that of u through skip goes to `du`.

    With g = dy/rms and K_i = K[:, i]ᵀ, the products g K_i lead to both ds = Σ_i z̃_i g K_i and dz̃_i = s · g K_i.
    """
    plan, mix = run.plan, Mix(run, "readout")
    n, h, planes = run.rows, mix.width, mix.planes
    ds, d_code, divided, halves = run.room(planes), run.room(mix.code), run.room(h), room_for_halves(plan, n, h)
    d_square = run.room(h) if mix.norm else divided
    inputs = (d_activated, run.parts["y"], run.parts["u"], run.weight("skip"), run.valid, run.seed)
    outputs = (divided, *halves, du, d_square, shares.of("skip"))
    grid, tile = shares.tile(h)
    plan.launch(
        readout_backward_kernel, grid, *inputs, mix.kept("readout rms"), mix.kept("mixed"), *outputs, n, shares.width,
        run.config.factor, **tile, NORM=mix.norm, **run.has_valid, DROP=run.config.dropout,
    )  # fmt: skip
    matrix = mix.weights.matrix(by_plane=False, signed=True)
    for rows, product in mix.products(halves, matrix, h, mix.code * planes):
        grid, tile = row_tile(rows.size, planes)
        states, change = mix.part("states", rows, planes), rows.of(ds, planes)
        tensors = (*product, mix.codes(rows), states, rows.of(d_code, mix.code), change)
        plan.launch(both_sums_kernel, grid, *tensors, rows.size, **tile, I=mix.code)
    norms = NormGradients(mix, d_square) if mix.norm else None
    sums = OuterSums(mix, run.parts["states"], divided)
    weight_gradients(mix, sums, norms, d_packed)
    plan.release(divided)
    if norms is None:
        return ds, [d_code]
    plan.release(d_square)
    return ds, [d_code, norms.d_code]
