"""Simulated trajectories in a compact file: int16 steps of the z-scored values, delta-coded along time."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tides.atomic import atomic_write
from tides.data.npz import read_npz
from tides.errors import DataError

POINTS = 100
# Noise of standard deviation 0.05 is added later; a grid of 0.001 loses nothing beside it.
_STEP = 1e-3
_FIELDS = ("dq", "step", "mean", "std", "t_step")


@dataclass(frozen=True)
class Trajectories:
    """All trajectories of one system, z-scored per channel over instances and the first 99 time points."""

    name: str
    values: NDArray[np.float32]
    """(instances, points, channels), z-scored."""
    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    t_step: float
    """Time between two points, in the system's unit."""

    def raw(self) -> NDArray[np.float64]:
        """Values in the units of the model."""
        return self.values * self.std + self.mean


def standardise(name: str, raw: NDArray[np.floating[Any]], t_step: float) -> Trajectories:
    """Z-score raw trajectories (instances, points, channels) as the published builder does.

    Mean and unbiased standard deviation per channel over all instances and every point but the last, which the
    protocol never shows to a model.
    """
    if raw.ndim != 3 or raw.shape[1] != POINTS:
        raise DataError(f"{name}: trajectories have shape {raw.shape}; wanted (instances, {POINTS}, channels)")
    used = raw[:, :-1].reshape(-1, raw.shape[-1]).astype(np.float64)
    if len(used) == 0:
        raise DataError(f"{name}: holds no trajectory")
    mean, std = used.mean(axis=0), used.std(axis=0, ddof=1)
    # Rounding leaves a constant channel a spread of its own, which must not be blown up to one.
    flat = np.flatnonzero(~(np.isfinite(std) & (np.ptp(used, axis=0) > 0)))
    if flat.size:
        raise DataError(f"{name}: channel {flat[0]} is constant or not finite; it cannot be z-scored")
    return Trajectories(name, ((raw - mean) / std).astype(np.float32), mean, std, t_step)


def save_trajectories(path: str | Path, trajectories: Trajectories) -> None:
    """Write the compact file; values beyond ±32.767 standard deviations saturate (the protocol drops them)."""
    limits = np.iinfo(np.int16)
    steps = np.clip(np.rint(trajectories.values / _STEP), limits.min, limits.max).astype(np.int16)
    steps = np.moveaxis(steps, -1, 0)
    # Differences wrap around in int16 and the cumulative sum of the reader wraps back.
    deltas = np.diff(steps, axis=-1, prepend=np.zeros_like(steps[..., :1]))
    with atomic_write(Path(path)) as file:
        np.savez_compressed(
            file,
            dq=deltas,
            step=np.float64(_STEP),
            mean=trajectories.mean,
            std=trajectories.std,
            t_step=np.float64(trajectories.t_step),
        )


def read_trajectories(path: Path) -> Trajectories:
    """Read one compact file; its stem is the system's short name."""
    dq, step, mean, std, t_step = read_npz(path, "a file of trajectories", _FIELDS).values()
    if dq.ndim != 3 or dq.dtype != np.int16 or dq.shape[-1] != POINTS or not mean.shape == std.shape == (len(dq),):
        raise DataError(
            f"{path}: dq is {dq.dtype} {dq.shape}; wanted int16 (channels, instances, {POINTS}) beside one mean and "
            "one std for each channel"
        )
    for field, number in (("step", step), ("t_step", t_step)):
        if number.dtype.kind != "f" or number.shape or not 0 < number < np.inf:
            raise DataError(f"{path}: {field} is {number!r}; wanted a number above 0")
    values = np.cumsum(dq, axis=-1, dtype=np.int16) * np.float32(step)
    return Trajectories(path.stem, np.moveaxis(values, 0, -1), mean, std, float(t_step))


def find_trajectories(name: str, root: Path) -> Path | None:
    """The compact file of a system under `root`, or None."""
    for folder in (root, root / "trajectories", root / "physiome", root / "physiome" / "trajectories"):
        path = folder / f"{name}.npz"
        if path.is_file():
            return path
    return None
