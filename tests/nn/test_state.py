import pytest
import torch

from tides.errors import DataError, ShapeError
from tides.nn import SequenceClassifier, TIDESConfig


@pytest.mark.parametrize("pool", ["mean", "last", "time"])
def test_a_plain_number_is_the_gap_of_every_series(pool: str) -> None:
    torch.manual_seed(0)
    clf = SequenceClassifier(TIDESConfig(input_size=2, depth=2, pool=pool, summary=True), 3).eval()  # type: ignore[arg-type]
    x, rows = torch.randn(4, 2), torch.full((4,), 0.5)
    answer, state = clf.step(x, rows, clf.init_state(4))
    again, same = clf.step(x, 0.5, clf.init_state(4))
    assert torch.equal(answer, again)
    assert torch.equal(clf.peek(state, rows), clf.peek(same, 0.5))
    later, other = clf.advance(state, rows), clf.advance(same, 0.5)
    assert torch.equal(clf.peek(later, 1), clf.peek(other, torch.ones(4)))
    net = clf.backbone
    assert torch.equal(net.advance(state.backbone, 0).blocks[0].s, state.backbone.blocks[0].s)
    ssm = net.typed_blocks()[0].ssm
    assert torch.equal(ssm.advance(state.backbone.blocks[0], 2).s, ssm.advance(state.backbone.blocks[0], 4 * rows).s)
    with pytest.raises(DataError, match="gap: found -1"):
        clf.advance(state, -1)
    with pytest.raises(ShapeError, match="gap: found bool"):
        clf.advance(state, True)
