"""The gradients of a mix over a tile of steps, and those of its column norms."""

from tides.kernels.cpu.column_loops import add_symmetric, monomials, turned, turned_panels
from tides.kernels.cpu.intervals import compiled
from tides.kernels.cpu.mix_products import inputs_backward
from tides.kernels.cpu.products import add_products, linear_rows


@compiled
def mix_backward(  # type: ignore[no-untyped-def]
    gradient, outputs, out_columns, count, code, code_step, size, back, x, inputs, in_columns, work,
    d_x, d_code, d_step, d_kernel, later,
):  # fmt: skip
    """d_x and the mix's share of `d_code` (i, step); that of K is added to `d_kernel` (i, inputs, out_columns)."""
    scaled = d_step * in_columns
    inputs_backward(
        gradient, out_columns, outputs, count, code, code_step, size, back, x, d_x, in_columns, d_code, d_step, work,
        scaled, later,
    )  # fmt: skip
    for i in range(size):
        own = d_kernel[i * inputs * out_columns :]
        add_products(work[i * scaled :], in_columns, 1, count, inputs, gradient, out_columns, out_columns, own)


@compiled
def columns_backward(  # type: ignore[no-untyped-def]
    d_square, columns, count, code, code_step, size, forms, lanes, code_turned, panels, work, d_code, d_step, d_forms
):
    """The norms' share of `d_code` (i, step) from the gradient of the mean squares; that of G is added to `d_forms`.

    d_code_i = Σ_j z̃_j Σ_h d_square_h 2G_h[i, j]: a product for the pairs i ≤ j, then steps side by side.
    """
    pairs = d_forms.size // columns
    turned(code, code_step, count, size, code_turned, d_step)
    monomials(code_turned, size, d_step, lanes, work)
    add_products(work, 1, d_step, count, pairs, d_square, columns, columns, d_forms)
    turned_panels(d_square, d_step, columns, panels)
    linear_rows(forms, columns, pairs, panels, columns, work, d_step, d_step)
    add_symmetric(work, code_turned, size, d_step, lanes, d_code)
