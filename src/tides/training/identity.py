"""What must be equal for two runs to be the same run, in plain values that a checkpoint can hold."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from tides.data.batch import IrregularBatch
from tides.data.dataset import IrregularDataset
from tides.training.config import BOOKKEEPING, TrainConfig
from tides.training.tasks import Task


def run_identity(
    model: nn.Module, task: Task, data: tuple[IrregularDataset, IrregularDataset | None], config: TrainConfig
) -> dict[str, Any]:
    """Configuration, task, model and series of a call of `fit`."""
    shapes = sorted((name, tuple(tensor.shape), str(tensor.dtype)) for name, tensor in model.state_dict().items())
    return {
        "config": config_identity(config),
        "task": task_identity(task),
        "model": digest([type(model).__name__, model_settings(model), shapes]),
        "train": data[0].fingerprint(),
        "validation": None if data[1] is None else data[1].fingerprint(),
    }


def members_identity(
    models: Sequence[nn.Module], data: Sequence[tuple[IrregularDataset | IrregularBatch, ...]]
) -> dict[str, str]:
    """What shapes do not show about a population: settings of the networks, and series."""
    series = [[part.fingerprint() if isinstance(part, IrregularDataset) else None for part in pair] for pair in data]
    batches = [_digest_of_batch(part) for pair in data for part in pair if isinstance(part, IrregularBatch)]
    return {"contents": digest(([model_settings(model) for model in models], series)), "batches": digest(batches)}


def config_identity(config: TrainConfig) -> dict[str, Any]:
    """The fields that a result depends on."""
    return {name: value for name, value in config.to_dict().items() if name not in BOOKKEEPING}


def task_identity(task: Any) -> list[Any]:
    """Kind and settings of a task: its fields, or the attributes of a plain object.

    Numbers, text, arrays and collections of them are settings; anything else belongs to how a task works.
    """
    found = _fields(task) if is_dataclass(type(task)) else getattr(task, "__dict__", {})
    return [type(task).__name__, {name: _plain(value) for name, value in found.items() if _is_setting(value)}]


def model_settings(model: nn.Module) -> Any:
    """The configuration of a network, if it has one."""
    found: Any = getattr(model, "config", None)
    return found if is_dataclass(found) else None


def digest(content: Any) -> str:
    """Sixteen hexadecimal digits for the `repr` of a value."""
    return hashlib.sha256(repr(content).encode()).hexdigest()[:16]


def digest_of_tensors(*tensors: Tensor) -> str:
    """Sixteen hexadecimal digits for the contents of tensors."""
    found = hashlib.sha256()
    for tensor in tensors:
        array = np.ascontiguousarray(tensor.numpy(force=True))
        found.update(f"{array.dtype} {array.shape}".encode())
        found.update(array.data)
    return found.hexdigest()[:16]


def _digest_of_batch(batch: IrregularBatch) -> str:
    return digest_of_tensors(*(value for value in _fields(batch).values() if isinstance(value, Tensor)))


def _fields(value: Any) -> dict[str, Any]:
    """Not `dataclasses.asdict`, which copies everything that it meets."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _is_setting(value: Any) -> bool:
    if is_dataclass(type(value)):
        value = _fields(value)
    if isinstance(value, (list, tuple)):
        return all(map(_is_setting, value))
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _is_setting(entry) for name, entry in value.items())
    return value is None or isinstance(value, (str, int, float, Tensor, np.ndarray))


def _plain(value: Any) -> Any:
    if is_dataclass(type(value)):
        value = _fields(value)
    if isinstance(value, (list, tuple)):
        return list(map(_plain, value))
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, (Tensor, np.ndarray)):
        array = value.numpy(force=True) if isinstance(value, Tensor) else np.ascontiguousarray(value)
        return digest((str(array.dtype), array.shape, array.tobytes()))
    # NaN is not equal to itself, and JSON has no infinity.
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value
