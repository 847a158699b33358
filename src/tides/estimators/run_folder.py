"""The folder from which an interrupted fit resumes."""

from pathlib import Path

from torch import nn

from tides.data.dataset import IrregularDataset
from tides.training.config import TrainConfig
from tides.training.identity import digest, run_identity
from tides.training.tasks import Task


class SharedFolder(str):
    """The `folder` of a clone, in which each run has a subfolder of its own.

    Cross-validation and searches fit clones on many parts of the data and with many settings, all with one folder.
    """

    __slots__ = ()


def run_folder(
    folder: str | Path | None,
    network: nn.Module,
    task: Task,
    parts: tuple[IrregularDataset, IrregularDataset | None],
    config: TrainConfig,
) -> Path | None:
    """The folder itself, or this run's subfolder of a shared one."""
    if isinstance(folder, SharedFolder):
        return Path(folder) / digest(run_identity(network, task, parts, config))
    return None if folder is None else Path(folder)
