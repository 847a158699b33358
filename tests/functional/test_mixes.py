"""B_k u_k and Re(C_k s_k) against matrices that are built, step by step."""

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.comparison import assert_close
from tests.functional.layers import RANKS, Case, describe, random_layer
from tests.functional.loop_oracle import matrix
from tests.tolerances import EXACT, FLOAT32_FORWARD
from tides.functional import LowRankMix, mix_in, mix_out

CASES = [Case("s5"), *(Case("tides", rank=rank, norm=norm) for rank in RANKS for norm in (True, False))]


def inputs(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    u = torch.randn(2, 5, 3, dtype=dtype)
    return u, torch.randn(2, 5, 4, dtype=dtype.to_complex())


@pytest.mark.parametrize("case", CASES, ids=describe)
def test_the_input_mix_is_a_matrix_product(case: Case) -> None:
    drive, (u, _) = random_layer(case).drive, inputs()
    found = mix_in(u, drive)
    for i in range(2):
        for k in range(5):
            assert_close(found[i, k], matrix(u[i, k], drive, 1e-6) @ (u[i, k] + 0j), EXACT)


@pytest.mark.parametrize("case", CASES, ids=describe)
def test_the_output_mix_is_a_matrix_product(case: Case) -> None:
    readout, (u, s) = random_layer(case).readout, inputs()
    found = mix_out(s, u, readout)
    for i in range(2):
        for k in range(5):
            assert_close(found[i, k], (matrix(u[i, k], readout, 1e-6).T @ s[i, k]).real, EXACT)


@pytest.mark.parametrize("case", CASES, ids=describe)
def test_float32(case: Case) -> None:
    layer, (u, s) = random_layer(case), inputs()
    half = random_layer(case, dtype=torch.float32)
    drive = type(half.drive)(*(None if x is None else x.float() for x in layer.drive))
    readout = type(half.readout)(*(None if x is None else x.float() for x in layer.readout))
    assert mix_in(u.float(), drive).dtype == torch.complex64
    assert_close(mix_in(u.float(), drive), mix_in(u, layer.drive), FLOAT32_FORWARD)
    assert_close(mix_out(s.to(torch.complex64), u.float(), readout), mix_out(s, u, layer.readout), FLOAT32_FORWARD)


def test_the_norm_does_not_lose_digits_when_code_and_base_cancel() -> None:
    """B_k = W_up z + B_0 with W_up z ≈ −B_0: the mean square is a small difference of large numbers."""
    base = torch.randn(4, 3, 2)
    up = -base.unsqueeze(-1) * (1 - 1e-3)
    mix = LowRankMix(base, up, torch.tensor([[1.0, 0.0, 0.0]]), torch.zeros(1), torch.ones(4))
    u = torch.tensor([[[1.0, 0.5, -0.3]]])
    exact = LowRankMix(*(None if x is None else x.double() for x in mix))
    assert_close(mix_in(u, mix), mix_in(u.double(), exact), 1e-3)


class LargestTensor(TorchDispatchMode):
    """Remembers the largest result of any operation."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else [result]:
            if isinstance(value, Tensor):
                self.numel = max(self.numel, value.numel())
        return result


@pytest.mark.parametrize("rank", [2, "diag"])
def test_the_matrices_are_never_built(rank: int | str) -> None:
    p, h, l = 16, 32, 50
    layer = random_layer(Case("tides", rank=rank), p=p, h=h)
    u = torch.randn(1, l, h, dtype=torch.float64, requires_grad=True)
    s = torch.randn(1, l, p, dtype=torch.complex128, requires_grad=True)
    with LargestTensor() as seen:
        loss = mix_in(u, layer.drive).abs().sum() + mix_out(s, u, layer.readout).sum()
        loss.backward()
    assert 0 < seen.numel < l * p * h
