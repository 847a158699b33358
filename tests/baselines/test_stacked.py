"""Forecasters that say they are stackable give side by side what each gives alone, gradients included, and never
wait for the device, so that a CUDA graph can hold a step."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from tests.baselines.small import draw, make
from tides import baselines

STACKABLE = [
    name
    for name in baselines.names("forecasting")
    if baselines.entry(name).model_class().stackable and baselines.entry(name).model_class().trainable
]


@pytest.mark.parametrize("name", STACKABLE)
def test_models_side_by_side(name: str) -> None:
    """Every model has its own weights and its own batch, as the folds of an experiment have."""
    models = [make(name).train() for _ in range(2)]
    with torch.no_grad():
        for parameter in models[1].parameters():
            parameter.mul_(1.1).add_(0.01)
    batches = [draw(seed) for seed in range(2)]
    together = [torch.stack(parts) for parts in zip(*batches, strict=True)]
    values, times, _, observed, valid, query_times, query_valid = together
    parameters, buffers = stack_module_state(models)

    def loss(parameters: dict[str, Tensor], buffers: dict[str, Tensor], *batch: Tensor) -> tuple[Tensor, Tensor]:
        values, times, observed, query_times, valid, query_valid = batch
        marks = {"valid": valid, "query_valid": query_valid}
        output = functional_call(models[0], (parameters, buffers), (values, times, observed, query_times), marks)
        return output.square().sum(), output

    batch = (values, times, observed, query_times, valid, query_valid)
    found, outputs = vmap(grad(loss, has_aux=True), randomness="different")(parameters, buffers, *batch)
    for i, (model, own) in enumerate(zip(models, batches, strict=True)):
        marks = {"valid": own.valid, "query_valid": own.query_valid}
        output = model(own.values, own.times, own.observed, own.query_times, **marks)
        torch.testing.assert_close(outputs[i], output, rtol=1e-8, atol=1e-10)
        for key, buffer in model.named_buffers():
            torch.testing.assert_close(buffers[key][i], buffer, rtol=1e-8, atol=1e-10, msg=key)
        output.square().sum().backward()
        for key, parameter in model.named_parameters():
            wanted = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            torch.testing.assert_close(found[key][i], wanted, rtol=1e-6, atol=1e-8, msg=key)


class NoWaiting(TorchDispatchMode):
    """Refuses what reads a value back, makes shapes from values, or copies a constant to the device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        name = str(func)
        for forbidden in ("_local_scalar_dense", "nonzero", "masked_select", "lift_fresh", "unique", "equal.default"):
            assert forbidden not in name, name
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", STACKABLE)
def test_nothing_waits_for_the_device(name: str) -> None:
    model, batch = make(name).train(), draw()
    parameters, buffers = stack_module_state([model])
    state = {**parameters, **buffers}
    marks = {"valid": batch.valid[None], "query_valid": batch.query_valid[None]}
    arguments = (batch.values[None], batch.times[None], batch.observed[None], batch.query_times[None])

    def loss(state: dict[str, Tensor], arguments: tuple[Tensor, ...], marks: dict[str, Tensor]) -> Tensor:
        output: Tensor = functional_call(model, state, arguments, marks)
        return output.square().sum()

    with NoWaiting():
        vmap(loss, randomness="different")(state, arguments, marks).sum().backward()
    with pytest.raises(AssertionError, match="_local_scalar_dense"), NoWaiting():
        batch.values.sum().item()
