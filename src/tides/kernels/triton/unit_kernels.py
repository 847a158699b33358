"""Units for sums over all steps of a range: what their passes found to be largest of a kind.

A product that sums over steps needs one unit for all of them. The passes that make its tensors find it, by maxima that
do not depend on their order.
"""

import triton
import triton.language as tl

from tides.kernels.triton.launched import launched
from tides.kernels.triton.product_kernels import unit_of

# Of the tensors that a mix's weights are summed up from.
LEFT, RIGHT, SQUARE, CODE = (tl.constexpr(k) for k in range(4))
KINDS = tl.constexpr(4)


@launched
def clear_kernel(units, count, BLOCK: tl.constexpr):
    """Nothing was found yet."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(units + at, 0.0, at < count)


@triton.jit
def raise_unit(units, KIND: tl.constexpr, unit):
    """Let it be one of these at least, which are powers of two."""
    place = (units + KIND).to(tl.pointer_type(tl.int32), bitcast=True)
    tl.atomic_max(place, tl.max(unit.to(tl.int32, bitcast=True)), sem="relaxed")


@triton.jit
def raise_to(units, KIND: tl.constexpr, largest):
    """Let it suit numbers like the largest of these."""
    raise_unit(units, KIND, unit_of(largest)[0])


@triton.jit
def load_unit(units, KIND: tl.constexpr):
    """As a tile (1, 1): what comes from memory may stand in front of a product without crossing the shared memory."""
    return tl.load(units + KIND + tl.zeros((1, 1), tl.int32))
