"""Scoring a model on a data set it was not trained on."""

from itertools import chain
from typing import NamedTuple

import torch
from torch import nn

from tides.data.batch import IrregularBatch
from tides.data.collation import collate
from tides.data.dataset import IrregularDataset
from tides.errors import ConfigError, DataError
from tides.training.bootstrap import Estimate, bootstrap
from tides.training.predictions import Predictions
from tides.training.tasks import Task
from tides.training.threads import worthwhile_threads
from tides.training.world import World


class Answers(NamedTuple):
    """A data set's mean loss, the total weight of what is scored, and the predictions behind its metrics."""

    loss: float
    weight: float
    predictions: Predictions


def evaluate(
    model: nn.Module,
    task: Task,
    data: IrregularDataset,
    *,
    batch_size: int = 64,
    resamples: int = 1000,
    coverage: float = 0.95,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Every metric of the task on `data` with a bootstrap interval over series: {name: Estimate(value, low, high)}.

    The model answers in evaluation mode, on the device it lives on. A share `coverage` of `resamples` draws of whole
    series lies between `low` and `high`. Weights of series are taken into account.
    """
    predictions = answer(model, task, data, batch_size).predictions
    return {
        name: bootstrap(metric, len(predictions), resamples=resamples, coverage=coverage, seed=seed)
        for name, metric in predictions.metrics().items()
    }


@torch.no_grad()
def answer(
    model: nn.Module,
    task: Task,
    data: IrregularDataset,
    batch_size: int,
    *,
    autocast: bool = False,
    world: World | None = None,
) -> Answers:
    """The model's answers in evaluation mode, in the order of the data; its mode is restored afterwards.

    The processes of a `world` take the batches in turn, and all of them have all answers.
    """
    world = world or World()
    if len(data) == 0:
        raise DataError("evaluation: the data set is empty")
    if batch_size < 1:
        raise ConfigError(f"batch_size: found {batch_size}, wanted at least 1")
    training = model.training
    model.eval()
    parts: list[tuple[float, float, Predictions]] = []
    try:
        with worthwhile_threads(model, data, batch_size):
            for begin in world.turns(range(0, len(data), batch_size)):
                batch = load_batch(model, data[begin : begin + batch_size])
                with torch.autocast(batch.values.device.type, torch.bfloat16, enabled=autocast):
                    output = task.predict(model, batch)
                loss = task.loss(output, batch)
                parts.append((float(loss.total), float(loss.weight), task.score(output, batch)))
    finally:
        model.train(training)
    parts = world.in_turn(parts)
    total = weight = 0.0
    for part_total, part_weight, _ in parts:
        total, weight = total + part_total, weight + part_weight
    predictions = [found for _, _, found in parts]
    return Answers(total / weight if weight else float("nan"), weight, type(predictions[0]).join(predictions))


def load_batch(model: nn.Module, series: IrregularDataset) -> IrregularBatch:
    """These series as a batch in the model's precision, on its device."""
    # A predictor that learns nothing has buffers, or not even those.
    tensor = next(chain(model.parameters(), model.buffers()), torch.empty(0))
    dtype = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    return collate(series, dtype=dtype).to(tensor.device)
