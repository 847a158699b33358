"""Small matrix–vector products whose sums stay in vector registers, for the compiled step.

A compiled loop over a matrix of 32 rows spends most of its time on sums across lanes and on what is left over. Here
matrices lie in panels (rows of a panel, contiguous, for one column after another), so that a column of a panel is one
vector, and the loop is written in the compiler's own vectors, which it cannot take apart.
"""

from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from torch import Tensor

# One cache line: a vector of the widest registers, several of narrower ones.
_BYTES = 64
# Independent sums that hide the latency of an addition.
_SUMS = 4
_INDEX = ir.IntType(64)
_emitted: Any = intrinsic
_declared: Any = cgutils.get_or_insert_function


def panel_lanes(dtype: Any) -> int:
    """Rows of a panel, to which everything that is packed is filled up."""
    return _BYTES // int(np.dtype(dtype).itemsize)


def panels(weight: Tensor, bias: Tensor, lanes: int) -> Tensor:
    """A linear map (out, in) as `linear` reads it: the bias, then panel behind panel; missing rows are zeros."""
    rows, columns = weight.shape
    missing = -rows % lanes
    matrix = torch.cat([weight, weight.new_zeros(missing, columns)]).unflatten(0, (-1, lanes))
    return torch.cat([bias, bias.new_zeros(missing), matrix.mT.flatten()])


def aligned(values: Any) -> Any:
    """A copy of a flat array that begins with a cache line, so that no vector of a panel lies in two."""
    room = np.zeros(values.size + panel_lanes(values.dtype), dtype=values.dtype)
    begin = -room.ctypes.data % _BYTES // values.itemsize
    copy = room[begin : begin + values.size]
    copy[:] = values
    return copy


@_emitted
def borrowed(_, array):  # type: ignore[no-untyped-def]
    """The same array without an owner, so that its views cost nothing: counting references takes as long as a layer."""
    return array(array), _generate_borrowed


def _generate_borrowed(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    view = context.make_array(signature.args[0])(context, builder, arguments[0])
    view.meminfo, view.parent = (ir.Constant(owner.type, None) for owner in (view.meminfo, view.parent))
    return view._getvalue()


@_emitted
def linear(_, weights, at, vector, n, out, m):  # type: ignore[no-untyped-def]
    """out[:m] = bias + matrix (m, n) · vector, stored at `at` as `panels` packs it; returns where it ends.

    Flat contiguous arrays of one type, which do not overlap.
    """
    arrays = (weights, vector, out)
    if not all(isinstance(a, types.Array) and a.layout == "C" and a.ndim == 1 and a.dtype == out.dtype for a in arrays):
        return None
    signature = types.intp(weights, types.intp, vector, types.intp, out, types.intp)
    return signature, _generate_linear


def _generate_linear(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """For every panel: sums over the columns, `_SUMS` of them side by side, then the columns that are left."""
    weights, vector, out = (
        context.make_array(signature.args[i])(context, builder, arguments[i]).data for i in (0, 2, 4)
    )
    at, n, m = (arguments[i] for i in (1, 3, 5))
    lanes = _Lanes(builder, signature.args[4].dtype)
    panels = builder.udiv(builder.add(m, _whole(lanes.count - 1)), _whole(lanes.count))
    matrix = builder.add(at, builder.mul(panels, _whole(lanes.count)))
    size = builder.mul(n, _whole(lanes.count))

    def add_column(panel: Any, i: Any, total: Any) -> Any:
        column = lanes.load(weights, builder.add(panel, builder.mul(i, _whole(lanes.count))))
        return lanes.multiply_add(lanes.spread(builder.load(builder.gep(vector, [i]))), column, total)

    with cgutils.for_range(builder, panels) as loop:
        row = builder.mul(loop.index, _whole(lanes.count))
        panel = builder.add(matrix, builder.mul(loop.index, size))
        start = [lanes.load(weights, builder.add(at, row)), *[lanes.zero] * (_SUMS - 1)]
        together = builder.and_(n, _whole(-_SUMS))
        sums = _loop(
            builder,
            (_whole(0), together, _SUMS),
            start,
            lambda i, sums: [add_column(panel, builder.add(i, _whole(k)), total) for k, total in enumerate(sums)],
        )
        total = builder.fadd(builder.fadd(sums[0], sums[1]), builder.fadd(sums[2], sums[3]))
        (total,) = _loop(builder, (together, n, 1), [total], lambda i, sums: [add_column(panel, i, sums[0])])
        lanes.store(total, out, row, builder.sub(m, row))
    return builder.add(matrix, builder.mul(panels, size))


def _whole(number: int) -> Any:
    return ir.Constant(_INDEX, number)


def _loop(builder: Any, span: tuple[Any, Any, int], start: list[Any], step: Any) -> list[Any]:
    """The values that `step(i, values)` leaves after i = begin, begin + stride, … < end, carried in registers."""
    begin, end, stride = span
    before, test, body, after = builder.block, *(builder.append_basic_block() for _ in range(3))
    builder.branch(test)
    builder.position_at_end(test)
    i, values = builder.phi(_INDEX), [builder.phi(value.type) for value in start]
    builder.cbranch(builder.icmp_unsigned("<", i, end), body, after)
    builder.position_at_end(body)
    found = [builder.add(i, _whole(stride)), *step(i, values)]
    builder.branch(test)
    for phi, first, following in zip((i, *values), (begin, *start), found, strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(following, builder.block)
    builder.position_at_end(after)
    return values


class _Lanes:
    """Vectors of one panel's width and what is done with them."""

    def __init__(self, builder: Any, real: Any) -> None:
        self._builder, self._bytes = builder, real.bitwidth // 8
        self.count = _BYTES // self._bytes
        self.type = ir.VectorType(ir.FloatType() if self._bytes == 4 else ir.DoubleType(), self.count)
        self.zero = ir.Constant(self.type, [0.0] * self.count)

    def load(self, array: Any, at: Any) -> Any:
        return self._builder.load(self._address(array, at), align=self._bytes)

    def spread(self, scalar: Any) -> Any:
        """The same number in every lane."""
        vector, index = ir.VectorType(scalar.type, self.count), ir.IntType(32)
        nothing = ir.Constant(vector, ir.Undefined)
        first = self._builder.insert_element(nothing, scalar, ir.Constant(index, 0))
        return self._builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(index, self.count), None))

    def multiply_add(self, x: Any, y: Any, total: Any) -> Any:
        """One instruction where the processor has it."""
        product = self._builder.fmul(x, y, flags=("contract",))
        return self._builder.fadd(total, product, flags=("contract",))

    def store(self, vector: Any, array: Any, at: Any, room: Any) -> None:
        """The first `room` lanes, or all."""
        flags, pointer = ir.VectorType(ir.IntType(1), self.count), self.type.as_pointer()
        signature = ir.FunctionType(ir.VoidType(), [self.type, pointer, ir.IntType(32), flags])
        name = f"llvm.masked.store.v{self.count}f{8 * self._bytes}.p0"
        store = _declared(self._builder.module, signature, name)
        lanes = ir.Constant(ir.VectorType(_INDEX, self.count), [*range(self.count)])
        mask = self._builder.icmp_unsigned("<", lanes, self.spread(room))
        alignment = ir.Constant(ir.IntType(32), self._bytes)
        self._builder.call(store, [vector, self._address(array, at), alignment, mask])

    def _address(self, array: Any, at: Any) -> Any:
        return self._builder.bitcast(self._builder.gep(array, [at]), self.type.as_pointer())
