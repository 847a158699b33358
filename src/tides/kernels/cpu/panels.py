"""Small matrix–vector products whose sums stay in vector registers, for the compiled step.

A compiled loop over a matrix of 32 rows spends most of its time on sums across lanes and on what is left over. Here
matrices lie in panels (rows of a panel, contiguous, for one column after another), so that a column of a panel is one
vector, and the loop is written in the compiler's own vectors, which it cannot take apart.
"""

from typing import Any

import numpy as np
import torch
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from torch import Tensor

from tides.kernels.cpu.vectors import LINE, Lanes, carried, whole

# Independent sums that hide the latency of an addition.
_SUMS = 4
_emitted: Any = intrinsic


def panel_lanes(dtype: Any) -> int:
    """Rows of a panel, to which everything that is packed is filled up."""
    return LINE // int(np.dtype(dtype).itemsize)


def panels(weight: Tensor, bias: Tensor, lanes: int) -> Tensor:
    """A linear map (out, in) as `linear` reads it: the bias, then panel behind panel; missing rows are zeros."""
    rows, columns = weight.shape
    missing = -rows % lanes
    matrix = torch.cat([weight, weight.new_zeros(missing, columns)]).unflatten(0, (-1, lanes))
    return torch.cat([bias, bias.new_zeros(missing), matrix.mT.flatten()])


def aligned(values: Any) -> Any:
    """A copy of a flat array that begins with a cache line, so that no vector of a panel lies in two."""
    room = np.zeros(values.size + panel_lanes(values.dtype), dtype=values.dtype)
    begin = -room.ctypes.data % LINE // values.itemsize
    copy = room[begin : begin + values.size]
    copy[:] = values
    return copy


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
    lanes = Lanes(builder, signature.args[4].dtype)
    panels = builder.udiv(builder.add(m, whole(lanes.count - 1)), whole(lanes.count))
    matrix = builder.add(at, builder.mul(panels, whole(lanes.count)))
    size = builder.mul(n, whole(lanes.count))

    def add_column(panel: Any, i: Any, total: Any) -> Any:
        column = lanes.load(weights, builder.add(panel, builder.mul(i, whole(lanes.count))))
        return lanes.multiply_add(lanes.spread(builder.load(builder.gep(vector, [i]))), column, total)

    with cgutils.for_range(builder, panels) as loop:
        row = builder.mul(loop.index, whole(lanes.count))
        panel = builder.add(matrix, builder.mul(loop.index, size))
        start = [lanes.load(weights, builder.add(at, row)), *[lanes.zero] * (_SUMS - 1)]
        together = builder.and_(n, whole(-_SUMS))
        sums = carried(
            builder,
            (whole(0), together, _SUMS),
            start,
            lambda i, sums: [add_column(panel, builder.add(i, whole(k)), total) for k, total in enumerate(sums)],
        )
        total = builder.fadd(builder.fadd(sums[0], sums[1]), builder.fadd(sums[2], sums[3]))
        (total,) = carried(builder, (together, n, 1), [total], lambda i, sums: [add_column(panel, i, sums[0])])
        lanes.store(total, out, row, builder.sub(m, row))
    return builder.add(matrix, builder.mul(panels, size))
