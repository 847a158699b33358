"""Column norms of a mix over rows of steps: 1/√(mean_p |B_k[p, h]|² + eps), and their gradients.

The mean square is a quadratic form z̃ᵀ G_h z̃. With G_h = R_hᵀ R_h it is the squared length of R_h z̃, which loses no more
digits than z̃ has, so it is taken in the precision of the data. R and G are made in float64.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from tides.kernels.cpu.intervals import compiled
from tides.kernels.cpu.lane_values import load, spread, store
from tides.kernels.cpu.products import Arguments, are_flat, over_panels, over_rows
from tides.kernels.cpu.vectors import TILE_ROWS, VECTOR, carried, repeated, whole

_emitted: Any = intrinsic
_count = types.intp
# Rows at once where each has a sum and a sum of squares, two vectors wide.
_ROWS = TILE_ROWS * 3 // 4
# A pivot this small beside its diagonal is rounding: the columns before it hold everything.
_NOTHING = 1e-14


@compiled
def gram(columns, out):  # type: ignore[no-untyped-def]
    """out[i, j, h] = 2/count Σ_c columns[c, i, h] columns[c, j, h], the mean over pairs of rows; whole vectors of h."""
    count, size, width = columns.shape
    flat, found, row = columns.reshape(-1), out.reshape(-1), size * width
    for h in range(0, width, VECTOR // columns.itemsize):
        for i in range(size):
            for j in range(i, size):
                # Real and imaginary parts by themselves: two sums hide the latency of an addition.
                total = other = spread(columns.dtype.type(0))
                for at in range(h, count * row, 2 * row):
                    total = total + load(flat, at + i * width) * load(flat, at + j * width)
                    other = other + load(flat, at + row + i * width) * load(flat, at + row + j * width)
                total = (total + other) * (2.0 / count)
                store(total, found, (i * size + j) * width + h)
                store(total, found, (j * size + i) * width + h)


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
def _inverse_norms(_, code, code_step, count, size, triangles, eps, out, columns):  # type: ignore[no-untyped-def]
    """The body of `inverse_norms`."""

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
def _turned_panels(_, x, steps, columns, out):  # type: ignore[no-untyped-def]
    """The body of `turned_panels`."""

    def generate(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        of = Arguments(context, builder, found, arguments)
        x, steps, columns, out = of.values
        lanes, size = of.lanes, of.lanes.count
        pair, length = whole(2 * size), builder.add(columns, whole(1))

        def block(t: Any, column: Any) -> None:
            rows = [of.row(x, builder.add(t, whole(r)), columns, column) for r in range(size)]
            turned = lanes.turned([lanes.load(row, whole(0)) for row in rows])
            # Panels of two vectors of steps; the row before the first column is their bias.
            panel = builder.mul(builder.mul(builder.udiv(t, pair), length), pair)
            begin = builder.add(panel, builder.urem(t, pair))
            at = builder.add(begin, builder.mul(builder.add(column, whole(1)), pair))
            for c, vector in enumerate(turned):
                lanes.put(vector, out, builder.add(at, whole(2 * size * c)))

        def row(t: Any) -> None:
            repeated(builder, (whole(0), columns, size), lambda column: block(t, column))

        repeated(builder, (whole(0), steps, size), row)
        return context.get_dummy_value()

    return (types.void(x, _count, _count, out), generate) if are_flat(x, out) else None


@compiled
def inverse_norms(code, code_step, count, size, triangles, eps, out, columns):  # type: ignore[no-untyped-def]
    """out[t, :columns] = 1/√(|R z̃_t|² + eps); `triangles` are panels of R's rows, each from its diagonal on."""
    _inverse_norms(code, code_step, count, size, triangles, eps, out, columns)


@compiled
def turned_panels(x, steps, columns, out):  # type: ignore[no-untyped-def]
    """x (steps, columns) turned, as panels of the matrix of `linear_rows`; their bias is left alone.

    `steps` are whole pairs of vectors, `columns` whole vectors.
    """
    _turned_panels(x, steps, columns, out)


@compiled
def turned(x, step, count, columns, out, out_step):  # type: ignore[no-untyped-def]
    """out[c, t] = x[t, c]."""
    for t in range(count):
        for c in range(columns):
            out[np.uint64(c * out_step + t)] = x[np.uint64(t * step + c)]


@compiled
def turned_back(x, step, count, columns, out, out_step):  # type: ignore[no-untyped-def]
    """out[t, c] = x[c, t]."""
    for t in range(count):
        for c in range(columns):
            out[np.uint64(t * out_step + c)] = x[np.uint64(c * step + t)]


@compiled
def monomials(code, size, steps, lanes, out):  # type: ignore[no-untyped-def]
    """z̃_i z̃_j for i ≤ j from z̃ turned, (size, steps) and (pairs, steps), whole vectors of steps."""
    at = 0
    for i in range(size):
        for j in range(i, size):
            for t in range(0, steps, lanes):
                store(load(code, i * steps + t) * load(code, j * steps + t), out, at + t)
            at += steps


@compiled
def add_symmetric(pairs, code, size, steps, lanes, out):  # type: ignore[no-untyped-def]
    """out[i, t] += Σ_j m[i, j, t] z̃[j, t] for symmetric m, of which `pairs` are those with i ≤ j; all (…, steps)."""
    for t in range(0, steps, lanes):
        for i in range(size):
            total, at = load(out, i * steps + t), i
            for j in range(i):
                total = total + load(pairs, at * steps + t) * load(code, j * steps + t)
                at += size - 1 - j
            for j in range(i, size):
                total = total + load(pairs, at * steps + t) * load(code, j * steps + t)
                at += 1
            store(total, out, i * steps + t)
