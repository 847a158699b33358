"""`fit`: the training loop. It knows tasks, not models; a killed run resumes where it stopped."""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor, nn

from tides.data.dataset import IrregularDataset
from tides.errors import ConfigError, DataError, Diverged
from tides.training.arguments import check_config, check_model, check_task, check_trainable
from tides.training.checkpoint import Checkpoint, CheckpointFolder
from tides.training.config import TrainConfig
from tides.training.evaluation import answer, load_batch
from tides.training.gradients import backpropagate
from tides.training.identity import run_identity
from tides.training.lock import locked
from tides.training.log import MetricsLog
from tides.training.optimiser import Optimiser
from tides.training.order import epoch_batches
from tides.training.predictions import point_metrics
from tides.training.progress import ProgressBar
from tides.training.schedule import rate_factor
from tides.training.state import FitResult, Row, RunState
from tides.training.surroundings import random_states, restore_random_states, surroundings
from tides.training.tasks import Task
from tides.training.threads import worthwhile_threads
from tides.training.world import World, join_world

# Reading a loss waits for an accelerator, so there it is read only every so many steps.
_READ_EVERY = 16


def fit(
    model: nn.Module,
    task: Task,
    data: tuple[IrregularDataset, IrregularDataset | None],
    config: TrainConfig,
    *,
    folder: str | Path | None = None,
    progress: bool | Callable[[float], None] = True,
) -> FitResult:
    """Train `model` in place on (train, validation), on the device it lives on; it ends with its best weights.

    With `folder`, metrics and checkpoints are kept there: the same call resumes an interrupted run and returns at once
    for a complete one. A folder in which another process trains is refused. Without validation data, all epochs are
    trained and the last one counts.

    A loss that explodes or is not finite raises `Diverged`; the model then holds the best weights so far, or in the
    first epoch its initial ones. `progress` draws a bar, or is a function that is called with the fraction of all steps
    done.

    Called in every process that torchrun started, it trains one model with all of them: `config.batch_size` counts the
    series of all processes, and only the first process writes to `folder` and shows progress.
    """
    _check(model, task, data, config)
    world = join_world(next(model.parameters()).device)
    device = world.place(model)
    place = None if folder is None else Path(folder)
    with surroundings(config.seed, device, deterministic=config.deterministic), ExitStack() as held:
        world.from_first(lambda: held.enter_context(locked(place)))
        held.enter_context(worthwhile_threads(model, data[0], config.batch_size))
        return _Run(model, task, data, config, place, world).finish(progress)


