"""The products of a mix, out_t = Σ_i z̃_ti (x_t K_i), and its gradients: sums over i stay in registers, too."""

from typing import Any

from numba import types
from numba.extending import intrinsic

from tides.kernels.cpu.intervals import compiled
from tides.kernels.cpu.products import Arguments, are_flat, over_panels, over_rows, row_sums
from tides.kernels.cpu.vectors import LINE, TILE_ROWS, carried, whole

_emitted: Any = intrinsic
_count = types.intp
# Rows at once where each has a sum over k and one over i, two vectors wide.
_ROWS = TILE_ROWS * 3 // 4


def _call_for(of: Arguments, later: list[Any], i: Any, t: Any, count: Any, rows: int) -> None:
    """Entry i calls for one half of four arrays after the other, a line per row, into the second cache."""
    builder, line = of.builder, LINE * 8 // of.bits
    which, half = builder.and_(builder.lshr(i, whole(1)), whole(3)), builder.and_(i, whole(1))
    array = later[3]
    for k in range(3):
        array = builder.select(builder.icmp_unsigned("==", which, whole(k)), later[k], array)
    first = builder.add(builder.mul(half, count), t)
    for r in range(rows):
        of.lanes.prefetch(of.row(array, builder.add(first, whole(r)), whole(line)))


@_emitted
def _mix_forward(_, x, x_step, depth, count, code, code_step, size, kernel, out, columns, first, second, third, last):  # type: ignore[no-untyped-def]
    """The body of `mix_forward`."""

    def generate(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        of = Arguments(context, builder, found, arguments)
        x, x_step, depth, count, code, code_step, size, kernel, out, columns, *later = of.values
        lanes, matrix = of.lanes, builder.mul(depth, columns)

        def panel(column: Any, width: int) -> None:
            begin = of.row(kernel, column, depth)

            def tile(t: Any, rows: int) -> None:
                steps, nothing = [builder.add(t, whole(r)) for r in range(rows)], [lanes.zero] * (rows * width)

                def entry(i: Any, totals: list[Any]) -> list[Any]:
                    _call_for(of, later, i, t, count, rows)
                    own = of.row(begin, i, matrix)
                    found = []
                    for r, sums in enumerate(row_sums(of, x, x_step, t, rows, own, depth, nothing)):
                        factor = lanes.spread_from(of.row(code, steps[r], code_step), i)
                        found += [lanes.multiply_add(factor, s, totals[r * width + v]) for v, s in enumerate(sums)]
                    return found

                totals = carried(builder, (whole(0), size, 1), nothing, entry)
                for r, step in enumerate(steps):
                    of.put(totals[r * width : (r + 1) * width], of.row(out, step, columns, column))

            over_rows(builder, count, _ROWS, tile)

        over_panels(builder, columns, lanes, panel)
        return context.get_dummy_value()

    fits = are_flat(x, code, kernel, out, first, second, third, last)
    kinds = (x, _count, _count, _count, code, _count, _count, kernel, out, _count, first, second, third, last)
    return (types.void(*kinds), generate) if fits else None


@_emitted
def _inputs_backward(  # type: ignore[no-untyped-def]
    _, gradient, g_step, depth, count, code, code_step, size, turned, x, d_x, columns, d_code, d_step, scaled, s_step,
    first, second, third, last,
):  # fmt: skip
    """The body of `inputs_backward`."""

    def generate(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        of = Arguments(context, builder, found, arguments)
        gradient, g_step, depth, count, code, code_step, size, turned, x, d_x, columns = of.values[:11]
        d_code, d_step, scaled, s_step, *later = of.values[11:]
        lanes, matrix = of.lanes, builder.mul(depth, columns)

        def panel(column: Any, width: int) -> None:
            begin = of.row(turned, column, depth)

            def tile(t: Any, rows: int) -> None:
                steps, nothing = [builder.add(t, whole(r)) for r in range(rows)], [lanes.zero] * (rows * width)

                def entry(i: Any, totals: list[Any]) -> list[Any]:
                    _call_for(of, later, i, t, count, rows)
                    own, target = of.row(begin, i, matrix), of.row(scaled, i, s_step)
                    found, products = [], []
                    for r, q in enumerate(row_sums(of, gradient, g_step, t, rows, own, depth, nothing)):
                        factor = lanes.spread_from(of.row(code, steps[r], code_step), i)
                        found += [lanes.multiply_add(factor, s, totals[r * width + v]) for v, s in enumerate(q)]
                        values, place = of.vectors(of.row(x, steps[r], columns, column), width), steps[r]
                        of.put(
                            [lanes.multiply(factor, each) for each in values], of.row(target, place, columns, column)
                        )
                        along = lanes.zero
                        for s, value in zip(q, values, strict=True):
                            along = lanes.multiply_add(s, value, along)
                        products.append(along)
                    lanes.add_sums(products, of.row(d_code, i, d_step, t))
                    return found

                totals = carried(builder, (whole(0), size, 1), nothing, entry)
                for r, step in enumerate(steps):
                    of.put(totals[r * width : (r + 1) * width], of.row(d_x, step, columns, column))

            over_rows(builder, count, _ROWS, tile)

        over_panels(builder, columns, lanes, panel)
        return context.get_dummy_value()

    fits = are_flat(gradient, code, turned, x, d_x, d_code, scaled, first, second, third, last)
    kinds = (
        gradient, _count, _count, _count, code, _count, _count, turned, x, d_x, _count, d_code, _count, scaled, _count,
        first, second, third, last,
    )  # fmt: skip
    return (types.void(*kinds), generate) if fits else None


@compiled
def mix_forward(x, x_step, depth, count, code, code_step, size, kernel, out, columns, later):  # type: ignore[no-untyped-def]
    """out (count, columns) = Σ_i z̃_ti (x_t K_i) from x (count, depth) and panels of K_i, one matrix behind the other.

    Meanwhile memory is called for that is needed soon: `later`, four arrays of 32 numbers per row.
    """
    _mix_forward(x, x_step, depth, count, code, code_step, size, kernel, out, columns, *later)


@compiled
def inputs_backward(  # type: ignore[no-untyped-def]
    gradient, g_step, depth, count, code, code_step, size, turned, x, d_x, columns, d_code, d_step, scaled, s_step,
    later,
):  # fmt: skip
    """Gradients of x and z̃ behind `mix_forward`, whose matrices are given `turned`.

    With q_ti = gradient[t, :depth] · turned_i, d_x[t] = Σ_i z̃_ti q_ti and d_code[i, t] += Σ x[t] q_ti. On the way
    scaled[i, t] = z̃_ti x[t], of which the gradients of K are made; `later` as above.
    """
    _inputs_backward(
        gradient, g_step, depth, count, code, code_step, size, turned, x, d_x, columns, d_code, d_step, scaled, s_step,
        *later,
    )  # fmt: skip
