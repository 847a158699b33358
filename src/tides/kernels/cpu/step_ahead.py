"""What a compiled loop will need next, called for while it works on something else."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tides.kernels.cpu.vectors import LINE, Lanes, repeated, whole

_emitted: Any = intrinsic


@_emitted
def call_for(_, array):  # type: ignore[no-untyped-def]
    """Every cache line of a contiguous array comes closer; nothing waits for them."""
    if not isinstance(array, types.Array) or array.layout != "C":
        return None

    def generate(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        view = context.make_array(array)(context, builder, arguments[0])
        begin = builder.bitcast(view.data, ir.IntType(8).as_pointer())
        size = builder.mul(view.nitems, view.itemsize)
        lanes = Lanes(builder, array.dtype)
        repeated(builder, (whole(0), size, LINE), lambda at: lanes.prefetch(builder.gep(begin, [at])))
        return context.get_dummy_value()

    return types.void(array), generate