class _Run:
    """One call of `fit`."""

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        data: tuple[IrregularDataset, IrregularDataset | None],
        config: TrainConfig,
        folder: Path | None,
        world: World,
    ) -> None:
        self.model, self.task, self.config, self.folder, self.world = model, task, config, folder, world
        self.train, self.val = data
        self.device = next(model.parameters()).device
        self.lengths = self.train.lengths
        self.per_epoch = len(epoch_batches(self.lengths, config, 0))
        self.optimiser = Optimiser(model, config, self.per_epoch)
        self.state, self.best = RunState(), dict[str, Tensor]()
        self.unread: list[tuple[Tensor, Tensor, Tensor]] = []
        self.clock = time.perf_counter()
        identity = run_identity(model, task, data, config)
        world.agree(identity)
        self.keeper = None if folder is None else CheckpointFolder(folder, identity, RunState)
        found = None if self.keeper is None else world.from_first(self.keeper.load)
        if found is None:
            if config.calibrate != "none":
                task.calibrate(model, self.train, values=config.calibrate == "all")
            world.copy(model)
            # Before the first epoch has ended, nothing is better than the start.
            self._keep_best()
            self._save()
        else:
            self._restore(found)

    def finish(self, progress: bool | Callable[[float], None]) -> FitResult:
        """Train to the end."""
        if self.state.stopped is None:
            writes = self.folder if self.world.is_first else None
            shown = progress if self.world.is_first else False
            with (
                MetricsLog(writes, self.state.history) as log,
                ProgressBar(self.config.epochs, self.per_epoch, self.config.monitor, shown) as bar,
                self.world.joint(self.model),
            ):
                stopped = False
                while not stopped:
                    self._train_epoch(bar)
                    stopped = self._close_epoch(bar, log)
            self.model.load_state_dict(self.best)
            self._save()
        self.world.wait()
        return self.state.result(self.folder)

    def _train_epoch(self, bar: ProgressBar) -> None:
        state, batches = self.state, epoch_batches(self.lengths, self.config, self.state.epoch)
        self.model.train()
        for members in batches[state.batch :]:
            self.world.begin_step(self.config.seed, state.step)
            batch = load_batch(self.model, self.train[self.world.part(members, self.lengths)])
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.autocast):
                output = self.task.predict(self.model, batch)
            own, total, weight = self.world.loss(*self.task.loss(output, batch))
            # A batch in which nothing is scored has no loss rather than 0/0.
            backpropagate(own / torch.where(weight > 0, weight, torch.ones_like(weight)))
            self.world.sum_gradients(self.model)
            norm = self.optimiser.update(state.step)
            self.unread.append((total, weight, norm))
            state.step, state.batch = state.step + 1, state.batch + 1
            if self.device.type == "cpu" or len(self.unread) == _READ_EVERY or state.batch == len(batches):
                self._read_losses()
            bar.step(state.step, len(members), state.loss_total / (state.loss_weight or 1.0))
            self._save_if_due()

    def _read_losses(self) -> None:
        """Add up the newest losses; one that explodes or is not finite ends the run."""
        state = self.state
        first = state.step - len(self.unread) + 1
        for step, numbers in enumerate(self.unread, first):
            total, weight, norm = (float(number) for number in numbers)
            loss = total / (weight or 1.0)
            if state.first_loss is None and weight:
                state.first_loss = loss
            limit = self.config.explosion * (abs(state.first_loss or 0.0) + 1)
            if not math.isfinite(loss) or not math.isfinite(norm):
                self._diverge(step, f"found loss {loss:g} and gradient norm {norm:g}, wanted finite numbers")
            if loss > limit:
                self._diverge(
                    step, f"found loss {loss:g}, wanted at most {limit:g} after a first loss of {state.first_loss:g}"
                )
            state.loss_total, state.loss_weight = state.loss_total + total, state.loss_weight + weight
            state.gradient_norm = max(state.gradient_norm, norm)
        self.unread.clear()

    def _close_epoch(self, bar: ProgressBar, log: MetricsLog) -> bool:
        """Validate; true if the run ends here."""
        state, config = self.state, self.config
        if state.loss_weight == 0:
            raise DataError("data: nothing in the training set is scored, so there is nothing to learn from it")
        row: Row = {
            "epoch": state.epoch + 1,
            "step": state.step,
            "lr_factor": rate_factor(config, state.step - 1, self.per_epoch),
            "train_loss": state.loss_total / state.loss_weight,
            "gradient_norm": state.gradient_norm,
        }
        value = None
        if self.val is not None:
            metrics = self._validate(self.val)
            loss = metrics["loss"]
            if math.isnan(metrics[config.monitor]) and math.isfinite(loss):
                raise DataError(f"monitor: {config.monitor} is undefined on the validation data (one class only?)")
            if not math.isfinite(loss) or not math.isfinite(metrics[config.monitor]):
                self._diverge(state.step, f"found validation loss {loss:g}, wanted a finite number")
            value = metrics[config.monitor]
            row |= {f"val_{name}": number if math.isfinite(number) else None for name, number in metrics.items()}
        if state.close_epoch(row, config.monitor, value):
            self._keep_best()
        if state.epoch == config.epochs:
            state.stopped = "epochs"
        elif config.patience is not None and state.epoch - state.best_epoch >= config.patience:
            state.stopped = "patience"
        log.write(row)
        bar.epoch(state.step, value)
        if state.stopped is None:
            self._save_if_due()
        return state.stopped is not None

    def _validate(self, val: IrregularDataset) -> dict[str, float]:
        """Validation loss and metrics, from the first process, so that all processes decide alike."""
        config = self.config
        loss, weight, predictions = answer(
            self.model, self.task, val, config.batch_size, autocast=config.autocast, world=self.world
        )
        if weight == 0:
            raise DataError("data: nothing in the validation set is scored, so it cannot choose the best epoch")
        return self.world.from_first(lambda: {"loss": loss} | point_metrics(predictions))

    def _keep_best(self) -> None:
        self.best = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}

    def _diverge(self, step: int, reason: str) -> NoReturn:
        if self.best:
            self.model.load_state_dict(self.best)
        kept = "no checkpoint was kept, because no folder was given"
        if self.keeper is not None:
            kept = f"the last good checkpoint is {self.keeper.path}"
        raise Diverged(f"training diverged in epoch {self.state.epoch + 1} at step {step}: {reason}; {kept}")

    def _save_if_due(self) -> None:
        if self.unread and self.world.size > 1:
            # All processes must read losses at the same step: a run that diverges then ends in all of them at once.
            return
        if self.keeper is not None and time.perf_counter() - self.clock >= self.config.checkpoint_seconds:
            self._read_losses()
            self._save()

    def _save(self) -> None:
        """Write a checkpoint; a finished run keeps its best weights and nothing else."""
        now = time.perf_counter()
        self.state.seconds, self.clock = self.state.seconds + now - self.clock, now
        if self.keeper is None or not self.world.is_first:
            return
        tensors = _prefixed("model", self.model.state_dict())
        if self.state.stopped is None:
            tensors |= _prefixed("best", self.best) | _prefixed("optimiser", self.optimiser.state())
            tensors |= _prefixed("random", random_states(self.device))
        self.keeper.save(self.state, tensors)

    def _restore(self, found: Checkpoint[RunState]) -> None:
        self.state = found.state
        self.model.load_state_dict(_without_prefix("model", found.tensors))
        if self.state.stopped is not None:
            return
        self.best = {name: x.to(self.device) for name, x in _without_prefix("best", found.tensors).items()}
        self.optimiser.load_state(_without_prefix("optimiser", found.tensors))
        restore_random_states(_without_prefix("random", found.tensors), self.device)


def _check(
    model: nn.Module, task: Task, data: tuple[IrregularDataset, IrregularDataset | None], config: TrainConfig
) -> None:
    check_model(model)
    check_task(task)
    check_config(config)
    if not isinstance(data, tuple) or len(data) != 2:
        raise ConfigError("data: wanted a pair (train, validation); validation may be None")
    train, val = data
    for name, part in (("training", train), ("validation", val)):
        if not isinstance(part, IrregularDataset) and (name == "training" or part is not None):
            raise ConfigError(f"data: found {type(part).__name__} as {name} set, wanted an IrregularDataset")
        if part is not None and len(part) == 0:
            raise DataError(f"data: the {name} set is empty")
    check_trainable(model)
    if config.monitor not in ("loss", *task.metrics):
        raise ConfigError(f"monitor: found {config.monitor!r}, wanted one of loss, {', '.join(task.metrics)}")
    if val is None and config.patience is not None:
        raise ConfigError(f"patience: found {config.patience}, but there is no validation data; wanted None")


def _prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def _without_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    start = f"{prefix}/"
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
