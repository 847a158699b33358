"""The fold protocol of Physiome-ODE: noise, missing cells, the parity rule and the split."""

import random
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tides.data import cache
from tides.data.physiome import facts
from tides.data.physiome.archive import find_archive_fold, read_archive_fold
from tides.data.physiome.fold import Fold, Part, Window
from tides.data.physiome.trajectories import POINTS, Trajectories, find_trajectories, read_trajectories
from tides.errors import ConfigError, DataError

FOLDS = 5
_NOISE = 0.05
_MISSING = 0.8
_OUTLIER = 10.0
_INPUT_POINTS = 50
_SPLIT = (0.7, 0.2, 0.1)


def load_fold(name: str, fold: int, root: str | Path | None = None, parity: bool = True, source: str = "auto") -> Fold:
    """Fold 0 … 4 of a Physiome-ODE system by short name, or of your own system by the name of its file.

    `root` holds the compact trajectories (`<short>.npz`, also under `trajectories/`) or the published archive
    (`final.zip`, or its unpacked folders `<model>/<fold>/`); None is the data folder of this machine. `source` is
    "trajectories", "archive" or "auto": trajectories if there are any, else the archive.

    With `parity`, only steps with an odd number of observed channels remain, in inputs and targets, as in the published
    data; comparisons with the leaderboard need it. Folds made from trajectories follow the published protocol draw by
    draw. But the published order of instances was a directory listing that is not known, so they are statistically
    equivalent to the archive, not bit for bit.
    """
    if isinstance(fold, bool) or not isinstance(fold, (int, np.integer)) or not 0 <= fold < FOLDS:
        raise ConfigError(f"fold={fold!r}; wanted an integer from 0 to {FOLDS - 1}")
    fold = int(fold)
    if source not in ("auto", "trajectories", "archive"):
        raise ConfigError(f"source={source!r}; wanted 'auto', 'trajectories' or 'archive'")
    folder = cache.data_root(root, "physiome")

    if source != "archive":
        path = find_trajectories(name, folder)
        if path is not None:
            return make_fold(read_trajectories(path), fold, parity=parity)
    system = facts.system(name)  # beyond this point only systems of the benchmark are known
    if source != "trajectories":
        found = find_archive_fold(system.model, fold, folder)
        if found is not None:
            if not parity:
                raise DataError(
                    f"{name}: the published archive holds only time steps with an odd number of observed channels;"
                    " parity=False needs the trajectories"
                )
            train, val, test = read_archive_fold(found, channel_names(name, system.channels))
            return Fold(name, fold, "archive", True, system.target_channels, train, val, test)
    wanted = "trajectories or archive" if source == "auto" else source
    raise DataError(
        f"no {wanted} of {name} under {folder}; `tides data get physiome` downloads the published archive and"
        " `tides data simulate physiome` makes the trajectories from CellML models"
    )


def make_fold(trajectories: Trajectories, fold: int, parity: bool = True) -> Fold:
    """Apply the fold protocol to trajectories; the order of the random draws is part of the protocol."""
    instances = list(range(len(trajectories.values)))
    random.Random(fold).shuffle(instances)
    generator = torch.Generator().manual_seed(fold)
    targets = target_channels(trajectories)

    values = torch.from_numpy(trajectories.values[np.asarray(instances), : POINTS - 1])  # (n, 99, c)
    values = values[~(values.abs() > _OUTLIER).any(dim=2).any(dim=1)]
    least = round(1 / min(_SPLIT))
    if len(values) < least:
        raise DataError(
            f"{trajectories.name}: {len(values)} of {len(instances)} trajectories stay within {_OUTLIER:g} standard "
            f"deviations; wanted at least {least}, so that training, validation and test all get one"
        )
    x, y = values[:, :_INPUT_POINTS].clone(), values[:, _INPUT_POINTS:].clone()
    x += torch.randn(x.shape, generator=generator) * _NOISE
    y += torch.randn(y.shape, generator=generator) * _NOISE
    x_observed = torch.rand(x.shape, generator=generator) > _MISSING
    y_observed = torch.rand(y.shape, generator=generator) > _MISSING
    asked = torch.zeros(values.shape[-1], dtype=torch.bool)
    asked[list(targets)] = True
    y_observed &= asked
    # Time steps may be dropped as a whole with probability zero; the draws still advance the generator.
    x_kept = torch.rand(x.shape[:2], generator=generator) > 0.0
    y_kept = torch.rand(y.shape[:2], generator=generator) > 0.0

    grid = torch.arange(POINTS - 1, dtype=torch.float64) / (POINTS - 1)
    seen = _pack(x, x_observed, x_kept & _rows(x_observed, parity), grid[:_INPUT_POINTS])
    questions = _pack(y, y_observed, y_kept & _rows(y_observed, parity), grid[_INPUT_POINTS:])
    whole = Part(seen, questions, channel_names(trajectories.name, values.shape[-1]))
    subsets = torch.utils.data.random_split(range(len(whole)), _SPLIT, generator=generator)  # type: ignore[arg-type, var-annotated]
    train, val, test = (whole[torch.as_tensor(subset.indices)] for subset in subsets)
    return Fold(trajectories.name, fold, "trajectories", parity, targets, train, val, test)


def target_channels(trajectories: Trajectories) -> tuple[int, ...]:
    """Channels to forecast: the published ones, or for another system the ten of highest score (all if fewer)."""
    found = trajectories.values.shape[-1]
    if trajectories.name in facts.names():
        system = facts.system(trajectories.name)
        if found != system.channels:
            raise DataError(
                f"{system.short}: the trajectories have {found} channels; this system has {system.channels}"
            )
        return system.target_channels
    from tides.data.physiome.jgd import TOP_CHANNELS, channel_scores

    scores = channel_scores(trajectories.values.astype(np.float64))
    return tuple(sorted(int(c) for c in np.argsort(scores)[-TOP_CHANNELS:]))


def channel_names(name: str, count: int) -> tuple[str, ...]:
    """Names of the states, with their component where the bare name occurs twice; numbers for other systems."""
    if name not in facts.names():
        return tuple(f"channel_{c}" for c in range(count))
    channels = facts.channels(name)
    bare = [channel.name for channel in channels]
    return tuple(c.name if bare.count(c.name) == 1 else f"{c.component}.{c.name}" for c in channels)


def _rows(observed: Bool[Tensor, "n l c"], parity: bool) -> Bool[Tensor, "n l"]:
    """Time steps to keep: an odd number of observed channels under the parity rule, else at least one."""
    count = observed.sum(dim=-1)
    return count % 2 == 1 if parity else count > 0


def _pack(
    values: Float[Tensor, "n l c"], observed: Bool[Tensor, "n l c"], kept: Bool[Tensor, "n l"], grid: Tensor
) -> Window:
    """Move the kept time steps of every instance to the front and cut what no instance needs."""
    lengths = kept.sum(dim=1)
    longest = int(lengths.max())
    order = torch.argsort(kept.logical_not(), dim=1, stable=True)[:, :longest]  # (n, longest)
    valid = torch.arange(longest) < lengths[:, None]
    rows = order[..., None].expand(-1, -1, values.shape[-1])
    seen = observed.gather(1, rows) & valid[..., None]
    last = order.gather(1, (lengths - 1).clamp(min=0)[:, None])  # (n, 1): padding repeats the last time
    times = grid[torch.where(valid, order, last)]
    return Window(values.gather(1, rows).masked_fill(~seen, 0.0), times, seen, valid)
