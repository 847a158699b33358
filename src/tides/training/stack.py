"""m models of one architecture as one: parameters and buffers with a leading model axis."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from tides.errors import ConfigError


class Stack:
    """What the members learn is one matrix `weights` (m, n), so that an optimiser needs few launches.

    Models compute with `parameters`, leaves (m, …) that lie one after another in memory and follow `weights` when
    `publish` is called; `buffers` (m, …) hold the rest of each member's state.
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        states = [state_of(model) for model in models]
        shapes = [{name: tuple(x.shape) for name, x in state.items()} for state in states]
        for member, found in enumerate(shapes):
            if found != shapes[0]:
                name = next(name for name in {**found, **shapes[0]} if found.get(name) != shapes[0].get(name))
                raise ConfigError(
                    f"member {member}: {name} has shape {found.get(name)}, that of member 0 {shapes[0].get(name)};"
                    " a population has one architecture"
                )
        learnt = {name: parameter for name, parameter in models[0].named_parameters() if parameter.requires_grad}
        if not learnt:
            raise ConfigError(f"model: {type(models[0]).__name__} has no trainable parameter")
        self._shapes = {name: parameter.shape for name, parameter in learnt.items()}
        self.sizes = {name: parameter.numel() for name, parameter in learnt.items()}
        self.weights = torch.cat([torch.stack([state[name].flatten() for state in states]) for name in learnt], dim=1)
        self.buffers = {
            name: torch.stack([state[name] for state in states]) for name in states[0] if name not in learnt
        }
        self._lay_out()

    @torch.no_grad()
    def keep(self, rows: Tensor) -> None:
        """Reduce the stack to the members in these rows."""
        self.weights = self.weights[rows]
        self.buffers = {name: tensor[rows] for name, tensor in self.buffers.items()}
        self._lay_out()

    def _lay_out(self) -> None:
        """Leaves for the present weights."""
        m, width = self.weights.shape
        self.members, device = m, self.weights.device
        columns = torch.arange(m * width, device=device).view(m, width)
        pieces = columns.split(list(self.sizes.values()), dim=1)
        self._order = torch.cat([piece.flatten() for piece in pieces])
        self.memory = torch.empty(m * width, dtype=self.weights.dtype, device=device)
        views = self.memory.split([m * size for size in self.sizes.values()])
        self.parameters = {
            name: view.view(m, *shape).detach().requires_grad_()
            for (name, shape), view in zip(self._shapes.items(), views, strict=True)
        }
        self.publish()

    @torch.no_grad()
    def publish(self) -> None:
        """Update the parameters from the weights."""
        torch.index_select(self.weights.view(-1), 0, self._order, out=self.memory)

    def gradient(self, loss: Tensor) -> Tensor:
        """d loss / d weights (m, n); zero for what the loss does not depend on."""
        leaves = list(self.parameters.values())
        found = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        return torch.cat([gradient.reshape(self.members, -1) for gradient in found], dim=1)

    def columns(self, numbers: Mapping[str, float]) -> Tensor:
        """One number per parameter, expanded to one per column of `weights` (n,)."""
        spread = [torch.full((size,), numbers[name], dtype=torch.float64) for name, size in self.sizes.items()]
        return torch.cat(spread).to(self.weights)

    @torch.no_grad()
    def copy_to(self, model: nn.Module, weights: Tensor, buffers: Mapping[str, Tensor]) -> None:
        """Give a model these learnt numbers (n,) and buffers."""
        parts = weights.split(list(self.sizes.values()))
        state = dict(zip(self.sizes, parts, strict=True)) | dict(buffers)
        for name, tensor in state_of(model).items():
            tensor.copy_(state[name].view(tensor.shape))


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, including buffers that are not saved."""
    return {name: x.detach() for name, x in (*model.named_parameters(), *model.named_buffers())}
