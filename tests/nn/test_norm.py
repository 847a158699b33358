"""BatchNorm over valid steps against torch's own, and the row norms."""

import pytest
import torch
from torch import Tensor, nn

from tests.comparison import assert_close
from tests.tolerances import EXACT, IDENTITY
from tides.nn.norm import MaskedBatchNorm, RowNorm, joint_statistics, make_norm


def apply(norm: MaskedBatchNorm | RowNorm, x: Tensor, valid: Tensor | None = None) -> Tensor:
    """As a block does it: statistics first, then every row."""
    return norm.normalise(x, norm.statistics(x, valid))


def test_without_padding_it_is_torchs_batch_norm() -> None:
    ours, theirs = make_norm("batch", 4).double(), nn.BatchNorm1d(4, affine=False).double()
    for _ in range(3):
        x = 3 * torch.randn(2, 5, 4, dtype=torch.float64) + 1
        assert_close(apply(ours, x), theirs(x.flatten(0, 1)).unflatten(0, (2, 5)), EXACT)
    assert_close(ours.running_mean, theirs.running_mean, EXACT)
    assert_close(ours.running_var, theirs.running_var, EXACT)
    ours.eval(), theirs.eval()
    assert_close(apply(ours, x), theirs(x.flatten(0, 1)).unflatten(0, (2, 5)), EXACT)


def test_padding_is_as_if_it_were_not_there() -> None:
    ours, theirs = make_norm("batch", 4).double(), nn.BatchNorm1d(4, affine=False).double()
    x = torch.randn(3, 5, 4, dtype=torch.float64)
    valid = torch.arange(5) < torch.tensor([[5], [2], [0]])
    found = apply(ours, x, valid)
    assert_close(found[valid], theirs(x[valid]), EXACT)
    assert_close(ours.running_var, theirs.running_var, EXACT)


def test_evaluation_does_not_move_the_statistics() -> None:
    norm = make_norm("batch", 4).eval()
    before = norm.running_mean.clone()
    apply(norm, torch.randn(2, 5, 4))
    assert torch.equal(norm.running_mean, before)


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_row_norms_are_torchs(kind: str) -> None:
    x = torch.randn(2, 5, 4, dtype=torch.float64)
    theirs = (
        nn.LayerNorm(4, elementwise_affine=False)
        if kind == "layer"
        else nn.RMSNorm(4, eps=1e-5, elementwise_affine=False)
    )
    assert_close(apply(make_norm(kind, 4), x), theirs(x), EXACT)  # type: ignore[arg-type]


def test_parts_of_a_batch_together_are_the_batch() -> None:
    """Moments, running statistics and gradients, where each part knows the others by one row of numbers."""
    lengths = torch.tensor([[7], [2], [5], [1]])
    valid, x = torch.arange(7) < lengths, 100 + torch.randn(4, 7, 3, dtype=torch.float64)
    toward = torch.randn_like(x)
    whole, rows = make_norm("batch", 3).double(), x.clone().requires_grad_()
    (apply(whole, rows, valid) * toward)[valid].sum().backward()

    parts = [slice(0, 1), slice(1, 4)]
    inputs, seen = x.clone().requires_grad_(), list[Tensor]()
    norm = make_norm("batch", 3).double()
    with joint_statistics(norm, lambda row: seen.append(row) or row.unsqueeze(0)):
        for part in parts:
            norm.statistics(inputs[part], valid[part])
    total = torch.zeros(())
    for part in parts:
        norm = make_norm("batch", 3).double()
        with joint_statistics(norm, lambda _: torch.stack(seen)):
            total = total + (apply(norm, inputs[part], valid[part]) * toward[part])[valid[part]].sum()
        assert_close(norm.running_mean, whole.running_mean, EXACT)
        assert_close(norm.running_var, whole.running_var, EXACT)
        assert norm.gather is None
    total.backward()
    assert inputs.grad is not None
    assert rows.grad is not None
    assert_close(inputs.grad[valid], rows.grad[valid], IDENTITY)
