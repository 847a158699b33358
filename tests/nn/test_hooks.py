"""Hooks see every part of a block that is called, whatever is fused without them, and replaced layers are asked."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.comparison import assert_close
from tests.nn.models import backbone, classifier, forecaster, values_and_gaps
from tests.tolerances import EXACT
from tides.errors import ConfigError
from tides.nn import CompiledStep
from tides.nn.block import Block

PARTS = ("norm", "ssm", "glu", "glu.value", "glu.gate", "glu.out", "dropout")


class Adapted(nn.Module):
    """A linear map and a learned addition, as adapters put them in a layer's place."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base, self.added = base, nn.Linear(base.in_features, base.out_features, dtype=base.weight.dtype)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.base(x) + self.added(x)
        return result


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("part", PARTS)
def test_a_hook_on_a_part_is_called_and_changes_nothing(part: str, training: bool) -> None:
    model, (x, gaps) = backbone(), values_and_gaps()
    model.train(training)
    wanted, _ = model(x, gaps)
    calls: list[Any] = []
    hook = model.blocks[1].get_submodule(part).register_forward_hook(lambda *given: calls.append(given))
    assert_close(model(x, gaps)[0], wanted, EXACT)
    assert len(calls) == (2 if part == "dropout" else 1)
    hook.remove()
    assert torch.equal(model(x, gaps)[0], wanted)
    assert len(calls) == (2 if part == "dropout" else 1)


def test_a_hook_may_change_what_a_layer_says() -> None:
    model, (x, gaps) = backbone(), values_and_gaps()
    plain, _ = model(x, gaps)
    model.blocks[0].ssm.register_forward_hook(lambda module, given, found: (torch.zeros_like(found[0]), found[1]))
    assert not torch.allclose(model(x, gaps)[0], plain)
    copied = copy.deepcopy(model)
    assert torch.equal(copied(x, gaps)[0], model(x, gaps)[0])


def test_hooks_on_everything_and_on_gradients() -> None:
    model, (x, gaps) = backbone(), values_and_gaps()
    seen: list[str] = []
    hook = nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(type(module).__name__))
    model(x, gaps)
    hook.remove()
    assert {"Block", "SSM", "FeedForwardGLU", "MaskedBatchNorm"} <= set(seen)
    gradients: list[Any] = []
    model.blocks[0].glu.register_full_backward_hook(lambda module, given, found: gradients.append(found[0]))
    model(x, gaps)[0].sum().backward()
    assert gradients[0].shape == (*gaps.shape, model.config.hidden_size)


def test_a_block_by_itself_shows_its_parts_too() -> None:
    block, calls = backbone().blocks[0], []
    block.glu.register_forward_hook(lambda *given: calls.append(given))
    block(torch.randn(2, 3, 4).double(), torch.rand(2, 3).double())
    assert len(calls) == 1


def test_a_module_that_comes_with_hooks_is_seen() -> None:
    model, (x, gaps) = backbone(), values_and_gaps()
    wanted, _ = model(x, gaps)
    calls: list[Any] = []
    other = copy.deepcopy(model.blocks[0].glu.gate)
    other.register_forward_hook(lambda *given: calls.append(given))
    model.blocks[0].glu.gate = other
    assert_close(model(x, gaps)[0], wanted, EXACT)
    assert len(calls) == 1


@pytest.mark.parametrize("name", ["value", "gate", "out"])
def test_a_replaced_layer_is_asked(name: str) -> None:
    model, (x, gaps) = classifier(), values_and_gaps()
    plain = model(x, gaps)
    for block in model.backbone.blocks:
        assert isinstance(block, Block)
        setattr(block.glu, name, Adapted(getattr(block.glu, name)))
    found = model(x, gaps)
    assert not torch.allclose(found, plain)
    assert_close(model.read(x, gaps, model.init_state(3))[0], found, EXACT, "read")
    with pytest.raises(ConfigError, match="model: a block's GLU was replaced in part"):
        CompiledStep(model)
    for block in model.backbone.blocks:
        nn.init.zeros_(getattr(block.glu, name).added.weight)
        nn.init.zeros_(getattr(block.glu, name).added.bias)
    assert_close(model(x, gaps), plain, EXACT)


def test_a_replaced_glu_and_a_replaced_layer_of_the_encoder_are_asked() -> None:
    model, (x, gaps) = forecaster("readout", encoder_depth=1), values_and_gaps()
    times, asked = gaps.cumsum(1), torch.full((3, 1), 20.0, dtype=torch.float64)
    plain = model(x, times, None, asked)
    model.backbone.encoder[0].value = Adapted(model.backbone.encoder[0].value)
    adapted = model(x, times, None, asked)
    assert not torch.allclose(adapted, plain)
    model.backbone.blocks[1].glu = nn.Tanh()
    assert not torch.allclose(model(x, times, None, asked), adapted)
