"""Vectors of the compiler's own kind, which it cannot take apart: what small matrix products are written in."""

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

# One cache line: a vector of the widest registers, several of narrower ones.
LINE = 64
_INDEX = ir.IntType(64)
_declared: Any = cgutils.get_or_insert_function
_emitted: Any = intrinsic


def _register_tile() -> tuple[int, int]:
    """Bytes of a vector register, and rows of a tile two vectors wide whose sums stay in registers on this machine."""
    if llvm.get_host_cpu_features().get("avx512f"):
        return 64, 8
    return (32, 4) if "86" in llvm.get_default_triple().split("-")[0] else (16, 8)


VECTOR, TILE_ROWS = _register_tile()


@_emitted
def widest_registers(_):  # type: ignore[no-untyped-def]
    """Vectorise the loops of this function for the widest registers; the compiler prefers half of them by itself."""

    def generate(context: Any, builder: Any, _: Any, __: Any) -> Any:
        # llvmlite knows no attributes with values, but writes down what stands in the set.
        set.add(builder.function.attributes, f'"prefer-vector-width"="{8 * VECTOR}"')
        return context.get_dummy_value()

    return types.void(), generate


def whole(number: int) -> Any:
    return ir.Constant(_INDEX, number)


def carried(builder: Any, span: tuple[Any, Any, int], start: list[Any], step: Any) -> list[Any]:
    """The values that `step(i, values)` leaves after i = begin, begin + stride, … < end, carried in registers."""
    begin, end, stride = span
    before, test, body, after = builder.block, *(builder.append_basic_block() for _ in range(3))
    builder.branch(test)
    builder.position_at_end(test)
    i, values = builder.phi(_INDEX), [builder.phi(value.type) for value in start]
    builder.cbranch(builder.icmp_unsigned("<", i, end), body, after)
    builder.position_at_end(body)
    found = [builder.add(i, whole(stride)), *step(i, values)]
    builder.branch(test)
    for phi, first, following in zip((i, *values), (begin, *start), found, strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(following, builder.block)
    builder.position_at_end(after)
    return values


def repeated(builder: Any, span: tuple[Any, Any, int], step: Any) -> None:
    """`step(i)` for i = begin, begin + stride, … < end."""

    def body(i: Any, _: list[Any]) -> list[Any]:
        step(i)
        return []

    carried(builder, span, [], body)


class Lanes:
    """Vectors of `size` bytes and what is done with them."""

    def __init__(self, builder: Any, real: Any, size: int = LINE) -> None:
        self._builder, self._bytes = builder, real.bitwidth // 8
        self.count = size // self._bytes
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

    def spread_from(self, array: Any, at: Any) -> Any:
        """A number of an array in every lane."""
        return self.spread(self._builder.load(self._builder.gep(array, [at])))

    def multiply(self, x: Any, y: Any) -> Any:
        return self._builder.fmul(x, y, flags=("contract",))

    def multiply_add(self, x: Any, y: Any, total: Any) -> Any:
        """One instruction where the processor has it."""
        return self._builder.fadd(total, self.multiply(x, y), flags=("contract",))

    def sum(self, vector: Any) -> Any:
        """Over all lanes, in any order."""
        kind = self.type.element
        name = f"llvm.vector.reduce.fadd.v{self.count}f{8 * self._bytes}"
        reduce = _declared(self._builder.module, ir.FunctionType(kind, [kind, self.type]), name)
        return self._builder.call(reduce, [ir.Constant(kind, 0.0), vector], fastmath=("reassoc",))

    def add_sums(self, vectors: list[Any], array: Any) -> None:
        """Add the sum over the lanes of every vector to one number of an array after the other.

        Pairs are folded into one vector until one is left, so that a sum takes two shuffles and not one per halving.
        """
        builder, begin = self._builder, 0
        while begin < len(vectors):
            room = min(1 << (len(vectors) - begin).bit_length() - 1, self.count)
            groups, share, folded = 1, self.count, vectors[begin : begin + room]
            while len(folded) > 1:
                folded = [self._fold(a, b, groups, share) for a, b in zip(folded[::2], folded[1::2], strict=True)]
                groups, share = 2 * groups, share // 2
            (found,) = folded
            while share > 1:
                found, share = self._fold(found, None, groups, share), share // 2
            if groups == 1:
                found = builder.extract_element(found, ir.Constant(ir.IntType(32), 0))
            place = builder.bitcast(builder.gep(array, [whole(begin)]), found.type.as_pointer())
            before = builder.load(place, align=self._bytes)
            builder.store(builder.fadd(before, found), place, align=self._bytes)
            begin += room

    def _fold(self, a: Any, b: Any, groups: int, share: int) -> Any:
        """The halves of every group of `share` lanes added up; the groups of b, if there is one, follow those of a."""
        sides = (0, groups * share) if b is not None else (0,)
        first = [side + group * share + lane for side in sides for group in range(groups) for lane in range(share // 2)]
        index = ir.IntType(32)

        def pick(lanes: list[int]) -> Any:
            mask = ir.Constant(ir.VectorType(index, len(lanes)), [ir.Constant(index, lane) for lane in lanes])
            other = ir.Constant(a.type, ir.Undefined) if b is None else b
            return self._builder.shuffle_vector(a, other, mask)

        return self._builder.fadd(pick(first), pick([lane + share // 2 for lane in first]))

    def turned(self, rows: list[Any]) -> list[Any]:
        """As many vectors as lanes, turned: lanes whose numbers differ in one digit change places, digit by digit."""
        index, distance = ir.IntType(32), 1

        def mask(picked: list[int]) -> Any:
            return ir.Constant(ir.VectorType(index, self.count), [ir.Constant(index, lane) for lane in picked])

        while distance < self.count:
            numbers, far = range(self.count), distance
            upper = mask([self.count + lane - far if lane & far else lane for lane in numbers])
            lower = mask([self.count + lane if lane & far else lane + far for lane in numbers])
            found = list(rows)
            for r in numbers:
                if not r & far:
                    found[r] = self._builder.shuffle_vector(rows[r], rows[r + far], upper)
                    found[r + far] = self._builder.shuffle_vector(rows[r], rows[r + far], lower)
            rows, distance = found, 2 * distance
        return rows

    def inverse_root(self, vector: Any) -> Any:
        """1/√x to the last digit or two: in float32 from the processor's estimate, where it has one.

        NaN where x has overflowed: a zero would make an answer that looks like one.
        """
        fast = ("arcp", "afn", "ninf", "reassoc", "contract")
        name = f"llvm.sqrt.v{self.count}f{8 * self._bytes}"
        root = _declared(self._builder.module, ir.FunctionType(self.type, [self.type]), name)
        flags = fast if self._bytes == 4 else ()
        found = self._builder.call(root, [vector], fastmath=flags)
        inverse = self._builder.fdiv(ir.Constant(self.type, [1.0] * self.count), found, flags=flags)
        return self._builder.fadd(inverse, self._builder.fsub(vector, vector))

    def prefetch(self, pointer: Any) -> None:
        """Call for the cache line at an address, which need not be anybody's."""
        kinds = [ir.IntType(8).as_pointer(), *[ir.IntType(32)] * 3]
        fetch = _declared(self._builder.module, ir.FunctionType(ir.VoidType(), kinds), "llvm.prefetch.p0")
        # To be read, for the second cache, data.
        choices = [ir.Constant(ir.IntType(32), number) for number in (0, 2, 1)]
        self._builder.call(fetch, [self._builder.bitcast(pointer, kinds[0]), *choices])

    def put(self, vector: Any, array: Any, at: Any) -> None:
        self._builder.store(vector, self._address(array, at), align=self._bytes)

    def store(self, vector: Any, array: Any, at: Any, room: Any) -> None:
        """The first `room` lanes, or all."""
        flags, pointer = ir.VectorType(ir.IntType(1), self.count), self.type.as_pointer()
        signature = ir.FunctionType(ir.VoidType(), [self.type, pointer, ir.IntType(32), flags])
        name = f"llvm.masked.store.v{self.count}f{8 * self._bytes}.p0"
        store = _declared(self._builder.module, signature, name)
        alignment = ir.Constant(ir.IntType(32), self._bytes)
        self._builder.call(store, [vector, self._address(array, at), alignment, self._first(room)])

    def load_some(self, array: Any, at: Any, room: Any) -> Any:
        """A vector with zeros behind its first `room` lanes."""
        flags, pointer = ir.VectorType(ir.IntType(1), self.count), self.type.as_pointer()
        signature = ir.FunctionType(self.type, [pointer, ir.IntType(32), flags, self.type])
        load = _declared(self._builder.module, signature, f"llvm.masked.load.v{self.count}f{8 * self._bytes}.p0")
        alignment = ir.Constant(ir.IntType(32), self._bytes)
        return self._builder.call(load, [self._address(array, at), alignment, self._first(room), self.zero])

    def _first(self, room: Any) -> Any:
        """Which lanes are among the first `room`."""
        lanes = ir.Constant(ir.VectorType(_INDEX, self.count), [*range(self.count)])
        return self._builder.icmp_unsigned("<", lanes, self.spread(room))

    def _address(self, array: Any, at: Any) -> Any:
        return self._builder.bitcast(self._builder.gep(array, [at]), self.type.as_pointer())
