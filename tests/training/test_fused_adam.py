"""The lean step is torch's."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tides.training.fused_adam import FusedAdam


def parameters() -> list[nn.Parameter]:
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(3, 2)), nn.Parameter(torch.randn(5)), nn.Parameter(torch.randn(()))]


def groups(values: list[nn.Parameter]) -> list[dict[str, Any]]:
    return [{"params": values[:2], "lr": 1e-2, "weight_decay": 0.1}, {"params": values[2:], "lr": 3e-2}]


def descend(optimiser: torch.optim.Optimizer, values: list[nn.Parameter], step: int, *, missing: bool = False) -> None:
    generator = torch.Generator().manual_seed(step)
    for value in values:
        value.grad = torch.randn(value.shape, generator=generator)
    if missing:
        values[1].grad = None
    optimiser.step()


@pytest.mark.parametrize("decoupled", [False, True])
def test_steps_are_those_of_torch(decoupled: bool) -> None:
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    wanted, found = parameters(), parameters()
    reference = kind(groups(wanted), fused=True, weight_decay=0)
    lean = FusedAdam(groups(found), decoupled_weight_decay=decoupled)
    for step in range(6):
        for optimiser, values in ((reference, wanted), (lean, found)):
            optimiser.param_groups[0]["lr"] = 1e-2 / (1 + step)
            descend(optimiser, values, step, missing=step == 3)
    assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))
    assert lean.state_dict()["state"].keys() == reference.state_dict()["state"].keys()


def test_a_loaded_state_is_what_continues() -> None:
    whole, parts = parameters(), parameters()
    first = FusedAdam(groups(whole))
    for step in range(3):
        descend(first, whole, step)
    other = FusedAdam(groups(parts))
    for step in range(2):
        descend(other, parts, step)
    with torch.no_grad():
        for a, b in zip(parts, whole, strict=True):
            a.copy_(b)
    kept: dict[str, Any] = first.state_dict()
    other.load_state_dict({**kept, "state": {k: _copied(v) for k, v in kept["state"].items()}})
    for step in range(3, 6):
        descend(first, whole, step)
        descend(other, parts, step)
    assert all(torch.equal(a, b) for a, b in zip(whole, parts, strict=True))


def _copied(slots: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in slots.items()}
