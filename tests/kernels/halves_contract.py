"""Products of halves keep float32's accuracy wherever float32 itself has it, whatever the sizes of the numbers."""

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from tests.comparison import relative_error
from tests.kernels.block_contract import make_block
from tests.tolerances import FLOAT32_FORWARD, FLOAT32_GRADIENT
from tides.kernels import use_backend
from tides.kernels.triton.outer_kernels import add_outer, add_pairs, sum_pairs, zero_pairs
from tides.kernels.triton.packing_kernels import store_halves
from tides.kernels.triton.product_kernels import begin_mix, halve_rows, load_vector, open_matrices, unit_of

_ROWS, _INNER, _WIDTH = 16, 16, 16
# Of a product, relative to Σ |a| |b|, and of an addend that is small beside the largest of its row and channel.
_BITS, _FLOOR = 2.0**-20, 2.0**-37


@triton.jit
def _pack(weight, packed, K: tl.constexpr, N: tl.constexpr):
    """Row n of `weight` (n, k) in a unit of its own, as packed matrices have it for a channel."""
    n, k = tl.program_id(0), tl.arange(0, K)
    row = tl.load(weight + n * K + k)
    unit, inverse = unit_of(tl.max(tl.abs(row)))
    tl.store(packed + N * K + n, unit)
    store_halves(packed, n * K + k, row, k < K, inverse, N * K)


@triton.jit
def _multiply(x, packed, out, M: tl.constexpr, K: tl.constexpr, N: tl.constexpr):
    m, k, n = tl.arange(0, M)[:, None], tl.arange(0, K)[None, :], tl.arange(0, N)[None, :]
    halves, unit = halve_rows(tl.load(x + m * K + k))
    matrices, vectors = open_matrices(packed, 0, N * K, N)
    units = load_vector(vectors, N)
    tl.store(out + m * N + n, begin_mix(halves, matrices, (), 0, 1, K, N, False, "tf32x3") * unit * units)


def _product(x: Tensor, weight: Tensor) -> Tensor:
    packed, out = torch.full((_WIDTH * (_INNER + 1),), torch.nan), torch.full((_ROWS, _WIDTH), torch.nan)
    _pack[(_WIDTH,)](weight, packed, _INNER, _WIDTH)
    _multiply[(1,)](x, packed, out, _ROWS, _INNER, _WIDTH)
    return out


@triton.jit
def _sum_outer(left, right, out, rows_out, M: tl.constexpr, N: tl.constexpr):
    """Σ_k left_k ⊗ right_k (n, n) of a tile, and Σ_k left_k."""
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    one, other = tl.load(left + at), tl.load(right + at)
    one_halves, one_unit = halve_rows(one)
    other_halves, other_unit = halve_rows(other)
    total = add_outer(tl.zeros((N, N), tl.float32), one_halves, one_unit, other_halves, other_unit, "tf32x3")
    tl.store(out + tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :], total)
    tl.store(rows_out + tl.arange(0, N), sum_pairs(add_pairs(zero_pairs(M, N), one)))


def check_outer_sums(device: str) -> None:
    """Sums over a tile's steps, whose sizes may differ by 60 orders of magnitude on either side."""
    rows = 64
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(rows, _WIDTH, generator=generator) for _ in range(2))
    sizes = torch.linspace(0, 1, rows)[:, None]
    for low, high in ((0.0, 0.0), (-30.0, 30.0), (30.0, -30.0), (-6.0, -36.0), (15.0, 15.0)):
        one, other = left * 10.0 ** (low * sizes), right * 10.0 ** (high * sizes)
        one[5], other[9] = 0.0, 1e-39
        out = torch.full((_WIDTH, _WIDTH), torch.nan, device=device)
        summed = torch.full((_WIDTH,), torch.nan, device=device)
        _sum_outer[(1,)](one.to(device), other.to(device), out, summed, rows, _WIDTH)
        wide, other_wide = one.double(), other.double()
        bound = _BITS * (wide.abs().T @ other_wide.abs())
        # A row that is much smaller than the largest one adds less than its rounding.
        largest = (wide.abs().amax(1) * other_wide.abs().amax(1)).max()
        assert bool(((out.cpu().double() - wide.T @ other_wide).abs() <= bound + rows * 2.0**-24 * largest).all())
        assert bool(((summed.cpu().double() - wide.sum(0)).abs() <= rows * 2.0**-24 * wide.abs().sum(0)).all())


