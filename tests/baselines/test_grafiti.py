"""GraFITi: a graph knows no order, of channels or of observations; the dense form is the sparse one."""

import math

import pytest
import torch
from torch import Tensor

from tests.baselines.questions import question, shuffled
from tests.baselines.small import answer, draw, make
from tides.baselines import build
from tides.baselines.grafiti import EdgeAttention, GraFITi
from tides.errors import ConfigError

NAMES = ("grafiti", "grafiti-c")


@pytest.mark.parametrize("name", NAMES)
def test_observations_are_a_set(name: str) -> None:
    model, asked = make(name), question()
    order = torch.randperm(asked.values.shape[1], generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(model.answer(shuffled(asked, order)), model.answer(asked))  # type: ignore[operator]


@pytest.mark.parametrize("name", NAMES)
def test_channels_that_swap_places_with_their_codes_swap_answers(name: str) -> None:
    model, asked = make(name), question()
    assert isinstance(model, GraFITi)
    expected, order = model.answer(asked), torch.tensor([2, 0, 1])
    with torch.no_grad():
        model.channel.weight.copy_(model.channel.weight[:, order])
    swapped = asked._replace(values=asked.values[..., order], observed=asked.observed[..., order])
    torch.testing.assert_close(model.answer(swapped), expected[..., order])


def test_attention_by_loops_over_existing_edges() -> None:
    torch.manual_seed(0)
    layer = EdgeAttention(6, 2).double()
    nodes, neighbours, edges = torch.randn(1, 3, 6), torch.randn(1, 4, 6), torch.randn(1, 3, 4, 6)
    nodes, neighbours, edges = nodes.double(), neighbours.double(), edges.double()
    mask = torch.tensor([[[True, False, True, True], [False] * 4, [False, False, False, True]]])
    found = layer(nodes, neighbours, edges, mask)[0]
    weight = torch.cat([layer.from_node.weight, layer.from_edge.weight], dim=1)
    for n in range(3):
        query = layer.query(nodes[0, n])
        own = [torch.cat([neighbours[0, m], edges[0, n, m]]) for m in range(4) if mask[0, n, m]]
        out = query.clone()
        if own:
            key, value = (torch.stack(own) @ weight.T + layer.from_node.bias).chunk(2, dim=-1)
            for head in (slice(0, 3), slice(3, 6)):
                alpha: Tensor = (key[:, head] @ query[head] / math.sqrt(6)).softmax(0)
                out[head] = out[head] + alpha @ value[:, head]
        torch.testing.assert_close(found[n], out + torch.relu(layer.mix(out)))


def test_the_constant_forecaster_is_constant_and_asks_at_the_last_time() -> None:
    batch, model = draw(), make("grafiti-c")
    found = answer("grafiti-c", model, batch)
    torch.testing.assert_close(found[0], found[0, :1].expand_as(found[0]))
    full = make("grafiti")
    last = batch.rows(torch.tensor([0]))
    last = last._replace(query_times=last.query_times[:, -1:], query_valid=last.query_valid[:, -1:])
    torch.testing.assert_close(answer("grafiti", full, last)[0, 0], found[0, 0])


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ConfigError, match="heads: found 3, wanted a divisor of hidden_size = 8"):
        build("grafiti", input_size=2, hidden_size=8, heads=3)
