"""Training any model on any task: the loop, its configuration, checkpoints and metrics."""

from tides.training.bootstrap import Estimate
from tides.training.config import TrainConfig
from tides.training.engine import fit
from tides.training.evaluation import evaluate
from tides.training.population import fit_population, population_losses, population_turns
from tides.training.state import FitResult
from tides.training.tasks import Classification, Forecasting, Loss, Regression, Task
from tides.training.world import is_first_process

__all__ = [
    "Classification",
    "Estimate",
    "FitResult",
    "Forecasting",
    "Loss",
    "Regression",
    "Task",
    "TrainConfig",
    "evaluate",
    "fit",
    "fit_population",
    "is_first_process",
    "population_losses",
    "population_turns",
]
