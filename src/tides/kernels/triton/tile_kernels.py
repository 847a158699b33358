"""Tiles of steps that come from memory as products want them, and go back as products leave them.

A product has the numbers of a tile in an order of its own: in a thread two neighbours of a row and, eight columns
further on, two more; in four threads such a row's 16 columns; in a warp eight rows, then eight more. Tiles that are
loaded in another order have to cross the shared memory, and all warps have to wait for each other there. So a tile is
loaded as a vector in that very order, four neighbours of a row by each thread, and then only given its shape.

The four neighbours are two columns here and two there, so the columns of a tile are channels in the order of
`channels`: vectors of all channels are loaded with it, and matrices are packed with it (`place_of`).
"""

import triton
import triton.language as tl

# Whether the compiler deals a tile's first axes to the threads of a warp, as up to Triton 3.6, or its last ones.
FIRST = tl.constexpr(tuple(int(part) for part in triton.__version__.split(".")[:2]) < (3, 7))


@triton.jit
def channels(N: tl.constexpr):
    """Which channel every column of a tile is."""
    c = tl.arange(0, N)
    return c // 16 * 16 + c // 2 % 4 * 4 + c // 8 % 2 * 2 + c % 2


@triton.jit
def place_of(channel):
    """The column of a channel."""
    return channel // 16 * 16 + channel // 2 % 2 * 8 + channel // 4 % 4 * 2 + channel % 2


@triton.jit
def left_of(first, stop, BM: tl.constexpr):
    """How many rows of a tile that begins with `first` there are."""
    return tl.minimum(stop - first, BM).to(tl.int32)


@triton.jit
def along(n: tl.constexpr, AXIS: tl.constexpr):
    """0, …, n − 1 along one of the six axes of `places`."""
    place: tl.constexpr = AXIS if FIRST or AXIS == 5 else 4 - AXIS
    numbers = tl.arange(0, n)
    for k in tl.static_range(6):
        if k != place:
            numbers = tl.expand_dims(numbers, k)
    return numbers


@triton.jit
def places(
    pointer, first, stop, WIDTH: tl.constexpr, STRIDE: tl.constexpr, SHIFT: tl.constexpr, BM: tl.constexpr,
    N: tl.constexpr,
):  # fmt: skip
    """Where the elements of a tile (BM, N) lie, in a product's order, and which exist.

    Axes: 0 threads of a row (4), 1 rows (8), 2 warps (BM / 16), 3 upper and lower half of a warp's rows (2), 4 columns
    in steps of 16 (N / 16), 5 neighbours (4). The first five are turned around where `FIRST` is not.
    """
    thread = along(4, 0)
    row = along(8, 1) + 16 * along(BM // 16, 2)
    half = along(2, 3)
    column = 16 * along(N // 16, 4) + along(4, 5)
    # What depends on the thread, then what does not: one register holds the addresses of all that a thread accesses.
    at = pointer + first * STRIDE + (row * STRIDE + 4 * thread) + (8 * STRIDE * half + column - SHIFT)
    channel = 4 * thread + column
    return at, (row + 8 * half < left_of(first, stop, BM)) & (channel >= SHIFT) & (channel < SHIFT + WIDTH)


@triton.jit
def load_tile(
    pointer, first, stop, WIDTH: tl.constexpr, BM: tl.constexpr, N: tl.constexpr, SHIFT: tl.constexpr = 0,
    AGAIN: tl.constexpr = False,
):  # fmt: skip
    """Rows first, … of a matrix with WIDTH columns, its first one in column SHIFT; zeros around them and from `stop`.

    `AGAIN` frees the registers in between: with another policy the compiler does not take it for the same load.
    """
    policy: tl.constexpr = "evict_first" if AGAIN else ""
    at, inside = places(pointer, first, stop, WIDTH, WIDTH, SHIFT, BM, N)
    loaded = tl.load(at, inside, 0.0, eviction_policy=policy)
    if FIRST:
        parts = tl.permute(tl.reshape(loaded, (4, 8, BM // 16, 2, N // 16, 2, 2)), (2, 3, 1, 4, 5, 0, 6))
    else:
        parts = tl.permute(tl.reshape(loaded, (N // 16, 2, BM // 16, 8, 4, 2, 2)), (2, 1, 3, 0, 5, 4, 6))
    return tl.reshape(parts, (BM, N))


@triton.jit
def store_tile(pointer, tile, first, stop, WIDTH: tl.constexpr, STRIDE: tl.constexpr, SHIFT: tl.constexpr = 0):
    """WIDTH columns of a tile, from SHIFT on, into rows that are STRIDE apart."""
    BM: tl.constexpr = tile.shape[0]
    N: tl.constexpr = tile.shape[1]
    at, inside = places(pointer, first, stop, WIDTH, STRIDE, SHIFT, BM, N)
    parts = tl.reshape(tile, (BM // 16, 2, 8, N // 16, 2, 4, 2))
    if FIRST:
        ordered = tl.reshape(tl.permute(parts, (5, 2, 0, 1, 3, 4, 6)), (4, 8, BM // 16, 2, N // 16, 4))
    else:
        ordered = tl.reshape(tl.permute(parts, (3, 1, 0, 2, 5, 4, 6)), (N // 16, 2, BM // 16, 8, 4, 4))
    tl.store(at, ordered, inside)


@triton.jit
def zero_largest(BM: tl.constexpr):
    """Where the largest numbers of tiles collect, one in every thread."""
    return tl.zeros((BM // 16, 8, 4), tl.float32)


@triton.jit
def largest_of(so_far, tile):
    """The largest number that a thread has of a tile, without its sign, or has had."""
    BM: tl.constexpr = tile.shape[0]
    N: tl.constexpr = tile.shape[1]
    parts = tl.reshape(tl.abs(tile), (BM // 16, 2, 8, N // 16, 2, 4, 2))
    return tl.maximum(so_far, tl.max(tl.max(tl.max(tl.max(parts, axis=6), axis=4), axis=3), axis=1))


@triton.jit
def zero_largest_rows(BM: tl.constexpr):
    """The same for numbers of rows."""
    return tl.zeros((BM // 16, 8), tl.float32)


@triton.jit
def largest_rows(so_far, row):
    """The larger one of a thread's two rows (BM, 1), or of those it has had."""
    BM: tl.constexpr = row.shape[0]
    return tl.maximum(so_far, tl.max(tl.reshape(row, (BM // 16, 2, 8)), axis=1))
