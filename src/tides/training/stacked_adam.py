"""Adam and AdamW for a stack of models: one matrix, one norm per member, the schedule as a table on the device."""

import torch
from torch import Tensor

from tides.training.config import TrainConfig
from tides.training.schedule import rate_factor

# Those of torch.optim.
_BETAS, _EPS = (0.9, 0.999), 1e-8


class StackedAdam:
    """Updates `weights` (m, n) in place, without reading anything back and without copies from the host.

    `lr` and `decay` (n,) belong to the columns. The formulas are those of `torch.optim.Adam` and `AdamW`.
    """

    def __init__(self, weights: Tensor, lr: Tensor, decay: Tensor, config: TrainConfig, steps_per_epoch: int) -> None:
        self.weights, self.lr, self.decay, self.config = weights, lr, decay, config
        self.first, self.second = torch.zeros_like(weights), torch.zeros_like(weights)
        self.step = torch.zeros(1, dtype=torch.int64, device=weights.device)
        """Updates done."""
        total = config.epochs * steps_per_epoch
        counts = torch.arange(1, total + 1, dtype=torch.float64)
        factors = torch.tensor([rate_factor(config, k, steps_per_epoch) for k in range(total)], dtype=torch.float64)
        # Per step: the factor of the learning rates, the same with the first bias correction, and the second one.
        table = torch.stack([factors, factors / (1 - _BETAS[0] ** counts), (1 - _BETAS[1] ** counts).rsqrt()])
        self._table = table.to(weights)

    @torch.no_grad()
    def update(self, gradient: Tensor, norm: Tensor, active: Tensor) -> None:
        """One step of the members (m,) that are `active`, with their own gradient norms (m,); the others stay."""
        moving = active.unsqueeze(1)
        gradient = gradient.masked_fill(~moving, 0)
        if self.config.clip_norm is not None:
            # The small number is torch's own.
            gradient.mul_((self.config.clip_norm / (norm.unsqueeze(1) + 1e-6)).clamp(max=1).masked_fill(~moving, 0))
        factor, corrected, spread = self._table.index_select(1, self.step)  # each (1,)
        if self.config.optimiser == "adam":
            gradient.addcmul_(self.weights, self.decay)
        else:
            self.weights.mul_(1 - factor * moving * (self.lr * self.decay))
        self.first.lerp_(gradient, 1 - _BETAS[0])
        self.second.mul_(_BETAS[1]).addcmul_(gradient, gradient, value=1 - _BETAS[1])
        denominator = self.second.sqrt().mul_(spread).add_(_EPS)
        self.weights.addcdiv_(self.first * (-corrected * moving * self.lr), denominator)
        self.step.add_(1)

    def keep(self, weights: Tensor, rows: Tensor) -> None:
        """Go on with `weights`, which are these rows of the present ones."""
        self.weights, self.first, self.second = weights, self.first[rows], self.second[rows]

    def state(self) -> dict[str, Tensor]:
        """Everything that changes from step to step, besides the weights."""
        return {"first": self.first, "second": self.second, "step": self.step}
