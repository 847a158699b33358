"""BatchNorm over valid steps against torch's own, and the row norms."""

import pytest
import torch
from torch import Tensor, nn

from tests.comparison import assert_close
from tests.tolerances import EXACT
from tides.nn.norm import MaskedBatchNorm, RowNorm, make_norm


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
