"""The optimiser: Adam or AdamW over tagged groups, its schedule, clipping, and its state by parameter name."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from tides.errors import ConfigError, DataError
from tides.training.config import TrainConfig
from tides.training.fused_adam import FusedAdam
from tides.training.groups import parameter_groups
from tides.training.schedule import rate_factor


class Optimiser:
    """One update at a time; learning rates depend on the step number alone, so there is no schedule to store.

    With `captured`, the rates live on the device, so that `descend` can be part of a CUDA graph while `set_rates` stays
    outside of it.
    """

    def __init__(self, model: nn.Module, config: TrainConfig, steps_per_epoch: int, *, captured: bool = False) -> None:
        self.config, self.steps_per_epoch = config, steps_per_epoch
        self.groups = parameter_groups(model, config)
        if not self.groups:
            raise ConfigError(f"model: {type(model).__name__} has no trainable parameter")
        settings = [
            {
                "params": g.parameters,
                "lr": torch.tensor(g.lr, device=g.parameters[0].device) if captured else g.lr,
                "weight_decay": g.weight_decay,
            }
            for g in self.groups
        ]
        decoupled = config.optimiser == "adamw"
        self._torch = FusedAdam(settings, capturable=captured, decoupled_weight_decay=decoupled)
        self._parameters = [parameter for group in self.groups for parameter in group.parameters]

    def update(self, step: int) -> Tensor:
        """Clip the gradients, take one step, clear them; returns their global norm before clipping."""
        self.set_rates(step)
        norm = self.descend()
        self.clear()
        return norm

    def set_rates(self, step: int) -> None:
        """The learning rates of this step."""
        factor = rate_factor(self.config, step, self.steps_per_epoch)
        for settings, group in zip(self._torch.param_groups, self.groups, strict=True):
            if isinstance(settings["lr"], Tensor):
                settings["lr"].fill_(group.lr * factor)
            else:
                settings["lr"] = group.lr * factor

    def descend(self) -> Tensor:
        """Clip the gradients and take one step at the rates that are set; returns the norm before clipping."""
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        if self.config.clip_norm is not None:
            nn.utils.clip_grads_with_norm_(self._parameters, self.config.clip_norm, norm)
        self._torch.step()
        return norm

    def clear(self) -> None:
        """Forget the gradients."""
        self._torch.zero_grad(set_to_none=True)

    def forget(self) -> None:
        """Moments and step counts back to zero, in place: a captured graph keeps writing to the same tensors."""
        for slots in self._torch.state.values():
            for value in slots.values():
                value.zero_()

    def state(self) -> dict[str, Tensor]:
        """Every moment under `<parameter>/<slot>`."""
        return {
            f"{name}/{slot}": value
            for name, parameter in self._named()
            for slot, value in self._torch.state[parameter].items()
        }

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """The strict inverse of `state`."""
        owners = dict(self._named())
        for key, value in tensors.items():
            name, _, slot = key.rpartition("/")
            if name not in owners:
                raise DataError(f"optimiser state: {name!r} is no trainable parameter of this model")
            parameter = owners[name]
            slots = self._torch.state[parameter]
            if slot in slots:
                # In place: a captured graph keeps writing to the same tensors.
                slots[slot].copy_(value)
            else:
                # The step count keeps its own dtype; moments live where the parameter lives.
                slots[slot] = value.to(parameter.device).clone()

    def _named(self) -> list[tuple[str, nn.Parameter]]:
        return [pair for group in self.groups for pair in zip(group.names, group.parameters, strict=True)]
