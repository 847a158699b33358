"""Batches in a forecaster's own units, for tests that look inside."""

import torch

from tests.baselines.small import Batch, draw
from tides.baselines.forecasting import Question


def question(batch: Batch | None = None, unit: float = 10.0) -> Question:
    """The batch (or the suite's own) as `ForecastModel.answer` sees it."""
    batch = draw() if batch is None else batch
    return Question(
        values=batch.values.masked_fill(~batch.observed, 0),
        times=batch.times / unit,
        observed=batch.observed & batch.valid.unsqueeze(-1),
        valid=batch.valid,
        query_times=batch.query_times / unit,
        query_valid=batch.query_valid,
    )


def shuffled(asked: Question, order: torch.Tensor) -> Question:
    """The same observations in another order of rows, which no sorted batch could show."""
    return asked._replace(
        values=asked.values[:, order],
        times=asked.times[:, order],
        observed=asked.observed[:, order],
        valid=asked.valid[:, order],
    )
