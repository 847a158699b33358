"""What the passes over a bilinear form's temporaries promise: they equal torch's, in one launch or several."""

from typing import Any

import torch
from torch import Tensor

from tides.kernels import mixes
from tides.kernels.bilinear import PASSES

EPS = 1e-6


def close(found: Tensor, wanted: Tensor, what: str) -> None:
    """To a few roundings of sums over at most 256 terms."""
    tolerance = 1e-13 if found.dtype == torch.float64 else 1e-5
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), what
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance * 8, msg=lambda text: f"{what}: {text}")


def check_passes(name: str, m: int, n: int, i: int, a: int, dtype: torch.dtype, device: str) -> None:
    """Every pass of `name` against torch's, on memory that holds NaN, whole and in part of a larger tensor."""
    torch.manual_seed(n + a)
    ours, theirs = PASSES[name], PASSES["torch"]
    z, x, work = (torch.randn(m, n, *sizes, dtype=dtype, device=device) for sizes in ((i,), (a,), (i, a)))
    square = torch.rand(m, n, a, dtype=torch.float64, device=device)
    for precision in (dtype, torch.float64):
        close(ours.outer(z, x, precision), theirs.outer(z, x, precision), f"outer product in {precision}")
    close(ours.triple_product(x, x + 1, x - 1), theirs.triple_product(x, x + 1, x - 1), "triple product")
    for padding in (0, 2):

        def empty(padding: int = padding) -> Tensor:
            return torch.full((m, n + padding, a), torch.nan, dtype=dtype, device=device)[:, :n]

        def outcome(passes: Any) -> list[Tensor]:
            summed, dx, scaled = empty(), empty(), empty()
            for_inner, for_both = work.clone(), work.clone()
            return [
                passes.weighted_sum(z, work.clone(), summed),
                passes.inner(for_inner, z, x),
                passes.both_sums(for_both, z, x, dx),
                passes.inverse_root(square.clone(), EPS, x, scaled),
                *(summed, for_inner, for_both, dx, scaled),
            ]

        for number, (found, wanted) in enumerate(zip(outcome(ours), outcome(theirs), strict=True)):
            close(found, wanted, f"result {number} of {(m, n, i, a)}, padding {padding}")


def check_mixes(name: str, m: int, n: int, h: int, p: int, r: int, norm: bool, device: str, tolerance: float) -> None:
    """Both mixes with the passes of `name` against those of torch in float64: outputs and every gradient."""
    for inwards in (True, False):
        torch.manual_seed(h)
        sizes = ((m, n, h) if inwards else (m, n, p, 2), (m, n, r + 1), (m, p, h, 2, r + 1), (m, p))
        tensors = [torch.randn(*size, device=device) for size in sizes]
        operator = mixes.mix_in_op if inwards else mixes.mix_out_op
        outcomes = []
        for passes, dtype in (("torch", torch.float64), (name, torch.float32)):
            leaves = [tensor.to(dtype).requires_grad_() for tensor in tensors[: 4 if norm else 3]]
            out, _ = operator(*leaves, *(() if norm else (None,)), EPS, passes, True)
            outcomes.append([out.detach(), *torch.autograd.grad(out.sin().sum(), leaves)])
        for number, (wanted, found) in enumerate(zip(*outcomes, strict=True)):
            error = float((found - wanted).abs().max() / wanted.abs().max())
            assert error < tolerance, f"{'in' if inwards else 'out'}, result {number}: relative error {error:.1e}"
