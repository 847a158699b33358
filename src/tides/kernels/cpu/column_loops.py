"""Column norms of a mix over rows of steps: 1/√(mean_p |B_k[p, h]|² + eps), and their gradients.

The mean square is a quadratic form z̃ᵀ G_h z̃. With G_h = R_hᵀ R_h it is the squared length of R_h z̃, which loses no more
digits than z̃ has, so it is taken in the precision of the data. R and G are made in float64.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from tides.kernels.cpu.intervals import compiled
from tides.kernels.cpu.lane_values import load, store
from tides.kernels.cpu.products import Arguments, are_flat, over_panels, over_rows
from tides.kernels.cpu.vectors import carried, repeated, whole

_emitted: Any = intrinsic
_count = types.intp
# Rows at once: for each there are a sum and a sum of squares, two vectors wide.
_ROWS = 4
# A pivot this small beside its diagonal is rounding: the columns before it hold everything.
_NOTHING = 1e-14


@compiled
def gram(columns, out):  # type: ignore[no-untyped-def]
    """out[i, j, h] = 2/count Σ_c columns[c, i, h] columns[c, j, h]: the mean over complex numbers."""
    count, size, width = columns.shape
    scale = 2.0 / count
    for i in range(size):
        for j in range(i, size):
            for h in range(width):
                out[i, j, h] = 0.0
            for c in range(count):
                for h in range(width):
                    out[i, j, h] += columns[c, i, h] * columns[c, j, h]
            for h in range(width):
                out[i, j, h] *= scale
            for h in range(width):
                out[j, i, h] = out[i, j, h]


@compiled
def triangle(form, out):  # type: ignore[no-untyped-def]
    """R with Rᵀ R = form for every h: out[i, j, h] for i ≤ j; rows that add nothing are zero."""
    size, width = form.shape[0], form.shape[2]
    inverse = np.empty(width)
    for i in range(size):
        for j in range(i, size):
            for h in range(width):
                out[i, j, h] = form[i, j, h]
            for k in range(i):
                for h in range(width):
                    out[i, j, h] -= out[k, i, h] * out[k, j, h]
            if i == j:
                for h in range(width):
                    pivot = out[i, i, h]
                    inverse[h] = 1.0 / np.sqrt(pivot) if pivot > _NOTHING * form[i, i, h] else 0.0
            for h in range(width):
                out[i, j, h] *= inverse[h]


@_emitted
def inverse_norms(_, code, code_step, count, size, triangles, eps, out, columns):  # type: ignore[no-untyped-def]
    """out[t, :columns] = 1/√(|R z̃_t|² + eps); `triangles` are panels of R's rows, each from its diagonal on."""

    def generate(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        of = Arguments(context, builder, found, arguments)
        code, code_step, count, size, triangles, eps, out, columns = of.values
        lanes = of.lanes
        entries = builder.udiv(builder.mul(size, builder.add(size, whole(1))), whole(2))

        def panel(column: Any, width: int) -> None:
            begin = of.row(triangles, column, entries)

            def tile(t: Any, rows: int) -> None:
                codes = [of.row(code, builder.add(t, whole(r)), code_step) for r in range(rows)]

                def add_row(i: Any, carry: list[Any]) -> list[Any]:
                    at, squares = carry[0], carry[1:]

                    def add(j: Any, sums: list[Any]) -> list[Any]:
                        matrix = of.vectors(
                            of.row(begin, builder.add(at, builder.sub(j, i)), whole(width * lanes.count)), width
                        )
                        found = []
                        for r in range(rows):
                            factor = lanes.spread_from(codes[r], j)
                            found += [lanes.multiply_add(factor, matrix[v], sums[r * width + v]) for v in range(width)]
                        return found

                    sums = carried(builder, (i, size, 1), [lanes.zero] * (rows * width), add)
                    following = builder.add(at, builder.sub(size, i))
                    pairs = zip(sums, squares, strict=True)
                    return [following, *(lanes.multiply_add(x, x, square) for x, square in pairs)]

                start = [whole(0), *[lanes.spread(eps)] * (rows * width)]
                squares = carried(builder, (whole(0), size, 1), start, add_row)[1:]
                for r in range(rows):
                    roots = [lanes.inverse_root(each) for each in squares[r * width : (r + 1) * width]]
                    of.put(roots, of.row(out, builder.add(t, whole(r)), columns, column))

            over_rows(builder, count, _ROWS, tile)

        over_panels(builder, columns, lanes, panel)
        return context.get_dummy_value()

    fits = are_flat(code, triangles, out) and eps == out.dtype
    return (types.void(code, _count, _count, _count, triangles, eps, out, _count), generate) if fits else None


@_emitted
def norms_backward(_, code, code_step, count, size, forms, d_square, columns, d_code):  # type: ignore[no-untyped-def]
    """d_code[t, i] += 2 Σ_h d_square[t, h] (G_h z̃_t)_i; `forms` are panels of [i][j]."""

    def generate(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        of = Arguments(context, builder, found, arguments)
        code, code_step, count, size, forms, d_square, columns, d_code = of.values
        lanes, entries = of.lanes, builder.mul(size, size)

        def panel(column: Any, width: int) -> None:
            begin = of.row(forms, column, entries)

            def tile(t: Any, rows: int) -> None:
                steps = [builder.add(t, whole(r)) for r in range(rows)]
                codes = [of.row(code, step, code_step) for step in steps]
                slopes = [
                    [builder.fadd(x, x) for x in of.vectors(of.row(d_square, step, columns, column), width)]
                    for step in steps
                ]

                def add_row(i: Any) -> None:
                    row = builder.mul(i, size)

                    def add(j: Any, sums: list[Any]) -> list[Any]:
                        matrix = of.vectors(of.row(begin, builder.add(row, j), whole(width * lanes.count)), width)
                        found = []
                        for r in range(rows):
                            factor = lanes.spread_from(codes[r], j)
                            found += [lanes.multiply_add(factor, matrix[v], sums[r * width + v]) for v in range(width)]
                        return found

                    sums = carried(builder, (whole(0), size, 1), [lanes.zero] * (rows * width), add)
                    for r in range(rows):
                        along = lanes.zero
                        for v in range(width):
                            along = lanes.multiply_add(sums[r * width + v], slopes[r][v], along)
                        place = of.row(d_code, steps[r], code_step, i)
                        builder.store(builder.fadd(builder.load(place), lanes.sum(along)), place)

                repeated(builder, (whole(0), size, 1), add_row)

            over_rows(builder, count, _ROWS, tile)

        over_panels(builder, columns, lanes, panel)
        return context.get_dummy_value()

    fits = are_flat(code, forms, d_square, d_code)
    kinds = (code, _count, _count, _count, forms, d_square, _count, d_code)
    return (types.void(*kinds), generate) if fits else None


@compiled
def monomials(code, code_step, count, size, lanes, out, out_step):  # type: ignore[no-untyped-def]
    """out[t] = z̃_i z̃_j for i ≤ j, row behind row; up to a vector of rubbish follows, in rows of code as well."""
    for t in range(count):
        at = t * out_step
        for i in range(size):
            begin = t * code_step + i
            factor = code[np.uint64(begin)]
            for j in range(0, size - i, lanes):
                store(load(code, begin + j) * factor, out, at + j)
            at += size - i
