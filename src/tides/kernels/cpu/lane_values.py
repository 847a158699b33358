"""A vector register as a value of compiled code: read from a flat array, reckoned with, written back.

Loops over rows of some dozen features are too short for the compiler to vectorise well; written with these values they
are what they say. Vectors combine with each other and with numbers of their own kind.
"""

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core import types as core
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, models, register_model

from tides.kernels.cpu.vectors import VECTOR, Lanes

_emitted: Any = intrinsic
_declared: Any = cgutils.get_or_insert_function
_Primitive: Any = models.PrimitiveModel
_Template: Any = AbstractTemplate
_inferred: Any = infer_global
_lowered: Any = lower_builtin
_signature: Any = signature
_MATHS = ("contract",)


class Vector(types.Type):
    """As many numbers as a register holds."""

    def __init__(self, real: Any) -> None:
        self.real = real
        super().__init__(name=f"Vector({real})")


@register_model(Vector)
class _VectorModel(_Primitive):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Vector) -> None:
        element = ir.FloatType() if kind.real.bitwidth == 32 else ir.DoubleType()
        super().__init__(manager, kind, ir.VectorType(element, VECTOR * 8 // kind.real.bitwidth))


def _is_flat(array: Any) -> bool:
    return isinstance(array, core.Array) and array.layout == "C" and array.ndim == 1


@_emitted
def load(_, array, at):  # type: ignore[no-untyped-def]
    """The vector that begins at element `at`."""

    def generate(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        data = context.make_array(found.args[0])(context, builder, arguments[0]).data
        return Lanes(builder, found.args[0].dtype, VECTOR).load(data, arguments[1])

    return (Vector(array.dtype)(array, types.intp), generate) if _is_flat(array) else None


@_emitted
def load_as(_, array, at, like):  # type: ignore[no-untyped-def]
    """As many numbers as a vector of `like` has, rounded to its kind."""

    def generate(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        data = context.make_array(found.args[0])(context, builder, arguments[0]).data
        wanted = Lanes(builder, found.args[2].dtype, VECTOR)
        own = Lanes(builder, found.args[0].dtype, wanted.count * found.args[0].dtype.bitwidth // 8)
        vector = own.load(data, arguments[1])
        return vector if own.type == wanted.type else builder.fptrunc(vector, wanted.type)

    fits = _is_flat(array) and _is_flat(like) and array.dtype.bitwidth >= like.dtype.bitwidth
    return (Vector(like.dtype)(array, types.intp, like), generate) if fits else None


@_emitted
def where_less(_, x, y, yes, no):  # type: ignore[no-untyped-def]
    """`yes` in the lanes where x < y, `no` in the others."""

    def generate(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        x, y, yes, no = arguments
        return builder.select(builder.fcmp_ordered("<", x, y), yes, no)

    fits = isinstance(x, Vector) and x == y == yes == no
    return (x(x, x, x, x), generate) if fits else None


@_emitted
def store(_, vector, array, at):  # type: ignore[no-untyped-def]
    """array[at : at + lanes] = vector."""

    def generate(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        data = context.make_array(found.args[1])(context, builder, arguments[1]).data
        Lanes(builder, found.args[1].dtype, VECTOR).put(arguments[0], data, arguments[2])
        return context.get_dummy_value()

    fits = isinstance(vector, Vector) and _is_flat(array) and vector.real == array.dtype
    return (types.void(vector, array, types.intp), generate) if fits else None


@_emitted
def store_some(_, vector, array, at, room):  # type: ignore[no-untyped-def]
    """The same for the first `room` lanes, or all."""

    def generate(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        data = context.make_array(found.args[1])(context, builder, arguments[1]).data
        Lanes(builder, found.args[1].dtype, VECTOR).store(arguments[0], data, *arguments[2:])
        return context.get_dummy_value()

    fits = isinstance(vector, Vector) and _is_flat(array) and vector.real == array.dtype
    return (types.void(vector, array, types.intp, types.intp), generate) if fits else None


@_emitted
def load_some(_, array, at, room):  # type: ignore[no-untyped-def]
    """The vector that begins at `at`, with zeros behind its first `room` lanes: nothing is read there."""

    def generate(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        data = context.make_array(found.args[0])(context, builder, arguments[0]).data
        return Lanes(builder, found.args[0].dtype, VECTOR).load_some(data, *arguments[1:])

    return (Vector(array.dtype)(array, types.intp, types.intp), generate) if _is_flat(array) else None


@_emitted
def spread(_, number):  # type: ignore[no-untyped-def]
    """The same number in every lane."""

    def generate(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        return Lanes(builder, found.args[0], VECTOR).spread(arguments[0])

    return (Vector(number)(number), generate) if isinstance(number, core.Float) else None


@_emitted
def total(_, vector):  # type: ignore[no-untyped-def]
    """The sum over all lanes."""

    def generate(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        return Lanes(builder, found.args[0].real, VECTOR).sum(arguments[0])

    return (vector.real(vector), generate) if isinstance(vector, Vector) else None


def _operation(key: Any, emit: str) -> None:
    """Let vectors combine by an operator with vectors, and with numbers on either side."""

    @_inferred(key)
    class Operation(_Template):  # type: ignore[misc]
        def generic(self, args: Any, kws: Any) -> Any:
            if len(args) != 2 or not any(isinstance(each, Vector) for each in args):
                return None
            kind = next(each for each in args if isinstance(each, Vector))
            fits = all(each == kind or each == kind.real for each in args)
            return _signature(kind, *args) if fits else None

    def generate(context: Any, builder: Any, found: Any, arguments: Any) -> Any:
        lanes = Lanes(builder, found.return_type.real, VECTOR)
        sides = [
            value if isinstance(kind, Vector) else lanes.spread(value)
            for kind, value in zip(found.args, arguments, strict=True)
        ]
        return getattr(builder, emit)(*sides, flags=_MATHS)

    for kinds in ((Vector, Vector), (Vector, core.Float), (core.Float, Vector)):
        _lowered(key, *kinds)(generate)


for _key, _emit in ((operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul"), (operator.truediv, "fdiv")):
    _operation(_key, _emit)
