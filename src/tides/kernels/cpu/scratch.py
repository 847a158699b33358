"""Memory of compiled passes: arrays without an owner, and the rooms of one piece of scratch.

Every view of an array that has an owner counts its references, in an instruction that waits until all earlier writes
have arrived: in passes over small tiles a tenth of the time.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tides.kernels.cpu.intervals import compiled
from tides.kernels.cpu.vectors import LINE

_emitted: Any = intrinsic
_Tuple: Any = types.BaseTuple
_UniTuple: Any = types.UniTuple
_pack: Any = cgutils.pack_array
# Rooms as long as a memory page would all begin at the same place of one, and writes to some delay reads of others.
_APART = 3 * LINE


@_emitted
def borrowed(_, lent):  # type: ignore[no-untyped-def]
    """The same array, or tuple of arrays and numbers, without owners: only for as long as the caller's live."""

    def generate(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        return _disowned(context, builder, found.args[0], arguments[0])

    return lent(lent), generate


def _disowned(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    if isinstance(kind, _Tuple):
        for k, each in enumerate(kind.types):
            value = builder.insert_value(value, _disowned(context, builder, each, builder.extract_value(value, k)), k)
        return value
    if not isinstance(kind, types.Array):
        return value
    view = context.make_array(kind)(context, builder, value)
    view.meminfo, view.parent = (ir.Constant(owner.type, None) for owner in (view.meminfo, view.parent))
    return view._getvalue()


@_emitted
def _rooms(_, space, begin, lengths):  # type: ignore[no-untyped-def]
    """Parts of a flat array from `begin` on, each filled up to whole lines."""

    def generate(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        kind = found.args[0]
        whole, at, lengths = context.make_array(kind)(context, builder, arguments[0]), arguments[1], arguments[2]
        size, line = kind.dtype.bitwidth // 8, LINE * 8 // kind.dtype.bitwidth
        count = at.type
        parts = []
        for k in range(len(found.args[2])):
            length, part = builder.extract_value(lengths, k), context.make_array(kind)(context, builder)
            context.populate_array(
                part, data=builder.gep(whole.data, [at]), shape=_pack(builder, [length]),
                strides=_pack(builder, [ir.Constant(count, size)]), itemsize=ir.Constant(count, size), meminfo=None,
            )  # fmt: skip
            parts.append(part._getvalue())
            filled = builder.and_(builder.add(length, ir.Constant(count, line - 1)), ir.Constant(count, -line))
            at = builder.add(at, builder.add(filled, ir.Constant(count, _APART // size)))
        return context.make_tuple(builder, found.return_type, parts)

    signature = _UniTuple(space, len(lengths))(space, types.intp, lengths)
    return signature, generate


@compiled
def rooms(lengths, like):  # type: ignore[no-untyped-def]
    """One piece of memory and its parts, which begin with a cache line and have no owner: they live until `hold`.

    They are zeros, as products read what stands behind the features.
    """
    line = LINE // like.itemsize
    total = line
    for length in lengths:
        total += length + line + _APART // like.itemsize
    space = np.zeros(total, dtype=like.dtype)
    return space, _rooms(space, (-space.ctypes.data % LINE) // like.itemsize, lengths)


@_emitted
def hold(_, space):  # type: ignore[no-untyped-def]
    """Nothing; but a piece of memory that is named here has lived until here."""
    return types.void(space), lambda context, builder, found, arguments: context.get_dummy_value()
