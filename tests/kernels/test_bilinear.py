"""Bilinear forms in both orders against their definition, and the mixes built on them at uneven sizes."""

import pytest
import torch
from torch import Tensor

from tests.comparison import assert_close
from tests.kernels.backends import Target, running
from tests.kernels.passes_contract import check_mixes, check_passes
from tests.tolerances import FLOAT32_GRADIENT, IDENTITY
from tides.functional.mixes import LowRankMix
from tides.functional.mixes import mix_in as plain_mix_in
from tides.functional.mixes import mix_out as plain_mix_out
from tides.kernels import mixes
from tides.kernels.bilinear import PASSES, OuterFirst, ProductFirst, bilinear_form


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize("order", [OuterFirst, ProductFirst])
@pytest.mark.parametrize(("m", "n", "i", "a", "o"), [(1, 1, 1, 1, 1), (2, 13, 3, 7, 4), (3, 5, 6, 2, 9)])
def test_both_orders_equal_the_definition(
    order: type[OuterFirst] | type[ProductFirst], m: int, n: int, i: int, a: int, o: int
) -> None:
    torch.manual_seed(n)
    leaves = [normal(*shape).requires_grad_() for shape in ((m, n, i), (m, n, a), (m, i, a, o))]
    cotangent = normal(m, n, o)
    wanted = torch.einsum("mni,mna,miao->mno", *leaves)
    d_wanted = torch.autograd.grad(wanted, leaves, cotangent)
    z, x, kernel = (leaf.detach() for leaf in leaves)

    form = order(kernel, PASSES["torch"])
    out = torch.full((m, n, o), torch.nan, dtype=torch.float64)
    assert_close(form.apply(z, x, out), wanted, IDENTITY, "the form")
    assert_close(out, wanted, IDENTITY, "what it was given to write to")
    # Two blocks of steps: the kernel's gradient is their sum.
    cut = (n + 1) // 2
    dx = torch.full_like(x, torch.nan)
    halves = [
        form.backward(cotangent[:, rows], z[:, rows], x[:, rows], dx[:, rows])
        for rows in (slice(cut), slice(cut, None))
    ]
    dz = torch.cat(halves, dim=1)
    for name, found, theirs in zip("zxK", (dz, dx, form.d_kernel()), d_wanted, strict=True):
        assert_close(found, theirs, IDENTITY, f"gradient of {name}")


def test_the_narrower_order_is_taken() -> None:
    assert isinstance(bilinear_form(normal(1, 3 * 4, 5), 3, PASSES["torch"]), OuterFirst)
    assert isinstance(bilinear_form(normal(1, 3 * 5, 5), 3, PASSES["torch"]), OuterFirst)
    assert isinstance(bilinear_form(normal(1, 3 * 5, 4), 3, PASSES["torch"]), ProductFirst)


@pytest.mark.parametrize("norm", [True, False], ids=["norm", "no norm"])
@pytest.mark.parametrize(("h", "p", "r"), [(9, 2, 3), (3, 4, 2), (4, 2, 6)])
@pytest.mark.parametrize("inwards", [True, False], ids=["in", "out"])
def test_mixes_of_uneven_sizes(
    inwards: bool, h: int, p: int, r: int, norm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H above and below 2P, and more than one block of steps."""
    monkeypatch.setitem(mixes._BLOCK_ELEMENTS, "cpu", 1)
    torch.manual_seed(h)
    shapes = [(2, 70, p, 2), (2, 70, h), (p, h, 2), (p, h, 2, r), (r, h), (r,), (p,)]
    leaves = [normal(*shape).requires_grad_() for shape in shapes]
    pairs, u, *weights = leaves
    mix = LowRankMix(*weights[:-1], weights[-1] if norm else None)

    def outcome(mix_in: object, mix_out: object) -> list[Tensor]:
        mixed = mix_in(u, mix, 1e-6) if inwards else mix_out(torch.view_as_complex(pairs), u, mix, 1e-6)  # type: ignore[operator]
        out = torch.view_as_real(mixed) if inwards else mixed
        return [out, *torch.autograd.grad(out.sin().sum(), leaves, allow_unused=True, materialize_grads=True)]

    found, wanted = outcome(mixes.mix_in, mixes.mix_out), outcome(plain_mix_in, plain_mix_out)
    for name, ours, theirs in zip(("out", "s", "u", "base", "up", "down", "bias", "norm"), found, wanted, strict=True):
        assert_close(ours, theirs, IDENTITY, name)


def test_a_mix_of_no_steps() -> None:
    u, code, factors, norm = (
        normal(*shape).requires_grad_() for shape in ((1, 0, 5), (1, 0, 3), (1, 2, 5, 2, 3), (1, 2))
    )
    out, inverse = mixes.mix_in_op(u, code, factors, norm, 1e-6, "torch", True)
    assert out.shape == (1, 0, 4)
    assert inverse.shape == (1, 0, 5)
    for gradient in torch.autograd.grad(out.sum(), (factors, norm)):
        assert not gradient.any()


@pytest.mark.parametrize("inwards", [True, False])
def test_inverse_norms_are_kept_for_a_backward_pass_only(inwards: bool) -> None:
    x, code, factors, norm = (
        normal(*shape) for shape in ((1, 7, 5) if inwards else (1, 7, 2, 2), (1, 7, 3), (1, 2, 5, 2, 3), (1, 2))
    )
    operator = mixes.mix_in_op if inwards else mixes.mix_out_op
    (out, kept), (again, nothing) = (operator(x, code, factors, norm, 1e-6, "torch", keep) for keep in (True, False))
    assert torch.equal(out, again)
    assert (kept.shape, nothing.numel()) == ((1, 7, 5), 0)


@pytest.mark.gpu
@pytest.mark.parametrize(("m", "n", "i", "a"), [(5, 8640, 5, 100), (5, 8640, 33, 32), (1, 1, 1, 1), (3, 1001, 3, 192)])
def test_fused_passes_equal_torch(m: int, n: int, i: int, a: int) -> None:
    with running(Target("triton", "cuda")):
        for dtype in (torch.float32, torch.float64):
            check_passes("triton", m, n, i, a, dtype, "cuda")


@pytest.mark.gpu
@pytest.mark.parametrize(("h", "p", "r"), [(32, 50, 4), (192, 16, 2), (64, 16, 32), (16, 50, 24)])
@pytest.mark.parametrize("norm", [True, False], ids=["norm", "no norm"])
def test_fused_mixes_equal_torch(h: int, p: int, r: int, norm: bool) -> None:
    with running(Target("triton", "cuda")):
        check_mixes("triton", 5, 1000, h, p, r, norm, "cuda", FLOAT32_GRADIENT)
