"""torch's fused Adam without the search for its tensors at every step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor


class _Group(NamedTuple):
    parameters: list[Tensor]
    first: list[Tensor]
    second: list[Tensor]
    steps: list[Tensor]
    counts: Tensor
    """All of `steps`, which are parts of it."""


class FusedAdam(torch.optim.Adam):
    """`torch.optim.Adam(fused=True)`, or AdamW with `decoupled_weight_decay`: the same state, launches and numbers.

    torch collects parameters, moments and counts again at every step and counts for each parameter separately, which
    takes longer than the update of a small model. Here they are remembered after a step in which every parameter had a
    gradient; a step in which one has none is left to torch.
    """

    def __init__(self, params: Any, **options: Any) -> None:
        self._groups: list[_Group] | None = None
        self._captured = False
        super().__init__(params, fused=True, **options)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update."""
        gradients = [[parameter.grad for parameter in group["params"]] for group in self.param_groups]
        whole = not any(gradient is None for row in gradients for gradient in row)
        if self._groups is None or closure is not None or not whole:
            loss = super().step(closure)
            # A graph captured with torch's own step keeps counting in the tensors it saw.
            self._captured |= torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
            self._groups = self._collect() if whole and closure is None and not self._captured else None
            return loss
        with torch.no_grad():
            for group, settings, row in zip(self._groups, self.param_groups, gradients, strict=True):
                group.counts.add_(1)
                update = torch._fused_adamw_ if settings["decoupled_weight_decay"] else torch._fused_adam_
                beta1, beta2 = settings["betas"]
                update(
                    group.parameters, row, group.first, group.second, [], group.steps, amsgrad=False,
                    lr=settings["lr"], beta1=beta1, beta2=beta2, weight_decay=settings["weight_decay"],
                    eps=settings["eps"], maximize=False,
                )  # fmt: skip
        return None

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, without torch's profiler hook."""
        if not set_to_none:
            super().zero_grad(set_to_none=False)
            return
        for settings in self.param_groups:
            for parameter in settings["params"]:
                parameter.grad = None

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self._groups = None
        super().add_param_group(param_group)

    def load_state_dict(self, state_dict: Any) -> None:
        self._groups = None
        super().load_state_dict(state_dict)

    def _collect(self) -> list[_Group] | None:
        """The tensors of every group; None if they differ in device or dtype, since one launch needs them alike."""
        groups = []
        for settings in self.param_groups:
            parameters = settings["params"]
            if settings["amsgrad"] or settings["maximize"] or len({(p.device, p.dtype) for p in parameters}) != 1:
                return None
            states = [self.state[parameter] for parameter in parameters]
            first, second = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq"))
            counts = torch.stack([state["step"] for state in states])
            steps = list(counts.unbind())
            for state, step in zip(states, steps, strict=True):
                state["step"] = step
            groups.append(_Group(list(parameters), first, second, steps, counts))
        return groups