def check_products() -> None:
    """Rows and channels of every size, and entries of very different ones within a row."""
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(size, _INNER, generator=generator) for size in (_ROWS, _WIDTH))
    x *= 10.0 ** torch.linspace(-30, 20, _ROWS)[:, None]
    weight *= 10.0 ** torch.linspace(-6, 6, _WIDTH)[:, None]
    # From 1 to 1e-12 within a row; smaller than any normal number; nothing at all.
    x[3], x[4], x[5] = 10.0 ** torch.linspace(0, -12, _INNER), x[4].sign() * 1e-39, 0.0
    weight[6] = 0.0
    wide_x, wide_weight = x.double(), weight.double()
    wanted = wide_x @ wide_weight.T
    largest = wide_x.abs().amax(1, keepdim=True) * wide_weight.abs().amax(1)
    bound = _BITS * (wide_x.abs() @ wide_weight.abs().T) + _FLOOR * largest + 1e-37 * wide_weight.abs().amax(1)
    found = _product(x, weight).double()
    assert bool(((found - wanted).abs() <= bound).all())
    assert bool((found[5] == 0).all())
    assert bool((found[:, 6] == 0).all())


def check_what_is_not_finite() -> None:
    """A row with something infinite or undefined in it is undefined, and the others are as they were."""
    x, weight = torch.randn(_ROWS, _INNER), torch.randn(_WIDTH, _INNER)
    broken = x.clone()
    broken[2, 3], broken[7, 0], broken[9, 5] = torch.inf, torch.nan, -torch.inf
    with np.errstate(invalid="ignore"):
        found = _product(broken, weight)
    gone = torch.zeros(_ROWS, dtype=torch.bool)
    gone[[2, 7, 9]] = True
    assert not bool(found[gone].isfinite().any())
    assert torch.equal(found[~gone], _product(x, weight)[~gone])


def check_scales(weights: float, gradient: float, steps: float, sizes: tuple[int, int, int] = (3, 2, 2)) -> None:
    """A block whose mixes' weights, gradient and gaps are large or small, against float64; x is zero at some steps."""
    outcomes = []
    for backend, dtype in (("reference", torch.float64), ("triton", torch.float32)):
        block = make_block({}, sizes).to(dtype)
        with torch.no_grad():
            for name, parameter in block.named_parameters():
                if name.split(".")[-2] in ("drive", "readout"):
                    parameter *= weights
        outcomes.append(_run(block.eval(), backend, dtype, gradient, steps))
    for name, value in outcomes[0].items():
        bound = FLOAT32_FORWARD if name == "y" else FLOAT32_GRADIENT
        error = relative_error(outcomes[1][name].double(), value)
        assert error < bound, f"{name}: {error:.1e}"


def _run(block: Any, backend: Any, dtype: torch.dtype, gradient: float, steps: float) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(2)
    width = block.ssm.config.hidden_size
    x, gaps = torch.randn(2, 19, width, generator=generator), steps * torch.rand(2, 19, generator=generator)
    change = gradient * torch.randn(2, 19, width, generator=generator)
    x[0, 4:7], change[1, :9] = 0.0, 0.0
    x = x.to(dtype).requires_grad_()
    with use_backend(backend):
        y = block(x, gaps.to(dtype))[0]
    leaves = {"x": x, **dict(block.named_parameters())}
    found = torch.autograd.grad((y * change.to(dtype)).sum(), list(leaves.values()))
    return {"y": y.detach()} | {f"d {name}": part for name, part in zip(leaves, found, strict=True)}


def check_halves(everything: bool) -> int:
    check_products()
    check_outer_sums("cpu")
    check_what_is_not_finite()
    scales = [(1e3, 1e-9, 1e-6)]
    if everything:
        scales += [(1e-3, 1e6, 1e3), (1e6, 1.0, 1e-12), (1e-6, 1e-9, 1.0), (1.0, 1e-30, 1e3)]
    for scale in scales:
        check_scales(*scale)
        if everything:
            # Many modes turn fast: in a long gap float32 itself is further from float64 than what is allowed.
            weights, gradient, steps = scale
            check_scales(weights, gradient, min(steps, 1e-2), (33, 18, 2))
    return len(scales)
