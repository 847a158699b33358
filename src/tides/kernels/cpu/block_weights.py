"""A block's weights as its compiled passes read them: panels for products, forwards and turned, and column norms."""

from typing import Any, NamedTuple

import numpy as np

from tides.kernels.cpu.column_loops import gram, triangle
from tides.kernels.cpu.intervals import compiled
from tides.kernels.cpu.vectors import LINE, VECTOR


def lanes_of(dtype: Any) -> int:
    """Numbers in a vector register."""
    return VECTOR // int(np.dtype(dtype).itemsize)


def padded(columns: int, lanes: int) -> int:
    """Columns filled up to whole vectors."""
    return -(-columns // lanes) * lanes


def aligned(size: int, dtype: Any) -> Any:
    """Zeros that begin with a cache line, so that no vector lies in two."""
    room = np.zeros(size + LINE // int(np.dtype(dtype).itemsize), dtype=dtype)
    begin = -room.ctypes.data % LINE // room.itemsize
    return room[begin : begin + size]


class MixPanels(NamedTuple):
    """Of one mix: K for every entry of the code, K turned, and R and G of its column norms (empty without a norm)."""

    kernel: Any
    turned: Any
    triangles: Any
    forms: Any


class LinearPanels(NamedTuple):
    """Of a linear map: with its bias as first row, and turned."""

    forward: Any
    turned: Any


def linear_panels(weight: Any, bias: Any, columns: int, depth: int, lanes: int) -> LinearPanels:
    """`weight` (out, in), whose rows are columns here; `columns` and `depth` count what stands between and behind."""
    forward = aligned((weight.shape[1] + 1) * columns, weight.dtype)
    turned = aligned(depth * padded(weight.shape[1], lanes), weight.dtype)
    _pack_linear(weight, bias, lanes, columns, depth, forward, turned)
    return LinearPanels(forward, turned)


def mix_panels(factors: Any, norm: Any, normed: bool, readout: bool, factor: float, lanes: int) -> MixPanels:
    """From factors (p, h, 2, i) and the norm's weight (p): the drive's K maps h to 2p, the readout's 2p to h."""
    p, h, _, size = factors.shape
    inner, outer = (2 * p, h) if readout else (h, 2 * p)
    dtype, width = factors.dtype, padded(h, lanes)
    kernel = aligned(size * inner * padded(outer, lanes), dtype)
    turned = aligned(size * outer * padded(inner, lanes), dtype)
    entries = (size * (size + 1) // 2, size * size) if normed else (0, 0)
    triangles, forms = (aligned(count * width, dtype) for count in entries)
    _pack_kernel(factors, norm, readout, factor, lanes, kernel, turned)
    if normed:
        _pack_columns(factors, lanes, width, triangles, forms)
    return MixPanels(kernel, turned, triangles, forms)


@compiled
def _pack(dense, lanes, out):  # type: ignore[no-untyped-def]
    """A matrix of whole vectors in panels."""
    depth, columns = dense.shape
    at = 0
    for left in range(0, columns, 2 * lanes):
        width = min(2 * lanes, columns - left)
        for k in range(depth):
            for c in range(width):
                out[at + c] = dense[k, left + c]
            at += width


@compiled
def _pack_linear(weight, bias, lanes, columns, depth, forward, turned):  # type: ignore[no-untyped-def]
    rows, width = weight.shape
    whole = -(-width // lanes) * lanes
    dense = np.zeros((width + 1, columns), dtype=weight.dtype)
    back = np.zeros((depth, whole), dtype=weight.dtype)
    for j in range(rows):
        dense[0, j] = bias[j]
        for k in range(width):
            dense[k + 1, j] = weight[j, k]
            back[j, k] = weight[j, k]
    _pack(dense, lanes, forward)
    _pack(back, lanes, turned)


@compiled
def _pack_kernel(factors, norm, readout, factor, lanes, kernel, turned):  # type: ignore[no-untyped-def]
    modes, width, _, size = factors.shape
    inner, outer = (2 * modes, width) if readout else (width, 2 * modes)
    inner_whole, outer_whole = -(-inner // lanes) * lanes, -(-outer // lanes) * lanes
    dense = np.zeros((inner, outer_whole), dtype=factors.dtype)
    back = np.zeros((outer, inner_whole), dtype=factors.dtype)
    for i in range(size):
        for p in range(modes):
            weight = norm[p] * kernel.dtype.type(factor)
            for h in range(width):
                for part in range(2):
                    value = factors[p, h, part, i] * weight
                    if readout:
                        # Re(C s) = C_re s_re − C_im s_im.
                        value = -value if part == 1 else value
                        dense[2 * p + part, h] = value
                        back[h, 2 * p + part] = value
                    else:
                        dense[h, 2 * p + part] = value
                        back[2 * p + part, h] = value
        _pack(dense, lanes, kernel[i * inner * outer_whole :])
        _pack(back, lanes, turned[i * outer * inner_whole :])


@compiled
def _pack_columns(factors, lanes, columns, triangles, forms):  # type: ignore[no-untyped-def]
    modes, width, _, size = factors.shape
    precise = np.zeros((2 * modes, size, columns))
    for p in range(modes):
        for h in range(width):
            for part in range(2):
                for i in range(size):
                    precise[2 * p + part, i, h] = factors[p, h, part, i]
    form, root = np.empty((size, size, columns)), np.empty((size, size, columns))
    gram(precise, form)
    form /= modes
    triangle(form, root)
    rows = np.empty((size * (size + 1) // 2, columns), dtype=triangles.dtype)
    at = 0
    for i in range(size):
        for j in range(i, size):
            rows[at] = root[i, j]
            at += 1
    _pack(rows, lanes, triangles)
    _pack(form.reshape(-1, columns).astype(forms.dtype), lanes, forms)


@compiled
def mix_gradients(factors, norm, normed, readout, factor, d_kernel, d_forms, d_factors, d_norm):  # type: ignore[no-untyped-def]
    """Gradients of factors and norm from those of K, (i, inner, whole outer), and of G, (i ≤ j, whole h)."""
    modes, width, _, size = factors.shape
    weights = norm.dtype.type(factor)
    for p in range(modes):
        total = 0.0
        for h in range(width):
            for part in range(2):
                sign = -weights if readout and part == 1 else weights
                for i in range(size):
                    d = d_kernel[i, 2 * p + part, h] if readout else d_kernel[i, h, 2 * p + part]
                    d *= sign
                    total += d * factors[p, h, part, i]
                    d_factors[p, h, part, i] = d * norm[p]
        if normed:
            d_norm[p] = total
    if normed:
        _add_norm_gradients(factors, d_forms, d_factors)


@compiled
def _add_norm_gradients(factors, d_forms, d_factors):  # type: ignore[no-untyped-def]
    """mean_p |𝓑 z̃|² = z̃ᵀ G z̃: its share is 2/p · 𝓑 dG."""
    modes, width, _, size = factors.shape
    slope = np.empty((size, size), dtype=factors.dtype)
    scale = factors.dtype.type(2.0 / modes)
    for h in range(width):
        at = 0
        for i in range(size):
            for j in range(i, size):
                slope[i, j] = slope[j, i] = d_forms[at, h] * scale
                at += 1
        for p in range(modes):
            for part in range(2):
                for i in range(size):
                    value = factors[p, h, part, i]
                    for j in range(size):
                        d_factors[p, h, part, j] += value * slope[i, j]
