"""Errors of a forecaster by the time since the end of the observed window."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from tides.baselines.forecasting import ForecastConfig
from tides.data import IrregularBatch
from tides.experiments.physiome_training import TRIVIAL
from tides.nn import Forecaster
from tides.training import Forecasting

_AT_ONCE = 256


@torch.no_grad()
def errors_by_horizon(
    model: Forecaster, test: IrregularBatch, *, window: float, reach: int, bins: int
) -> list[dict[str, Any]]:
    """Squared and absolute error in every bin of 1/`bins` training horizons, with the trivial predictors' beside them.

    Horizons are counted from the end of the `window`, up to `reach`. All questions are asked together. In `steps` mode
    they change each other's answers, so `alone_mse` is the error where nothing but the questions of the bin is asked;
    in `readout` mode that is the same number.
    """
    assert test.query_times is not None
    model.eval()
    # Right ends belong to a bin, as the training horizon belongs to training.
    place = ((test.query_times - window) * bins).ceil().long().clamp(1, bins * reach) - 1
    answers = _answers(model, test)
    trivial = {name: kind(ForecastConfig(input_size=model.channels)) for name, kind in TRIVIAL.items()}
    guesses = {name: _answers(predictor.to(place.device), test) for name, predictor in trivial.items()}
    found = []
    for index in range(bins * reach):
        asked = place == index
        alone = _answers(model, replace(test, query_valid=asked)) if model.query_mode == "steps" else answers
        found.append(
            {
                "from": index / bins,
                "to": (index + 1) / bins,
                "targets": int(asked.sum()) * model.channels,
                "mse": _mean(answers, test, asked, 2),
                "mae": _mean(answers, test, asked, 1),
                "alone_mse": _mean(alone, test, asked, 2),
                "trivial_mse": {name: _mean(guess, test, asked, 2) for name, guess in guesses.items()},
            }
        )
    return found


def mean_error(bins: Sequence[Mapping[str, Any]], low: float, high: float) -> float:
    """Mean squared error over the bins between two horizons."""
    chosen = [entry for entry in bins if low <= entry["from"] and entry["to"] <= high and entry["targets"]]
    total = sum(entry["targets"] for entry in chosen)
    return sum(entry["mse"] * entry["targets"] for entry in chosen) / total if total else float("nan")


def _answers(model: nn.Module, test: IrregularBatch) -> Tensor:
    task = Forecasting()
    parts = [slice(begin, begin + _AT_ONCE) for begin in range(0, len(test), _AT_ONCE)]
    return torch.cat([task.predict(model, test.rows(part)) for part in parts])


def _mean(answers: Tensor, test: IrregularBatch, asked: Tensor, power: int) -> float:
    assert test.targets is not None
    return float((answers - test.targets)[asked].abs().double().pow(power).mean())
