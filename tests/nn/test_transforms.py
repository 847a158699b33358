"""`torch.func` and higher derivatives of whole models on the plain path."""

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call, grad, jvp, stack_module_state, vmap

from tests.comparison import assert_close
from tests.nn.models import VARIANTS, classifier, forecaster, padding, small_config, values_and_gaps
from tests.tolerances import EXACT, IDENTITY
from tides import kernels
from tides.nn import SequenceClassifier

MODELS = ("classifier", "steps", "readout")


def model_and_arguments(
    kind: str, variant: str = "tides"
) -> tuple[nn.Module, tuple[Tensor | None, ...], dict[str, Tensor]]:
    x, gaps = values_and_gaps()
    extra = {"valid": padding([6, 3, 5], 6)}
    if kind == "classifier":
        return classifier(variant=variant), (x, gaps), extra
    asked = 8 * torch.rand(3, 2, dtype=torch.float64)
    return forecaster(kind, variant=variant), (x, gaps.cumsum(1), None, asked), extra


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("kind", MODELS)
def test_stacked_models(kind: str, training: bool) -> None:
    """Several models side by side give what each gives alone, gradients and running statistics included."""
    models = [model_and_arguments(kind)[0].train(training) for _ in range(3)]
    _, arguments, extra = model_and_arguments(kind)
    parameters, buffers = stack_module_state(models)

    def loss(parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        output = functional_call(models[0], (parameters, buffers), arguments, extra)
        return output.square().sum(), output

    with kernels.use_backend("reference"):
        found, outputs = vmap(grad(loss, has_aux=True))(parameters, buffers)
        for i, model in enumerate(models):
            output = model(*arguments, **extra)
            assert_close(outputs[i], output, EXACT, f"model {i}")
            wanted = torch.autograd.grad(output.square().sum(), list(model.parameters()), allow_unused=True)
            scale = max(float(g.abs().max()) for g in wanted if g is not None)
            for name, gradient in zip(dict(model.named_parameters()), wanted, strict=True):
                if gradient is not None and float(gradient.abs().max()) > 1e-8 * scale:
                    assert_close(found[name][i], gradient, IDENTITY, name)
            for name, buffer in model.named_buffers():
                assert_close(buffers[name][i], buffer, EXACT, name)


@pytest.mark.parametrize("kind", MODELS)
def test_forward_mode_equals_a_difference_quotient(kind: str) -> None:
    model, arguments, extra = model_and_arguments(kind)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    direction = {name: torch.randn_like(p) for name, p in parameters.items()}

    def run(parameters: dict[str, Tensor]) -> Tensor:
        return functional_call(model, parameters, arguments, extra)

    with kernels.use_backend("reference"), torch.no_grad():
        _, tangent = jvp(run, (parameters,), (direction,))
        h = 1e-6
        ahead = run({name: p + h * direction[name] for name, p in parameters.items()})
        behind = run({name: p - h * direction[name] for name, p in parameters.items()})
    # Central differences in float64 are good to about h² and the rounding error divided by h.
    assert_close(tangent, (ahead - behind) / (2 * h), 1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_of_a_classifier(variant: str) -> None:
    model = classifier(variant=variant, depth=1)
    x, gaps = values_and_gaps(1, 3)
    x.requires_grad_()
    gaps = (gaps + 0.1).requires_grad_()
    with kernels.use_backend("reference"):
        assert gradcheck(model, [x, gaps], fast_mode=True)


def test_double_backward_of_a_classifier() -> None:
    model = classifier(depth=1)
    x, gaps = values_and_gaps(1, 3)
    x.requires_grad_()
    gaps = (gaps + 0.1).requires_grad_()
    with kernels.use_backend("reference"):
        assert gradgradcheck(model, [x, gaps], fast_mode=True, atol=1e-4)


def test_a_penalty_on_the_input_gradient_can_be_trained() -> None:
    """The common use of double backward: a loss that contains a gradient."""
    model = classifier()
    x, gaps = values_and_gaps()
    x.requires_grad_()
    with kernels.use_backend("reference"):
        (inner,) = torch.autograd.grad(model(x, gaps).sum(), x, create_graph=True)
        inner.square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    assert any(float(p.grad.abs().sum()) > 0 for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("variant", VARIANTS)
def test_shapes_and_memory_can_be_planned_without_values(variant: str) -> None:
    with FakeTensorMode():
        model = SequenceClassifier(small_config(variant=variant), 3)
        answer = model(torch.randn(3, 6, 2), torch.rand(3, 6), valid=torch.ones(3, 6, dtype=torch.bool))
        answer.sum().backward()
    assert answer.shape == (3, 3)
    assert all(parameter.grad.shape == parameter.shape for parameter in model.parameters())
