"""Training any model on any task: the loop, its configuration, checkpoints and metrics."""

from tides.training.config import TrainConfig

__all__ = ["TrainConfig"]
