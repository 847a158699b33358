"""Matrix products of short rows whose sums stay in registers, for compiled passes over tiles of steps.

Rows are steps and lie in memory as the model has them, features innermost. A product walks through a few rows times two
vectors of columns at once; its matrix lies in panels, [rows][two vectors of columns] for one pair of vectors after
another, so that it is read in the order it lies in. Arrays are flat; `…_step` is the distance between rows.

Each product is emitted once, as a function of its own: passes call them in many places.
"""

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core import types as core
from numba.extending import intrinsic

from tides.kernels.cpu.intervals import compiled
from tides.kernels.cpu.vectors import TILE_ROWS, VECTOR, Lanes, carried, repeated, whole

_emitted: Any = intrinsic
_count = types.intp


class Arguments:
    """Those of an intrinsic: the data of flat arrays, and whole numbers."""

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        self.builder = builder
        self.values = [
            context.make_array(kind)(context, builder, value).data if isinstance(kind, core.Array) else value
            for kind, value in zip(signature.args, arguments, strict=True)
        ]
        real = next(kind.dtype for kind in signature.args if isinstance(kind, core.Array))
        self.lanes, self.bits = Lanes(builder, real, VECTOR), real.bitwidth

    def row(self, array: Any, t: Any, step: Any, column: Any = None) -> Any:
        """The address of an element of row t."""
        at = self.builder.mul(t, step)
        return self.builder.gep(array, [at if column is None else self.builder.add(at, column)])

    def vectors(self, pointer: Any, width: int) -> list[Any]:
        """Those that begin at an address, one behind the other."""
        return [self.lanes.load(pointer, whole(v * self.lanes.count)) for v in range(width)]

    def put(self, vectors: list[Any], pointer: Any) -> None:
        for v, vector in enumerate(vectors):
            self.lanes.put(vector, pointer, whole(v * self.lanes.count))


def are_flat(*arrays: Any) -> bool:
    """Whether a compiled call's arrays are flat, contiguous and of one kind."""
    first = arrays[0]
    return all(isinstance(a, core.Array) and a.layout == "C" and a.ndim == 1 and a.dtype == first.dtype for a in arrays)


def over_rows(builder: Any, count: Any, rows: int, step: Callable[[Any, int], None]) -> None:
    """`step(t, rows)` for so many rows at once, then row by row for what is left."""
    together = builder.mul(builder.udiv(count, whole(rows)), whole(rows))
    repeated(builder, (whole(0), together, rows), lambda t: step(t, rows))
    repeated(builder, (together, count, 1), lambda t: step(t, 1))


def over_panels(builder: Any, columns: Any, lanes: Lanes, step: Callable[[Any, int], None]) -> None:
    """`step(first column, vectors)` for pairs of vectors, then for a single one."""
    pair = 2 * lanes.count
    together = builder.mul(builder.udiv(columns, whole(pair)), whole(pair))
    repeated(builder, (whole(0), together, pair), lambda column: step(column, 2))
    repeated(builder, (together, columns, lanes.count), lambda column: step(column, 1))


def row_sums(of: Arguments, x: Any, x_step: Any, t: Any, rows: int, panel: Any, depth: Any, start: Any) -> Any:
    """start + Σ_k x[t + r, k] panel[k, :] for a number of rows, a list of vectors for each; `start` are all of them."""
    builder, lanes, width = of.builder, of.lanes, len(start) // rows
    bases = [of.row(x, builder.add(t, whole(r)), x_step) for r in range(rows)]

    def add(k: Any, sums: list[Any]) -> list[Any]:
        matrix = of.vectors(of.row(panel, k, whole(width * lanes.count)), width)
        found = []
        for r in range(rows):
            factor = lanes.spread_from(bases[r], k)
            found += [lanes.multiply_add(factor, matrix[v], sums[r * width + v]) for v in range(width)]
        return found

    sums = carried(builder, (whole(0), depth, 1), start, add)
    return [sums[r * width : (r + 1) * width] for r in range(rows)]


