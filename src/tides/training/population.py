"""`fit_population`: folds or seeds of one configuration, trained side by side as one stack of models.

Small models leave a GPU idle between launches. A population makes every launch work for all members: parameters carry
a leading model axis, each member has its own data, order, gradient norm, early stopping and best weights, and on a
CUDA device a whole step (gather, forward, backward, update) is one graph that is replayed. Nothing is read back but
a handful of numbers per epoch.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tides.data.dataset import IrregularDataset
from tides.errors import ConfigError, DataError
from tides.training.arguments import check_classes, check_config, check_distinct, check_members, check_task
from tides.training.checkpoint import CheckpointFolder
from tides.training.config import TrainConfig
from tides.training.identity import config_identity, members_identity, task_identity
from tides.training.lock import locked
from tides.training.population_state import PopulationState
from tides.training.population_steps import SCORED_AT_ONCE, PopulationSteps
from tides.training.progress import ProgressBar
from tides.training.resident import Part, Resident
from tides.training.schedule import rate_factor
from tides.training.stack import state_of
from tides.training.stacked_loss import StackedLoss
from tides.training.state import FitResult, Row
from tides.training.surroundings import algorithms
from tides.training.tasks import Task
from tides.training.tracks import make_track
from tides.training.world import is_shared
from tides.turns import Turns, finished

_END = object()
# At or below this share of running members, it pays to reduce the stack.
_WORTH_DISMISSING = 2 / 3


def fit_population(
    models: Sequence[nn.Module],
    task: Task,
    data: Sequence[tuple[Part, Part]],
    config: TrainConfig,
    *,
    seeds: Sequence[int] | None = None,
    folder: str | Path | None = None,
    progress: bool | Callable[[float], None] = True,
    graphs: bool = True,
) -> list[FitResult]:
    """Train `models` in place, member i on its own (train, validation) with seed `seeds[i]` (config.seed + i).

    Each member does what `fit` does with that seed, except that dropout masks come from one generator for all. The best
    epoch is the one with the smallest validation loss. A member that stops early or diverges is frozen (`stopped` says
    why) and the others go on; on a CPU it is removed from the stack as soon as a third has stopped. A model ends with
    its best weights, or with its initial ones if it never had any. In an epoch every member sees as many series as the
    smallest one has.

    With `folder`, a checkpoint is kept there at the end of an epoch, at most every `checkpoint_seconds`, and the same
    call resumes an interrupted run; a folder in which another process trains is refused. `graphs=False` launches every
    operation by itself, on a GPU too.
    """
    return finished(
        population_turns(models, task, data, config, seeds=seeds, folder=folder, progress=progress, graphs=graphs)
    )


def population_turns(
    models: Sequence[nn.Module],
    task: Task,
    data: Sequence[tuple[Part, Part]],
    config: TrainConfig,
    *,
    seeds: Sequence[int] | None = None,
    folder: str | Path | None = None,
    progress: bool | Callable[[float], None] = True,
    graphs: bool = True,
) -> Turns[list[FitResult]]:
    """`fit_population` as a generator that pauses whenever a step has been handed to the device.

    Populations that take turns share a GPU: each has its own stream, so the launches of one run beside those of the
    others. Shared time is divided among them in `seconds`, so that the times of populations side by side add up to the
    time that really passed.
    """
    if is_shared():
        raise ConfigError("torchrun: a population trains in one process; start it without torchrun")
    _check(models, task, data, config)
    own_seeds = [config.seed + member for member in range(len(models))] if seeds is None else list(seeds)
    if len(own_seeds) != len(models):
        raise ConfigError(f"seeds: found {len(own_seeds)}, wanted one for each of {len(models)} members")
    place = None if folder is None else Path(folder)

    def turns() -> Turns[list[FitResult]]:
        with locked(place):
            return (yield from _Run(models, task, data, config, own_seeds, place, graphs).turns(progress))

    return turns()


class _Run:
    """One call of `fit_population`."""

    def __init__(
        self,
        models: Sequence[nn.Module],
        task: Task,
        data: Sequence[tuple[Part, Part]],
        config: TrainConfig,
        seeds: list[int],
        folder: Path | None,
        graphs: bool,
    ) -> None:
        self.models, self.config, self.folder = models, config, folder
        parameter = next(models[0].parameters())
        self.device = parameter.device
        self.track = make_track(self.device, config.seed)
        if self.device.type == "cuda":
            # Everything so far was queued on another stream.
            torch.cuda.synchronize(self.device)
        with self._turn():
            self._prepare(task, data, seeds, parameter.dtype, graphs)

    def _prepare(
        self, task: Task, data: Sequence[tuple[Part, Part]], seeds: list[int], dtype: torch.dtype, graphs: bool
    ) -> None:
        models, config, folder = self.models, self.config, self.folder
        if config.calibrate != "none":
            for model, (part, _) in zip(models, data, strict=True):
                assert isinstance(part, IrregularDataset)
                task.calibrate(model, part, values=config.calibrate == "all")
        train, val = (Resident([pair[i] for pair in data], dtype, self.device) for i in range(2))
        self.steps = PopulationSteps(models, task, train, val, config, seeds, self.track, graphs=graphs)
        self.state = PopulationState.start(len(models))
        self.clock = self.saved = time.perf_counter()
        self.spent = 0.0
        identity: dict[str, Any] = {
            "config": config_identity(config),
            "task": task_identity(task),
            "seeds": seeds,
            "model": {name: list(tensor.shape) for name, tensor in self.steps.stack.parameters.items()},
            "train": train.shapes,
            "validation": val.shapes,
        }
        if folder is not None:
            identity |= members_identity(models, data)
        self.keeper = None if folder is None else CheckpointFolder(folder, identity, PopulationState)
        found = None if self.keeper is None else self.keeper.load()
        if found is not None:
            self.state = found.state
            self.steps.dismiss_others(self.state.stacked)
            for name, tensor in (self.steps.state() | self._dismissed()).items():
                tensor.copy_(found.tensors[name])
            self.steps.stack.publish()
            self.track.set_random_state(found.tensors["random"])

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Work on this population's own track, with the algorithms it asks for."""
        with algorithms(self.device, deterministic=self.config.deterministic), self.track.use():
            yield

    def _take(self, queue: Iterator[None]) -> bool:
        """Hand one more piece of work to the device, if there is one."""
        with self._turn():
            return next(queue, _END) is not _END

    def turns(self, progress: bool | Callable[[float], None]) -> Turns[list[FitResult]]:
        """Train to the end, pausing after every piece of work."""
        config, steps = self.config, self.steps
        with ProgressBar(config.epochs, steps.per_epoch, config.monitor, progress) as bar:
            while self.state.running:
                epoch = self.state.epoch
                queue = steps.queue_epoch(epoch)
                while self._take(queue) or self.track.busy():
                    sharers = yield
                    self._count(sharers or 1)
                with self._turn():
                    self._close_epoch(steps.numbers())
                    live = [state.best_value for state in self.state.members if state.best_value is not None]
                    bar.epoch((epoch + 1) * steps.per_epoch, min(live, default=None))
                    self._dismiss_if_worth_it()
                    self._save_if_due()
        with self._turn():
            self._save()
            self._dismiss(self.state.stacked)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return [member.result(self.folder) for member in self.state.members]

    def _close_epoch(self, numbers: dict[str, list[float]]) -> None:
        """Record the epoch of every running member; better ones keep their weights, finished ones stop."""
        config, per_epoch = self.config, self.steps.per_epoch
        members = [self.state.members[index] for index in self.state.stacked]
        better = [False] * len(members)
        for i, member in enumerate(members):
            if member.stopped is not None:
                continue
            found = {name: values[i] for name, values in numbers.items()}
            for part, scored in (("training", found["weight"]), ("validation", found["val_weight"])):
                if not scored:
                    raise DataError(f"member {self.state.stacked[i]}: nothing in its {part} set is scored")
            if not found["active"] or not math.isfinite(found["val_loss"]):
                member.stopped = "diverged"
                continue
            member.step += per_epoch
            row: Row = {
                "epoch": member.epoch + 1,
                "step": member.step,
                "lr_factor": rate_factor(config, member.step - 1, per_epoch),
                **{name: found[name] for name in ("train_loss", "gradient_norm", "val_loss")},
            }
            better[i] = member.close_epoch(row, "loss", found["val_loss"])
            if member.epoch == config.epochs:
                member.stopped = "epochs"
            elif config.patience is not None and member.epoch - member.best_epoch >= config.patience:
                member.stopped = "patience"
        self.steps.keep(better, [member.stopped is None for member in members])

    def _dismiss_if_worth_it(self) -> None:
        """Go on without the members that have stopped, if there are enough of them.

        Captured graphs belong to the whole stack, so there nobody is dismissed.
        """
        stacked, running = self.state.stacked, self.state.running
        if running and len(running) <= _WORTH_DISMISSING * len(stacked) and not self.steps.captured:
            self._dismiss([member for member in stacked if member not in running])
            self.steps.dismiss_others([stacked.index(member) for member in running])
            self.state.stacked = running

    @torch.no_grad()
    def _dismiss(self, members: list[int]) -> None:
        """Give the models of these members their best weights."""
        for member in members:
            best = self.steps.best_of(self.state.stacked.index(member))
            self.steps.stack.copy_to(self.models[member], *best)

    def _dismissed(self) -> dict[str, Tensor]:
        """The tensors of the models that are no longer in the stack, by names for a checkpoint."""
        gone = [member for member in range(len(self.models)) if member not in self.state.stacked]
        return {f"ended/{i}/{name}": tensor for i in gone for name, tensor in state_of(self.models[i]).items()}

    def _count(self, sharers: int) -> None:
        """The time since the last count, which so many have shared."""
        now = time.perf_counter()
        self.spent += (now - self.clock) / sharers
        self.clock = now

    def _save_if_due(self) -> None:
        if self.keeper is not None and time.perf_counter() - self.saved >= self.config.checkpoint_seconds:
            self._save()

    def _save(self) -> None:
        self._count(1)
        for member in self.state.members:
            member.seconds += self.spent / len(self.models)
        self.spent, self.saved = 0.0, self.clock
        if self.keeper is not None:
            tensors = self.steps.state() | self._dismissed() | {"random": self.track.random_state()}
            self.keeper.save(self.state, tensors)


