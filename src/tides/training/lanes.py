"""`fit_side_by_side`: many models at once, each on its own rows of data that stay on the device.

A small model leaves a GPU idle between launches. Here the whole training step of every model (choosing rows, forward,
backward, optimiser) is one CUDA graph, and the graphs of all models run at the same time on streams of their own. On a
CPU the same steps are taken in turns, and each model ends where `fit` would leave it.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tides.errors import ConfigError
from tides.training.checkpoint import Checkpoint, CheckpointFolder
from tides.training.config import TrainConfig
from tides.training.gradients import backpropagate
from tides.training.identity import config_identity, digest, model_settings
from tides.training.optimiser import Optimiser
from tides.training.order import epoch_batches
from tides.training.progress import EpochListener
from tides.training.state import FitResult, Row, RunState
from tides.training.tracks import make_track
from tides.turns import Turns, finished

# Steps of an evaluation batch, over all of its series.
_STEPS_AT_ONCE = 1 << 19
_MONITORS = ("loss", "accuracy")

View = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""What a training batch (values, times) is seen through, such as steps dropped at random."""


class ResidentSeries(NamedTuple):
    """Labelled series of one length, all on one device: values (n, l, c), times (n, l), class indices (n,)."""

    values: Tensor
    times: Tensor
    labels: Tensor

    def rows(self, index: Tensor) -> "ResidentSeries":
        """Some of them, copied."""
        return ResidentSeries(self.values[index], self.times[index], self.labels[index])


@dataclass(frozen=True, eq=False)
class Member:
    """A model, the rows of `data` that it learns from, and the series that choose its best epoch."""

    model: nn.Module
    data: ResidentSeries
    """May be shared by all members; nothing is copied."""
    train: Tensor
    validation: ResidentSeries
    seed: int
    """Of the order of the series and of dropout; it takes the place of `TrainConfig.seed`."""
    view: View | None = None


def fit_side_by_side(
    members: Sequence[Member],
    config: TrainConfig,
    *,
    folder: str | Path | None = None,
    progress: Callable[[float], None] = lambda fraction: None,
) -> list[FitResult]:
    """Train all members in place, each until its own end; they end with their best weights.

    A member whose loss is not finite or explodes ends as `diverged` with its best weights so far; the others go on.
    With `folder` checkpoints are kept there at the end of an epoch, at most every `checkpoint_seconds`, and the same
    call continues an interrupted one.
    """
    return finished(side_by_side_turns(members, config, folder=folder, progress=progress))


def side_by_side_turns(
    members: Sequence[Member],
    config: TrainConfig,
    *,
    folder: str | Path | None = None,
    progress: Callable[[float], None] = lambda fraction: None,
) -> Turns[list[FitResult]]:
    """`fit_side_by_side` that pauses whenever the device has work of all members, so that others can share it."""
    _check(config)
    start = saved = time.perf_counter()
    home = None if folder is None else Path(folder)
    lanes = [_Lane(member, config.replace(seed=member.seed), home) for member in members]
    while active := [lane for lane in lanes if lane.state.stopped is None]:
        for lane in active:
            lane.begin()
        # Step by step, so that no stream runs ahead while the others are still being fed.
        for step in range(max(len(lane.batches) for lane in active)):
            for lane in active:
                lane.step(step)
            yield
        for lane in active:
            lane.validate()
        for lane in active:
            while lane.track.busy():
                yield
            lane.close()
        epoch = max(lane.state.epoch for lane in active)
        progress(epoch / config.epochs)
        best = [lane.state.best_value for lane in lanes if lane.state.best_value is not None]
        if best and isinstance(progress, EpochListener):
            progress.epoch(epoch, sum(best) / len(best))
        if time.perf_counter() - saved >= config.checkpoint_seconds:
            for lane in lanes:
                lane.save()
            saved = time.perf_counter()
    seconds = (time.perf_counter() - start) / max(1, len(lanes))
    for lane in lanes:
        lane.state.seconds += seconds
        lane.restore_best()
    return [lane.state.result(None) for lane in lanes]


