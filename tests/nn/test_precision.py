"""Under autocast the encoder and the head may round; states and gates do not."""

import pytest
import torch

from tides import Backbone, Forecaster, SequenceClassifier, TIDESConfig
from tides.kernels import use_backend
from tides.nn import SSM, Block

CONFIG = TIDESConfig(input_size=2, hidden_size=8, state_size=4, depth=2, rank=3)


@pytest.mark.parametrize("backend", ["reference", "torch", "auto"])
def test_features_and_states_stay_single(backend: str) -> None:
    net = Backbone(CONFIG)
    x, gaps = torch.randn(3, 20, 2), torch.rand(3, 20)
    with use_backend(backend), torch.autocast("cpu", torch.bfloat16):
        y, state = net(x, gaps)
    y.sum().backward()
    assert y.dtype == state.held.dtype == torch.float32
    assert all(part.dtype == torch.complex64 for layer in state.blocks for part in layer)
    assert all(torch.isfinite(parameter.grad).all() for parameter in net.parameters() if parameter.grad is not None)


def test_answers_come_close_to_full_precision() -> None:
    classifier, forecaster = SequenceClassifier(CONFIG, 3).eval(), Forecaster(CONFIG, 2, "readout").eval()
    x, times = torch.randn(3, 20, 2), torch.rand(3, 20).cumsum(1)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = classifier(x, 0.5), forecaster(x, times, None, times[:, -1:] + 1)
    exact = classifier(x, 0.5), forecaster(x, times, None, times[:, -1:] + 1)
    for found, wanted in zip(rounded, exact, strict=True):
        # bfloat16 has eight bits, and rounding happens in the encoder and in the head.
        torch.testing.assert_close(found.float(), wanted, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("backend", ["reference", "torch", "auto"])
@pytest.mark.parametrize("kind", [SSM, Block])
def test_layers_by_themselves_round_nothing(kind: type[SSM] | type[Block], backend: str) -> None:
    torch.manual_seed(0)
    layer = kind(CONFIG.replace(variant="mamba-s", projector_init="random", decay_depth=1))
    u, gaps = torch.randn(3, 20, 8), torch.rand(3, 20)
    with use_backend(backend):
        wanted, state = layer(u, gaps)
        with torch.autocast("cpu", torch.bfloat16):
            found, _ = layer(u, gaps)
            later = layer.advance(state, gaps[:, 0])
    assert torch.equal(found, wanted)
    assert torch.equal(later.s, layer.advance(state, gaps[:, 0]).s)
    found.sum().backward()