def population_losses(models: Sequence[nn.Module], task: Task, parts: Sequence[Part]) -> list[float]:
    """The mean loss of every model on its own data, in evaluation mode, side by side; the models are not changed."""
    check_task(task)
    check_members(models, len(parts), "data sets")
    parameter = next(models[0].parameters())
    data = Resident(parts, parameter.dtype, parameter.device)
    loss = StackedLoss(models, task)
    loss.train(False)
    sums = torch.zeros(2, len(models), dtype=torch.float64, device=parameter.device)
    for begin in range(0, data.rows, SCORED_AT_ONCE):
        rows = torch.arange(begin, min(begin + SCORED_AT_ONCE, data.rows), device=parameter.device)
        with torch.no_grad():
            sums += torch.stack(loss(data, rows.expand(len(models), -1)))
    found: list[float] = (sums[0] / sums[1]).tolist()
    return found


def _check(models: Sequence[nn.Module], task: Task, data: Sequence[tuple[Part, Part]], config: TrainConfig) -> None:
    check_task(task)
    check_config(config)
    check_members(models, len(data), "pairs (train, validation)")
    check_distinct(models)
    for member, pair in enumerate(data):
        if not isinstance(pair, tuple) or len(pair) != 2 or not all(isinstance(part, Part) for part in pair):
            raise ConfigError(f"data of member {member}: wanted a pair (train, validation) of data sets or batches")
        for part in pair:
            check_classes(member, models[member], part)
    if config.monitor != "loss":
        raise ConfigError(f"monitor: found {config.monitor!r}; a population watches the validation loss, wanted 'loss'")
    if config.bucketed or config.autocast:
        field = "bucketed" if config.bucketed else "autocast"
        raise ConfigError(f"{field}: a population holds its data padded, in full precision; wanted False")
    if config.calibrate != "none" and any(not isinstance(train, IrregularDataset) for train, _ in data):
        raise ConfigError("calibrate: batches carry no data set to read scales from; calibrate the models, use 'none'")
