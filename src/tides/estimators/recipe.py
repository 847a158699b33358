"""The recipe: choices that train well without tuning on small data, each of them an argument of the estimators.

1. Values are standardised with the observed training entries, targets with the training targets, static numbers with
   the training series; categories are one-hot. All of it is stored in the network.
2. Time is divided by the median training gap.
3. Every channel has a mask channel beside it, whether or not training data has missing values.
4. In training a share `input_drop` of the observed values is hidden, another one every time, so that a network does not
   learn few series by heart.
5. Statistics of each series (count, mean, spread, first, last, extremes and slope of each channel; steps, span, gaps)
   stand beside what the network learns of it (`summary`; not in forecasters), and are never hidden.
6. A share `validation` of the series (whole groups, classes in proportion) is kept apart to choose the best epoch;
   training stops after `patience` epochs without a better one. With fewer than 20 series, or a class of a single one,
   all of them train, and the last epoch counts.
7. AdamW with a cosine schedule, gradients clipped to norm 1, batches of about a tenth of the series (8 to 64).
8. Series count by their weights, where they have some; classes as often as they occur unless `class_weight="balanced"`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tides.data.dataset import IrregularDataset
from tides.data.long_series import pieces, split_latest
from tides.data.splits import split
from tides.errors import ConfigError, DataError
from tides.nn.config import TIDESConfig
from tides.training.config import TrainConfig

_FEWEST_TO_SPLIT = 20


@dataclass(frozen=True)
class Recipe:
    """Defaults of the estimators' arguments."""

    hidden_size: int = 32
    state_size: int = 16
    depth: int = 2
    dropout: float = 0.1
    input_drop: float = 0.2
    summary: bool = True
    epochs: int = 100
    lr: float = 1e-2
    weight_decay: float = 0.01
    patience: int = 20
    validation: float = 0.2
    calibration: float = 0.2


RECIPE = Recipe()


def network_config(estimator: Any, data: IrregularDataset, *others: IrregularDataset | None) -> TIDESConfig:
    """The architecture that the estimator's arguments ask for, on this training data and the `others` of the fit."""
    _check_table("model", estimator.model)
    fields: dict[str, Any] = {
        "input_size": len(data.channels),
        "hidden_size": estimator.hidden_size,
        "state_size": estimator.state_size,
        "depth": estimator.depth,
        "dropout": estimator.dropout,
        "rank": 4,
        "mask_channels": True,
        "projector_init": "random",
        "summary": estimator.summary,
        **_time_policy(data),
        **(estimator.model or {}),
    }
    config = TIDESConfig.from_dict(fields)
    if estimator.input_drop and config.mask_channels is False:
        raise ConfigError(
            f"input_drop: found {estimator.input_drop} with model={{'mask_channels': False}}, but a network needs mask "
            "channels to tell hidden values from zeros; wanted input_drop=0, or mask channels"
        )
    if config.mask_channels == "auto" and (estimator.input_drop or _has_missing(data, *others)):
        config = config.replace(mask_channels=True)
    return config


def _has_missing(*parts: IrregularDataset | None) -> bool:
    return any(not one.observed.all() for part in parts if part is not None for one in part)


def train_config(estimator: Any, series: int, seed: int, *, validated: bool) -> TrainConfig:
    """How to train on so many series."""
    _check_table("training", estimator.training)
    batch_size = min(64, max(8, series // 10)) if estimator.batch_size is None else estimator.batch_size
    require_count(batch_size, "batch_size")
    while series % batch_size == 1 and batch_size > 2:
        # A last batch of one series may have nothing to normalise over.
        batch_size -= 1
    fields: dict[str, Any] = {
        "epochs": estimator.epochs,
        "batch_size": batch_size,
        "lr": estimator.lr,
        "weight_decay": estimator.weight_decay,
        "clip_norm": 1.0,
        "patience": estimator.patience if validated else None,
        "seed": seed,
        "calibrate": estimator._calibration,
        **(estimator.training or {}),
    }
    return TrainConfig.from_dict(fields)


def require_count(value: Any, name: str) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{name}: found {value!r}, wanted an integer ≥ 1")


def _check_table(name: str, found: Any) -> None:
    if found is not None and not isinstance(found, Mapping):
        raise ConfigError(f"{name}: found {found!r}, wanted a mapping from names to values")


class Split(NamedTuple):
    """How the series of a fit are divided."""

    training: IrregularDataset
    validation: IrregularDataset | None
    """They choose the best epoch."""
    seed: int
    calibration: IrregularDataset | None = None
    """They calibrate a forecaster's intervals."""


def split_off(
    data: IrregularDataset, share: float, seed: int, name: str = "validation", *, in_time: bool = False
) -> tuple[IrregularDataset, IrregularDataset | None]:
    """Training and validation series; None if there are too few to hold any out.

    `in_time`: they are pieces of longer series; if those are few, the latest pieces of each are held out.
    """
    if not isinstance(share, int | float | np.number) or not 0 <= share < 1:
        raise ConfigError(f"{name}: found {share!r}, wanted a share of the series from 0 up to, not including, 1")
    groups = data.groups
    units = len(data) if groups is None else len(set(groups))
    if share == 0 or len(data) < _FEWEST_TO_SPLIT:
        return data, None
    if in_time and units < _FEWEST_TO_SPLIT:
        return split_latest(data, share)
    if units < 2 or _has_lonely_class(data):
        return data, None
    train, kept = split(data, (1 - share, share), seed=seed)
    return train, kept


def hold_out(
    data: IrregularDataset, share: float, seed: int, cut: float | str | None
) -> tuple[IrregularDataset, IrregularDataset | None, bool]:
    """Series for a fit, series for its score (None for a share of 0), and whether these are the latest pieces of few.

    With `cut` both are pieces of series, as a forecaster learns from them.
    """
    if cut is not None:
        data = pieces(data, cut)
    in_time = cut is not None and len(set(data.groups or ())) < _FEWEST_TO_SPLIT
    if share == 0:
        return data, None, in_time
    train, test = split_latest(data, share) if in_time else split(data, (1 - share, share), seed=seed)
    return train, test, in_time


def _has_lonely_class(data: IrregularDataset) -> bool:
    """Whether holding out series could remove a class from training altogether."""
    labels = data.labels
    if labels is None or labels.dtype != np.int64 or labels.ndim != 1:
        return False
    return bool(np.unique(labels, return_counts=True)[1].min() < 2)


def _time_policy(data: IrregularDataset) -> dict[str, Any]:
    """Without a single gap there is no time to scale; if all gaps are zero, something is wrong with the times."""
    gaps = [np.diff(data.times(i)) for i in range(len(data))]
    joined = np.concatenate(gaps) if gaps else np.empty(0)
    if len(joined) == 0:
        return {"time_scale": 1.0, "first_gap": 1.0}
    if not (joined > 0).any():
        unit = f" in unit {data.unit!r}" if data.unit else ""
        raise DataError(
            f"times{unit}: no series has two different times, so all {len(joined)} gaps are zero; "
            "is the time column too coarse (dates without hours), rounded, or not the time of the measurement?"
        )
    return {}