@_emitted
def _linear_rows(_, x, x_step, count, matrix, depth, out, out_step, columns):  # type: ignore[no-untyped-def]
    """The body of `linear_rows`."""

    def generate(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        of = Arguments(context, builder, found, arguments)
        x, x_step, count, matrix, depth, out, out_step, columns = of.values
        length = builder.add(depth, whole(1))

        def panel(column: Any, width: int) -> None:
            begin = of.row(matrix, column, length)
            bias, behind = of.vectors(begin, width), builder.gep(begin, [whole(width * of.lanes.count)])

            def tile(t: Any, rows: int) -> None:
                for r, sums in enumerate(row_sums(of, x, x_step, t, rows, behind, depth, bias * rows)):
                    of.put(sums, of.row(out, builder.add(t, whole(r)), out_step, column))

            over_rows(builder, count, TILE_ROWS, tile)

        over_panels(builder, columns, of.lanes, panel)
        return context.get_dummy_value()

    fits = are_flat(x, matrix, out)
    return (types.void(x, _count, _count, matrix, _count, out, _count, _count), generate) if fits else None


@_emitted
def _add_rows(_, x, x_step, count, matrix, depth, out, out_step, columns):  # type: ignore[no-untyped-def]
    """The body of `add_rows`."""

    def generate(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        of = Arguments(context, builder, found, arguments)
        x, x_step, count, matrix, depth, out, out_step, columns = of.values

        def panel(column: Any, width: int) -> None:
            begin = of.row(matrix, column, depth)

            def tile(t: Any, rows: int) -> None:
                places = [of.row(out, builder.add(t, whole(r)), out_step, column) for r in range(rows)]
                start = [vector for place in places for vector in of.vectors(place, width)]
                for place, sums in zip(places, row_sums(of, x, x_step, t, rows, begin, depth, start), strict=True):
                    of.put(sums, place)

            over_rows(builder, count, TILE_ROWS, tile)

        over_panels(builder, columns, of.lanes, panel)
        return context.get_dummy_value()

    fits = are_flat(x, matrix, out)
    return (types.void(x, _count, _count, matrix, _count, out, _count, _count), generate) if fits else None


@_emitted
def _add_products(_, x, x_step, x_next, count, depth, y, y_step, columns, out):  # type: ignore[no-untyped-def]
    """The body of `add_products`."""

    def generate(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        of = Arguments(context, builder, found, arguments)
        x, x_step, x_next, count, depth, y, y_step, columns, out = of.values
        lanes = of.lanes

        def panel(column: Any, width: int) -> None:
            def tile(k: Any, rows: int) -> None:
                entries = [builder.add(k, whole(r)) for r in range(rows)]
                places = [of.row(out, entry, columns, column) for entry in entries]
                lefts = [of.row(x, entry, x_next) for entry in entries]

                def add(t: Any, sums: list[Any]) -> list[Any]:
                    right = of.vectors(of.row(y, t, y_step, column), width)
                    found = []
                    for r in range(rows):
                        factor = lanes.spread_from(lefts[r], builder.mul(t, x_step))
                        found += [lanes.multiply_add(factor, right[v], sums[r * width + v]) for v in range(width)]
                    return found

                start = [vector for place in places for vector in of.vectors(place, width)]
                sums = carried(builder, (whole(0), count, 1), start, add)
                for r, place in enumerate(places):
                    of.put(sums[r * width : (r + 1) * width], place)

            over_rows(builder, depth, TILE_ROWS, tile)

        over_panels(builder, columns, lanes, panel)
        return context.get_dummy_value()

    fits = are_flat(x, y, out)
    return (types.void(x, _count, _count, _count, _count, y, _count, _count, out), generate) if fits else None


@compiled
def linear_rows(x, x_step, count, matrix, depth, out, out_step, columns):  # type: ignore[no-untyped-def]
    """out[t, :columns] = bias + x[t, :depth] · matrix for `count` rows; the bias is the first row of every panel."""
    _linear_rows(x, x_step, count, matrix, depth, out, out_step, columns)


@compiled
def add_rows(x, x_step, count, matrix, depth, out, out_step, columns):  # type: ignore[no-untyped-def]
    """out[t, :columns] += x[t, :depth] · matrix."""
    _add_rows(x, x_step, count, matrix, depth, out, out_step, columns)


@compiled
def add_products(x, x_step, x_next, count, depth, y, y_step, columns, out):  # type: ignore[no-untyped-def]
    """out[k, :columns] += Σ_t x[t, k] y[t, :columns] for k < depth: the gradient of a matrix from rows.

    `x_next` is the distance from x[t, k] to x[t, k + 1].
    """
    _add_products(x, x_step, x_next, count, depth, y, y_step, columns, out)
