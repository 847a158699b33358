"""UEA series on the device, split by rows, for experiments that train many seeds on one data set."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Literal, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from tides.data import systems
from tides.data.uea import UEADataset, load_uea, make_store, stack
from tides.data.uea_splits import PROTOCOL_SEEDS, uea_rows
from tides.errors import ConfigError, DataError
from tides.training.lanes import ResidentSeries

Protocol = Literal["walker", "rformer"]

EMBEDDED = "embedded"
"""Calcium waves in noise, simulated on the spot: no file is needed."""
_EMBEDDED_CASES = 600
_EMBEDDED_STEPS = 200
_EMBEDDED_NOISE = 2.0


class SplitRows(NamedTuple):
    """Rows of the resident series that a seed deals to each part."""

    train: Tensor
    validation: Tensor
    test: Tensor


@lru_cache(maxsize=3)
def load(name: str) -> UEADataset:
    """A data set of the archive, or the embedded one in the archive's form."""
    if name != EMBEDDED:
        return load_uea(name)
    data = systems.classification(
        "calcium", _EMBEDDED_CASES, points=_EMBEDDED_STEPS, missing=0.0, noise=_EMBEDDED_NOISE, regular=True
    )
    labels = data.labels
    assert labels is not None  # the embedded task is labelled
    store = make_store([one.values.astype(np.float32) for one in data], labels, np.arange(len(data)))
    return UEADataset(store, replace(data.schema, unit="sample"), EMBEDDED, len(data) // 2)


def protocol_seeds(protocol: str, count: int) -> list[int]:
    """The published seeds, continued at their distance where more are wanted."""
    if protocol not in PROTOCOL_SEEDS:
        raise ConfigError(f"protocols: found {protocol!r}, wanted one of {', '.join(PROTOCOL_SEEDS)}")
    first, second, *_ = PROTOCOL_SEEDS[protocol]
    return [first + (second - first) * position for position in range(count)]


def obstacle(name: str, protocol: Protocol, seed: int, *, allow_partial: bool = False) -> str | None:
    """Why this data set cannot be split here, or None."""
    try:
        uea_rows(load(name), protocol, seed, allow_partial=allow_partial)
    except DataError as error:
        return str(error)
    return None


def resident(dataset: UEADataset, device: str, *, first_channel: bool = False) -> ResidentSeries:
    """All cases on the device. The clock starts at 1, so that the first gap is one sample, as all others are."""
    values, labels = stack(dataset)
    if first_channel:
        values = values[..., :1]
    times = torch.arange(1, values.shape[1] + 1, dtype=torch.float64).expand(len(values), -1)
    return ResidentSeries(
        torch.from_numpy(np.ascontiguousarray(values)).to(device),
        times.to(device),
        torch.from_numpy(labels).to(device),
    )


def split_rows(
    dataset: UEADataset, protocol: Protocol, seed: int, device: str, *, allow_partial: bool = False
) -> SplitRows:
    """The rows of one seed, on the device."""
    parts = uea_rows(dataset, protocol, seed, allow_partial=allow_partial)
    return SplitRows(*(torch.from_numpy(part).to(device) for part in parts))


def channel_moments(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel over cases and steps; 1 where a channel does not vary."""
    spread, mean = torch.std_mean(values.double(), dim=(0, 1), correction=0)
    return mean, torch.where(spread > 1e-12 * mean.abs(), spread, torch.ones_like(spread))


def make_model(
    build: Callable[[], nn.Module], seed: int, data: ResidentSeries, rows: SplitRows, *, scaled: bool
) -> nn.Module:
    """A seed's model with the scales of its training cases, on the data's device."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build()
    model = model.to(data.values.device)
    moments = channel_moments(data.values[rows.train]) if scaled else (None, None)
    calibrate = cast(Callable[..., nn.Module], model.calibrate)
    calibrate(data.times[:1].diff(dim=1), *moments)
    return model