@torch.no_grad()
def class_logits(model: nn.Module, series: ResidentSeries) -> Tensor:
    """Logits (n, k) in evaluation mode, in the order of the series."""
    training = model.training
    model.eval()
    rows = max(1, _STEPS_AT_ONCE // series.values.shape[1])
    parts = [
        _logits(model, series.values[begin : begin + rows], series.times[begin : begin + rows])
        for begin in range(0, len(series.labels), rows)
    ]
    model.train(training)
    return torch.cat(parts)


class _Lane:
    """One member with everything that changes while it is trained."""

    def __init__(self, member: Member, config: TrainConfig, folder: Path | None) -> None:
        self.member, self.config, self.model = member, config, member.model
        self.device = member.data.values.device
        on_gpu = self.device.type == "cuda"
        self.track = make_track(self.device, config.seed)
        self.lengths = np.full(len(member.train), member.data.values.shape[1], np.int64)
        self.batches = epoch_batches(self.lengths, config, 0)
        self.optimiser = Optimiser(self.model, config, len(self.batches), captured=on_gpu)
        self.state, self.best = RunState(), dict[str, Tensor]()
        self.rate_is_set = False
        self.total = torch.zeros((), device=self.device)
        self.summary = torch.zeros(0)
        sizes = sorted({len(batch) for batch in self.batches})
        self.chosen = {size: torch.zeros(size, dtype=torch.long, device=self.device) for size in sizes}
        start = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
        if on_gpu:
            # Everything above was made on another stream.
            torch.cuda.synchronize(self.device)
        self.descend = {size: self.track.prepare(self._descent(size)) for size in sizes}
        self.model.eval()
        self.answer = self.track.prepare(self._answer)
        self.model.train()
        if on_gpu:
            # Preparing took steps that count for nothing.
            with self.track.use(), torch.no_grad():
                self.model.load_state_dict(start)
                self.optimiser.forget()
            self.track.restart()
            torch.cuda.synchronize(self.device)
        identity = self._identity()
        # A folder of its own, so that a lane finds its checkpoint whatever runs beside it this time.
        self.keeper = None if folder is None else CheckpointFolder(folder / identity["run"], identity, RunState)
        found = None if self.keeper is None else self.keeper.load()
        if found is not None:
            self._restore(found)

    def begin(self) -> None:
        """Shuffle for the next epoch."""
        self.batches = epoch_batches(self.lengths, self.config, self.state.epoch)
        with self.track.use():
            self.total.zero_()
            order = torch.tensor([row for batch in self.batches for row in batch]).to(self.device)
            self.order = self.member.train[order].split([len(batch) for batch in self.batches])

    def step(self, position: int) -> None:
        """One batch, if this lane has so many."""
        if position >= len(self.batches):
            return
        size = len(self.batches[position])
        with self.track.use():
            if not self.rate_is_set:
                self.optimiser.set_rates(self.state.step)
                self.rate_is_set = self.config.schedule == "constant" and self.config.warmup_epochs == 0
            self.chosen[size].copy_(self.order[position])
            self.descend[size]()
        self.state.step += 1

    def validate(self) -> None:
        """Queue the answers to the validation series."""
        self.model.eval()
        with self.track.use():
            self.answer()
        self.model.train()

    def close(self) -> None:
        """Read what the epoch came to."""
        with self.track.use():
            found = self.summary.tolist()
        row: Row = dict(zip(("train_loss", "val_loss", "val_accuracy"), found, strict=True))
        state, config = self.state, self.config
        if state.first_loss is None:
            state.first_loss = row["train_loss"]
        limit = config.explosion * (abs(state.first_loss or 0.0) + 1)
        losses = [row["train_loss"] or 0.0, row["val_loss"] or 0.0]
        if not all(map(math.isfinite, losses)) or losses[0] > limit:
            state.stopped = "diverged"
            return
        if state.close_epoch(row, config.monitor, row[f"val_{config.monitor}"]):
            with self.track.use():
                self.best = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
        if state.epoch == config.epochs:
            state.stopped = "epochs"
        elif config.patience is not None and state.epoch - state.best_epoch >= config.patience:
            state.stopped = "patience"

    def restore_best(self) -> None:
        """The weights of the best epoch, and no graph that could still change them."""
        self.descend.clear()
        if self.device.type == "cuda":
            # They were kept on the lane's own stream.
            torch.cuda.synchronize(self.device)
        if self.best:
            self.model.load_state_dict(self.best)

    def save(self) -> None:
        """Write a checkpoint, if this lane keeps any."""
        if self.keeper is None:
            return
        tensors = {f"model/{name}": tensor for name, tensor in self.model.state_dict().items()}
        tensors |= {f"best/{name}": tensor for name, tensor in self.best.items()}
        tensors |= {f"optimiser/{name}": tensor for name, tensor in self.optimiser.state().items()}
        self.keeper.save(self.state, tensors | {"random": self.track.random_state()})

    def _restore(self, found: Checkpoint[RunState]) -> None:
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "best": {}, "optimiser": {}}
        for key, tensor in found.tensors.items():
            kind, _, name = key.partition("/")
            if name:
                parts[kind][name] = tensor.to(self.device)
        self.state, self.best = found.state, parts["best"]
        with self.track.use():
            self.model.load_state_dict(parts["model"])
            self.optimiser.load_state(parts["optimiser"])
        self.track.set_random_state(found.tensors["random"])

    def _identity(self) -> dict[str, Any]:
        """Another configuration, model or choice of series is another run."""
        settings = config_identity(self.config)
        shapes = [(name, list(tensor.shape)) for name, tensor in self.model.state_dict().items()]
        model = (type(self.model).__name__, model_settings(self.model), shapes)
        data = (self.member.train.tolist(), list(self.member.validation.values.shape))
        return {"config": settings, "run": digest((model, settings, data))}

    def _descent(self, size: int) -> Callable[[], None]:
        """A training step on the rows in `chosen`."""
        data, chosen = self.member.data, self.chosen[size]

        def descend() -> None:
            # Cleared before and not after: a captured step must leave its gradients where it found them.
            self.optimiser.clear()
            values, times = data.values[chosen], data.times[chosen]
            if self.member.view is not None:
                values, times = self.member.view(values, times)
            loss = F.cross_entropy(_logits(self.model, values, times), data.labels[chosen])
            backpropagate(loss)
            self.optimiser.descend()
            self.total.add_(loss.detach() * size)

        return descend

    @torch.no_grad()
    def _answer(self) -> None:
        """Training loss, validation loss and accuracy, in one tensor, so that reading them is one wait."""
        labels = self.member.validation.labels
        logits = class_logits(self.model, self.member.validation).double()
        self.summary = torch.stack(
            [
                self.total.double() / len(self.lengths),
                F.cross_entropy(logits, labels),
                (logits.argmax(-1) == labels).double().mean(),
            ]
        )


def _logits(model: nn.Module, values: Tensor, times: Tensor) -> Tensor:
    """Models that store a first-gap policy form their own gaps."""
    form = cast(Callable[[Tensor], Tensor], model.gaps)
    return cast(Tensor, model(values, form(times)))


def _check(config: TrainConfig) -> None:
    if config.monitor not in _MONITORS:
        raise ConfigError(f"monitor: found {config.monitor!r}, wanted one of {', '.join(_MONITORS)}")
    for name in ("autocast", "deterministic", "bucketed"):
        if getattr(config, name):
            raise ConfigError(f"{name}: found True, but models side by side are trained without it; wanted False")
