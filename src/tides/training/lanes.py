"""`fit_side_by_side`: many models at once, each on its own rows of data that stay on the device.

A small model leaves a GPU idle between launches. Here the whole training step of every model (choosing rows, forward,
backward, optimiser) is one CUDA graph, and the graphs of all models run at the same time on streams of their own. On a
CPU the same steps are taken in turns, and each model ends where `fit` would leave it.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from tides.errors import ConfigError, DataError
from tides.training.arguments import check_distinct
from tides.training.checkpoint import CheckpointFolder
from tides.training.config import TrainConfig
from tides.training.lane import Lane, member_identity
from tides.training.lock import locked
from tides.training.members import Member, ResidentSeries, View, class_logits
from tides.training.progress import EpochListener
from tides.training.state import FitResult, RunState
from tides.turns import Turns, finished

__all__ = ["Member", "ResidentSeries", "View", "class_logits", "fit_side_by_side", "side_by_side_turns"]

_MONITORS = ("loss", "accuracy")


def fit_side_by_side(
    members: Sequence[Member],
    config: TrainConfig,
    *,
    folder: str | Path | None = None,
    progress: Callable[[float], None] = lambda fraction: None,
) -> list[FitResult]:
    """Train all members in place, each until its own end; they end with their best weights.

    A member whose loss explodes or is not finite ends as `diverged` with its best weights so far, or in the first epoch
    with its initial ones; the others go on. With `folder`, checkpoints are kept there at the end of an epoch, at most
    every `checkpoint_seconds`, and the same call resumes an interrupted one. Each member has its own subfolder, in
    which no other process may train.
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
    _check(members, config)
    with ExitStack() as locks:
        keepers = _keepers(members, config, None if folder is None else Path(folder), locks)
        lanes = [
            Lane(member, config.replace(seed=member.seed), keeper)
            for member, keeper in zip(members, keepers, strict=True)
        ]
        yield from _train(lanes, config, progress)
        for lane in lanes:
            lane.restore_best()
        return [lane.result() for lane in lanes]


def _keepers(
    members: Sequence[Member], config: TrainConfig, folder: Path | None, locks: ExitStack
) -> list[CheckpointFolder[RunState] | None]:
    """A folder for each member, so that it finds its checkpoint whatever runs beside it this time."""
    if folder is None:
        return [None] * len(members)
    found: dict[Path, CheckpointFolder[RunState] | None] = {}
    for number, member in enumerate(members):
        identity = member_identity(member, config.replace(seed=member.seed))
        place = folder / identity["run"]
        if place in found:
            raise ConfigError(
                f"members: {list(found).index(place)} and {number} have one configuration, seed and choice of series: "
                "their checkpoints cannot be told apart; wanted different ones, or no folder"
            )
        locks.enter_context(locked(place))
        found[place] = CheckpointFolder(place, identity, RunState)
    return list(found.values())


def _train(lanes: Sequence[Lane], config: TrainConfig, progress: Callable[[float], None]) -> Turns[None]:
    """Epochs until all lanes have stopped."""
    counted = saved = time.perf_counter()

    def count() -> float:
        """Give each lane its share of the time since the last count."""
        nonlocal counted
        now = time.perf_counter()
        for lane in lanes:
            lane.state.seconds += (now - counted) / len(lanes)
        counted = now
        return now

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
            saved = count()
            for lane in lanes:
                lane.save()
    count()


def _check(members: Sequence[Member], config: TrainConfig) -> None:
    check_distinct([member.model for member in members])
    for number, member in enumerate(members):
        for name, count in (("training", len(member.train)), ("validation", len(member.validation.labels))):
            if count == 0:
                raise DataError(f"member {number}: it has no {name} series")
    if config.monitor not in _MONITORS:
        raise ConfigError(f"monitor: found {config.monitor!r}, wanted one of {', '.join(_MONITORS)}")
    for name in ("autocast", "deterministic", "bucketed"):
        if getattr(config, name):
            raise ConfigError(f"{name}: found True, but models side by side are trained without it; wanted False")
