"""Hooks see every part of a block that is called, whatever is fused without them, and replaced layers are asked."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.comparison import assert_close
from tests.nn.models import backbone, classifier, forecaster, values_and_gaps
from tests.tolerances import EXACT
from tides import kernels
from tides.errors import ConfigError
from tides.functional import SSMOps, SSMWeights
from tides.nn import SSM, CompiledStep
from tides.nn.block import Block
from tides.nn.norm import MaskedBatchNorm, Statistics

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


class Doubled(SSM):
    """A layer of somebody's own."""

    def forward(self, u: Tensor, gaps: Tensor, **options: Any) -> Any:
        y, state = super().forward(u, gaps, **options)
        return 2 * y, state


class Louder(MaskedBatchNorm):
    """A norm of somebody's own."""

    def normalise(self, x: Tensor, statistics: Statistics | None = None) -> Tensor:
        return 2 * super().normalise(x, statistics)


def put_in_place(block: Block, name: str) -> None:
    """Another layer or norm with the weights of the one that is there."""
    old = block.get_submodule(name)
    new = Doubled(block.ssm.config) if name == "ssm" else Louder(block.ssm.config.hidden_size)
    new.to(block.ssm.skip).load_state_dict(old.state_dict())
    setattr(block, name, new.train(old.training))


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@pytest.mark.parametrize("name", ["ssm", "norm"])
def test_a_replaced_layer_or_norm_is_asked(name: str, training: bool) -> None:
    model, (x, gaps) = backbone().train(training), values_and_gaps()
    plain, _ = model(x, gaps)
    for block in model.typed_blocks():
        put_in_place(block, name)
    found, _ = model(x, gaps)
    assert not torch.allclose(found, plain)
    with kernels.use_backend("reference"):
        assert_close(found, model(x, gaps)[0], EXACT)
    with pytest.raises(ConfigError, match="model: a block's layer or norm was replaced"):
        CompiledStep(model.eval())


class Bounded(SSM):
    """Decay rates between e⁻² and e² whatever the input is."""

    def operations(self, u: Tensor, weights: SSMWeights) -> SSMOps:
        ops = super().operations(u, weights)
        return ops._replace(decay_rates=lambda *head: -torch.exp(2 * torch.tanh(ops.decay_rates(*head))))


class Scaled(nn.LayerNorm):
    """A norm with learned numbers."""

    def statistics(self, x: Tensor, valid: Tensor | None = None) -> None: ...

    def forward(self, x: Tensor, statistics: None = None) -> Tensor:
        return super().forward(x)


@pytest.mark.parametrize("backend", ["reference", "torch", "auto"])
def test_a_changed_operation_and_a_norm_with_weights_are_one_model_however_it_is_asked(backend: str) -> None:
    model = forecaster("readout", reparam="standard")
    x, gaps = values_and_gaps()
    times = model.backbone.calibration.first_gap + gaps.cumsum(1)
    later = torch.tensor([[0.0, 1.5]] * 3, dtype=torch.float64)
    plain = model(x, times, None, times[:, -1:] + later)
    for block in model.backbone.typed_blocks():
        bounded, norm = Bounded(model.config).double(), Scaled(model.config.hidden_size).double()
        bounded.load_state_dict(block.ssm.state_dict())
        nn.init.normal_(norm.weight)
        block.ssm, block.norm = bounded, norm  # type: ignore[assignment]
    with kernels.use_backend(backend):  # type: ignore[arg-type]
        whole = model(x, times, None, times[:, -1:] + later)
    assert not torch.allclose(whole, plain)
    state = model.init_state(3)
    for k, gap in enumerate(model.backbone.calibration.gaps(times).unbind(1)):
        answers, state = model.step(x[:, k], gap, state, at=later)
    assert_close(answers, whole, EXACT)


class Wrapped(nn.Module):
    """What `torch.compile` and sharding put around a block: it has the attributes of what it calls."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.calls = inner, 0

    def forward(self, *given: Any, **options: Any) -> Any:
        self.calls += 1
        return self.inner(*given, **options)

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name) if name == "inner" else getattr(self.inner, name)


@pytest.mark.parametrize("wrapped", [1, 2], ids=["one", "all"])
def test_wrapped_blocks_are_called(wrapped: int) -> None:
    model, (x, gaps) = classifier(), values_and_gaps()
    wanted, step = model(x, gaps), CompiledStep(model).step(x[:1, 0], gaps[:1, 0])
    traces = model.backbone.trace(x, gaps)[1]
    for index in range(wrapped):
        model.backbone.blocks[index] = Wrapped(model.backbone.blocks[index])
    assert_close(model(x, gaps), wanted, EXACT, "forward")
    assert [block.calls for block in model.backbone.blocks if isinstance(block, Wrapped)] == [1] * wrapped
    assert_close(model.read(x, gaps, model.init_state(3))[0], wanted, EXACT, "read")
    assert torch.equal(CompiledStep(model).step(x[:1, 0], gaps[:1, 0]), step)
    for found, trace in zip(model.backbone.trace(x, gaps)[1], traces, strict=True):
        assert_close(found.state.s, trace.state.s, EXACT, "trace")


def test_dropout_in_training_mode_by_itself_draws_answers() -> None:
    """As whoever wants samples of a trained model's answers sets it."""
    model, (x, gaps) = backbone(dropout=0.5), values_and_gaps()
    plain, _ = model(x, gaps)
    for module in model.modules():
        module.train(isinstance(module, nn.Dropout))
    first, second = model(x, gaps)[0], model(x, gaps)[0]
    assert not torch.allclose(first, plain)
    assert not torch.allclose(first, second)
    model.eval()
    assert torch.equal(model(x, gaps)[0], plain)


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
def test_dropout_may_be_taken_out_and_switched_off(training: bool) -> None:
    model, (x, gaps) = backbone(dropout=0.5).train(training), values_and_gaps()
    for block in model.typed_blocks():
        block.dropout.eval()
    wanted, _ = model(x, gaps)
    assert torch.equal(model(x, gaps)[0], wanted)
    for block in model.typed_blocks():
        block.dropout = nn.Identity()  # type: ignore[assignment]
    assert_close(model(x, gaps)[0], wanted, EXACT)


@pytest.mark.parametrize("place", ["drive.down", "readout.down", "decay.blocks.0.value", "decay.blocks.0.gate"])
def test_what_takes_the_place_of_a_heads_layer_is_refused(place: str) -> None:
    """Heads hand out tensors and are never called: an adapter would silently do nothing."""
    model, (x, gaps) = backbone(decay_depth=1), values_and_gaps()
    owner, _, name = place.rpartition(".")
    head = model.blocks[0].ssm.get_submodule(owner)
    setattr(head, name, Adapted(getattr(head, name)))
    with pytest.raises(ConfigError, match=r"found \S*\.Adapted in place of a layer whose weights are used directly"):
        model(x, gaps)


@pytest.mark.parametrize("place", ["head", "backbone.encoder.0"])
def test_adapted_ends_are_asked_and_not_compiled(place: str) -> None:
    model, (x, gaps) = classifier(), values_and_gaps()
    plain = model(x, gaps)
    owner, _, name = place.rpartition(".")
    setattr(model.get_submodule(owner), name, Adapted(model.get_submodule(place)))
    assert not torch.allclose(model(x, gaps), plain)
    with pytest.raises(ConfigError, match=r"found \S*\.Adapted in place of a layer whose weights are used directly"):
        CompiledStep(model)
