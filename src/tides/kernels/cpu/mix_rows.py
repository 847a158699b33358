"""One mix over a tile of steps: out_t = Σ_i z̃_ti (x_t K_i), its column norms, and their gradients."""

from tides.kernels.cpu.column_loops import add_symmetric, monomials, turned, turned_panels
from tides.kernels.cpu.intervals import compiled
from tides.kernels.cpu.products import add_products, add_scaled_rows, linear_rows, scaled_rows_backward


@compiled
def _half(i, count, later):  # type: ignore[no-untyped-def]
    """What the product of entry i calls for: one half of four arrays after the other, of 32 numbers per step."""
    which = (i // 2) % 4
    source = later[0] if which == 0 else later[1] if which == 1 else later[2] if which == 2 else later[3]
    return source[(i % 2) * count * (64 // source.itemsize) :]


@compiled
def mix_forward(x, x_step, depth, count, code, code_step, size, kernel, out, columns, later):  # type: ignore[no-untyped-def]
    """out (count, columns) from x (count, depth) and the code; `later`: four arrays that are needed soon."""
    out[: count * columns] = out.dtype.type(0)
    for i in range(size):
        matrix = kernel[i * depth * columns :]
        add_scaled_rows(
            x, x_step, count, matrix, depth, code[i:], code_step, out, columns, columns, _half(i, count, later)
        )


@compiled
def mix_backward(  # type: ignore[no-untyped-def]
    gradient, outputs, out_columns, count, code, code_step, size, back, x, inputs, in_columns, work,
    d_x, d_code, d_step, d_kernel, later,
):  # fmt: skip
    """d_x and the mix's share of `d_code` (i, step); that of K is added to `d_kernel` (i, inputs, out_columns)."""
    d_x[: count * in_columns] = d_x.dtype.type(0)
    for i in range(size):
        matrix = back[i * outputs * in_columns :]
        scaled_rows_backward(
            gradient, out_columns, count, matrix, outputs, code[i:], code_step, x, d_x, in_columns, in_columns,
            d_code[i * d_step :], work, _half(i, count, later),
        )  # fmt: skip
        own = d_kernel[i * inputs * out_columns :]
        add_products(work, in_columns, 1, count, inputs, gradient, out_columns, out_columns, own)


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
