"""`Summary`: the statistics of a series as a head reads them, scaled with those of the training series."""

import torch
from torch import Tensor, nn

from tides.functional.summary import scores, statistics, statistics_size, sums_size, take_in, wait
from tides.nn.calibration import Calibration, check_scales


class Summary(nn.Module):
    """Buffers with mean and spread of every statistic over the training series (`functional.summary` lists them)."""

    shift: Tensor
    scale: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels, self.size = channels, statistics_size(channels)
        self.register_buffer("shift", torch.zeros(self.size))
        self.register_buffer("scale", torch.ones(self.size))

    @torch.no_grad()
    def calibrate(self, shift: Tensor, scale: Tensor) -> None:
        """Store mean and standard deviation of the training series' statistics."""
        shift, scale = check_scales(shift, scale, self.size, prefix="summary_")
        self.shift.copy_(shift)
        self.scale.copy_(scale)

    def init_state(self, batch: int) -> Tensor:
        """Nothing has been seen: (b, n) zeros in float64."""
        return torch.zeros(batch, sums_size(self.channels), dtype=torch.float64, device=self.shift.device)

    def take_in(
        self,
        state: Tensor,
        units: Calibration,
        x: Tensor,
        gaps: Tensor,
        observed: Tensor | None,
        valid: Tensor | None = None,
    ) -> Tensor:
        """The state after the steps x (b, l, d), checked already; what `units` store makes them free of any unit."""
        observed = torch.ones_like(x, dtype=torch.bool) if observed is None else observed
        valid = torch.ones_like(x[..., 0], dtype=torch.bool) if valid is None else valid
        return take_in(state, units.scaled_values(x), units.scaled_gaps(gaps.double()), observed, valid)

    def wait(self, state: Tensor, units: Calibration, gap: Tensor) -> Tensor:
        """The state once `gap` (b,) has passed without a step."""
        return wait(state, units.scaled_gaps(gap.double()))

    def statistics(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """What the state says (b, k), and which of it is known."""
        return statistics(state, self.channels)

    def forward(self, state: Tensor) -> Tensor:
        """Scores (b, k) for the head."""
        return scores(*self.statistics(state), self.shift, self.scale)
