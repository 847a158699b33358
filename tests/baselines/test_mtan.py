"""mTAN: attention by loops, and channels without observations."""

import math

import torch

from tests.baselines.questions import question, shuffled
from tests.baselines.small import make
from tides.baselines.mtan import MTAN, TimeAttention


def test_attention_by_loops() -> None:
    torch.manual_seed(0)
    layer = TimeAttention(3, 2, 6, 2).double()
    at, times = torch.rand(1, 4, 1, dtype=torch.float64), torch.rand(1, 5, 1, dtype=torch.float64)
    values, present = torch.randn(1, 5, 3, dtype=torch.float64), torch.rand(1, 5, 3) < 0.6
    present[..., 2] = False
    found = layer.attend(at, times, values, present)[0]

    def phi(t: torch.Tensor) -> torch.Tensor:
        raw = layer.embedding.weight[:, 0] * t + layer.embedding.bias
        return torch.cat([raw[:1], raw[1:].sin()])

    for n in range(4):
        query = layer.query(phi(at[0, n]))
        for head in range(2):
            part = slice(3 * head, 3 * head + 3)
            for c in range(3):
                rows = [i for i in range(5) if present[0, i, c]]
                wanted = torch.zeros((), dtype=torch.float64)
                if rows:
                    keys = torch.stack([layer.key(phi(times[0, i]))[part] for i in rows])
                    wanted = (keys @ query[part] / math.sqrt(3)).softmax(0) @ values[0, rows, c]
                torch.testing.assert_close(found[n, head, c], wanted)


def test_a_channel_without_observations_is_ignored_and_known_to_be_empty() -> None:
    model, asked = make("mtan"), question()
    assert isinstance(model, MTAN)
    observed = asked.observed.clone()
    observed[..., 1] = False
    empty = asked._replace(observed=observed)
    found = model.answer(empty)
    assert found.isfinite().all()
    loud = empty._replace(values=torch.where(observed, asked.values, 1e6))
    torch.testing.assert_close(model.answer(loud), found)
    # Observing zeros is not the same as observing nothing.
    zeros = asked._replace(values=asked.values * observed, observed=asked.observed)
    assert not torch.allclose(model.answer(zeros), found)


def test_observations_are_a_set() -> None:
    model, asked = make("mtan"), question()
    assert isinstance(model, MTAN)
    order = torch.randperm(asked.values.shape[1])
    torch.testing.assert_close(model.answer(shuffled(asked, order)), model.answer(asked))
