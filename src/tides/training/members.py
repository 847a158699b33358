"""What models are trained on side by side: labelled series of one length, kept on the device."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

# Steps of an evaluation batch, over all of its series.
_STEPS_AT_ONCE = 1 << 19

View = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""What a training batch (values, times) is seen through, such as steps dropped at random."""


class ResidentSeries(NamedTuple):
    """Labelled series of one length, all on one device: values (n, l, c), times (n, l), class indices (n,).

    They have no weights: models side by side count every series the same.
    """

    values: Tensor
    times: Tensor
    labels: Tensor

    def rows(self, index: Tensor) -> "ResidentSeries":
        """Some of them, copied."""
        return ResidentSeries(self.values[index], self.times[index], self.labels[index])


@dataclass(frozen=True, eq=False)
class Member:
    """A model, the rows of `data` that it learns from, and the series that choose its best epoch."""

    model: nn.Module
    data: ResidentSeries
    """May be shared by all members; nothing is copied."""
    train: Tensor
    validation: ResidentSeries
    seed: int
    """Of the order of the series and of dropout; it takes the place of `TrainConfig.seed`."""
    view: View | None = None


@torch.no_grad()
def class_logits(model: nn.Module, series: ResidentSeries) -> Tensor:
    """Logits (n, k) in evaluation mode, in the order of the series."""
    training = model.training
    model.eval()
    rows = max(1, _STEPS_AT_ONCE // series.values.shape[1])
    parts = [
        batch_logits(model, series.values[begin : begin + rows], series.times[begin : begin + rows])
        for begin in range(0, len(series.labels), rows)
    ]
    model.train(training)
    return torch.cat(parts)


def batch_logits(model: nn.Module, values: Tensor, times: Tensor) -> Tensor:
    """Logits of a batch (values, times). Models that store a first-gap policy form their own gaps."""
    form = cast(Callable[[Tensor], Tensor], model.gaps)
    return cast(Tensor, model(values, form(times)))
