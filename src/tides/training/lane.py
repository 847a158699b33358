"""One of several models that are trained side by side, with everything that changes during training."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from tides.training.checkpoint import Checkpoint, CheckpointFolder
from tides.training.config import TrainConfig
from tides.training.gradients import backpropagate
from tides.training.identity import config_identity, digest, digest_of_tensors, model_settings
from tides.training.members import Member, batch_logits, class_logits
from tides.training.optimiser import Optimiser
from tides.training.order import epoch_batches
from tides.training.state import FitResult, Row, RunState
from tides.training.tracks import make_track


class Lane:
    """One member in training; `keeper` writes its checkpoints, if it keeps any."""

    def __init__(self, member: Member, config: TrainConfig, keeper: CheckpointFolder[RunState] | None) -> None:
        self.member, self.config, self.model, self.keeper = member, config, member.model, keeper
        self.device = member.data.values.device
        on_gpu = self.device.type == "cuda"
        self.track = make_track(self.device, config.seed)
        self.lengths = np.full(len(member.train), member.data.values.shape[1], np.int64)
        self.batches = epoch_batches(self.lengths, config, 0)
        self.optimiser = Optimiser(self.model, config, len(self.batches), captured=on_gpu)
        self.state = RunState()
        self.rate_is_set = False
        self.total = torch.zeros((), device=self.device)
        self.summary = torch.zeros(0)
        sizes = sorted({len(batch) for batch in self.batches})
        self.chosen = {size: torch.zeros(size, dtype=torch.long, device=self.device) for size in sizes}
        # Before the first epoch has ended, nothing is better than the start.
        start = self.best = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
        if on_gpu:
            # Everything above was queued on another stream.
            torch.cuda.synchronize(self.device)
        self.descend = {size: self.track.prepare(self._descent(size)) for size in sizes}
        self.model.eval()
        self.answer = self.track.prepare(self._answer)
        self.model.train()
        if on_gpu:
            # Preparation took steps that must not count.
            with self.track.use(), torch.no_grad():
                self.model.load_state_dict(start)
                self.optimiser.forget()
            self.track.restart()
            torch.cuda.synchronize(self.device)
        found = None if keeper is None else keeper.load()
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
        """Train on one batch, unless this lane's epoch has no more."""
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
        """Read the results of the epoch."""
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
        """Load the weights of the best epoch, and drop the graphs that could still change them."""
        self.descend.clear()
        if self.device.type == "cuda":
            # They were kept on the lane's own stream.
            torch.cuda.synchronize(self.device)
        self.model.load_state_dict(self.best)

    def result(self) -> FitResult:
        """The result of a lane that has stopped."""
        return self.state.result(None if self.keeper is None else self.keeper.folder)

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
        self.state, self.best = found.state, parts["best"] or self.best
        with self.track.use():
            self.model.load_state_dict(parts["model"])
            self.optimiser.load_state(parts["optimiser"])
        self.track.set_random_state(found.tensors["random"])

    def _descent(self, size: int) -> Callable[[], None]:
        """A training step on the rows in `chosen`."""
        data, chosen = self.member.data, self.chosen[size]

        def descend() -> None:
            # Cleared before and not after: a captured step must leave its gradients where it found them.
            self.optimiser.clear()
            values, times = data.values[chosen], data.times[chosen]
            if self.member.view is not None:
                values, times = self.member.view(values, times)
            loss = F.cross_entropy(batch_logits(self.model, values, times), data.labels[chosen])
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


def member_identity(member: Member, config: TrainConfig) -> dict[str, Any]:
    """Another configuration, model or choice of series is another `run`; other contents of these series are refused."""
    settings = config_identity(config)
    shapes = [(name, list(tensor.shape)) for name, tensor in member.model.state_dict().items()]
    model = (type(member.model).__name__, model_settings(member.model), shapes)
    data = (member.train.tolist(), list(member.validation.values.shape))
    contents = digest_of_tensors(*member.data.rows(member.train), *member.validation)
    return {"config": settings, "run": digest((model, settings, data)), "series": contents}
