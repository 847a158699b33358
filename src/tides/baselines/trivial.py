"""Predictors that learn nothing: the floor of every table."""

import torch
from torch import Tensor

from tides.baselines.forecasting import ForecastConfig, ForecastModel, Question


class TrivialForecast(ForecastModel):
    """A predictor without parameters."""

    config: ForecastConfig
    trainable = False


class ZeroForecast(TrivialForecast):
    """ŷ = 0 in standardised units: the training mean of a calibrated model, else zero."""

    def answer(self, question: Question) -> Tensor:
        b, q = question.query_times.shape
        return question.values.new_zeros(b, q, self.channels)


class LastValueForecast(TrivialForecast):
    """The channel's last observation at or before the query; zero, in standardised units, before the first one."""

    def answer(self, question: Question) -> Tensor:
        l = question.values.shape[1]
        before = question.times.unsqueeze(1) <= question.query_times.unsqueeze(2)  # (b, q, l)
        known = before.unsqueeze(-1) & question.observed.unsqueeze(1)  # (b, q, l, c)
        rows = torch.arange(l, device=known.device).view(l, 1)
        last = torch.where(known, rows, -1).amax(dim=2)  # (b, q, c)
        return question.values.gather(1, last.clamp_min(0)).masked_fill(last < 0, 0)


class ObservedMeanForecast(TrivialForecast):
    """The mean of the channel's observations; zero, in standardised units, where there is none."""

    def answer(self, question: Question) -> Tensor:
        count = question.observed.sum(dim=1).clamp_min(1)
        mean = question.values.sum(dim=1) / count
        return mean.unsqueeze(1).expand(-1, question.query_times.shape[1], -1)
