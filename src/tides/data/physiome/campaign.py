"""Many systems simulated into a folder: in parallel, resumable, every file complete or absent.

A finished system is `<name>.npz` (the compact trajectories that `load_fold` reads) beside `<name>.json` (where it
comes from). Until then its trajectories wait in `.parts`, a file per chunk, and a second run goes on from there.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tides.atomic import atomic_write
from tides.data import cache
from tides.data.counts import require_whole
from tides.data.npz import read_npz
from tides.data.physiome import cellml, facts
from tides.data.physiome.integrate import GRID, Spread
from tides.data.physiome.problem import Problem, load_problem, model_file
from tides.data.physiome.rhs import compile_source
from tides.data.physiome.simulation import Job, choose_spread, run_job
from tides.data.physiome.trajectories import save_trajectories, standardise
from tides.data.physiome.workers import run_tasks
from tides.errors import DataError

TRAJECTORIES = 2000
CHUNK = 100
# Part of every fingerprint: raise it when the same inputs should give other trajectories.
_PROTOCOL = 1


@dataclass(frozen=True)
class Model:
    """One system to simulate: its file, its published entry (or None) and its spread."""

    name: str
    path: Path
    entry: str | None
    spread: Spread


@dataclass
class Outcome:
    """What a run did for one system."""

    name: str
    done: bool = False
    reused: bool = False
    """Whether it was complete before this run."""
    seconds: float = 0.0
    """Processor time of its trajectories."""
    error: str = ""
    """Why it has no file."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Part:
    model: Model
    job: Job
    path: Path


@dataclass
class _Progress:
    outcome: Outcome
    problem: Problem
    fingerprint: str
    missing: set[Path] = field(default_factory=set)


def published_models(folder: str | Path, names: Sequence[str] | None = None) -> list[Model]:
    """The benchmark's systems whose CellML files lie in `folder` (`HOD01.cellml`, or a folder `PUL01`)."""
    chosen = facts.names() if names is None else tuple(facts.system(name).short for name in names)
    return [Model(s, model_file(folder, s), s, choose_spread(s, None, None, None)) for s in chosen]


def run_campaign(
    models: Sequence[Model],
    out: Path,
    *,
    n: int = TRAJECTORIES,
    workers: int = 1,
    overwrite: bool = False,
    progress: Callable[[str, int], None] | None = None,
) -> list[Outcome]:
    """Simulate `n` trajectories of every model into `out`; a model that fails does not stop the others.

    A file that is there already and was made from other inputs is replaced only with `overwrite`, once its successor
    is ready.
    `progress(name, k)` hears of k further trajectories, those of earlier runs included.
    """
    require_whole("n", n, 1)
    out.mkdir(parents=True, exist_ok=True)
    outcomes = {model.name: Outcome(model.name) for model in models}
    running: dict[str, _Progress] = {}
    tell = progress or (lambda name, k: None)

    def parts() -> Iterator[_Part]:
        for model in models:
            outcome = outcomes[model.name]
            try:
                fingerprint = _fingerprint(model, n)
                if not overwrite and _is_complete(out, model.name, fingerprint):
                    outcome.done = outcome.reused = True
                    outcome.seconds = float(_about(out, model.name)["seconds"])
                    tell(model.name, n)
                    continue
                if not overwrite and (out / f"{model.name}.npz").exists():
                    raise DataError(
                        f"{out / model.name}.npz is there and was made from another file, spread or number of "
                        "trajectories; choose another folder or overwrite it"
                    )
                problem = load_problem(model.path, model.entry)
                # Compiled once here, found in the cache by the workers.
                compile_source(problem.source)
            except DataError as error:
                outcome.error = str(error)
                tell(model.name, n)
                continue
            # Without it the system counts as incomplete; its trajectories stay until others take their place.
            (out / f"{model.name}.json").unlink(missing_ok=True)
            outcome.notes = problem.notes
            running[model.name] = state = _Progress(outcome, problem, fingerprint)
            todo = _missing_parts(model, problem, _parts_folder(out, model.name, fingerprint), n)
            state.missing = {part.path for part in todo}
            tell(model.name, n - sum(part.job.count for part in todo))
            if not todo:
                _finish(out, model, state, n)
            yield from todo

    for part, result in run_tasks(_run_part, parts(), workers):
        state = running[part.model.name]
        if isinstance(result, str):
            state.outcome.error = result
        else:
            state.missing.discard(part.path)
        tell(part.model.name, part.job.count)
        if not state.missing:
            _finish(out, part.model, state, n)
    return [outcomes[model.name] for model in models]


def _missing_parts(model: Model, problem: Problem, folder: Path, n: int) -> list[_Part]:
    parts = []
    for first in range(0, n, CHUNK):
        path = folder / f"{first:06d}.npz"
        if not path.is_file():
            parts.append(_Part(model, Job(problem, model.spread, first, min(CHUNK, n - first)), path))
    return parts


def _run_part(part: _Part) -> float | str:
    """Simulate and write one chunk; its processor seconds, or why it cannot be simulated."""
    compile_source(part.job.problem.source)
    begin = time.process_time()
    try:
        trajectories = run_job(part.job)
    except DataError as error:
        return str(error)
    seconds = time.process_time() - begin
    with atomic_write(part.path) as file:
        np.savez(
            file,
            values=np.stack([t.values for t in trajectories]),
            seed=np.array([t.seed for t in trajectories]),
            start=np.array([t.start for t in trajectories]),
            seconds=np.float64(seconds),
        )
    return seconds


def _finish(out: Path, model: Model, state: _Progress, n: int) -> None:
    """Join the parts into the final files, unless another process has just done so."""
    folder = _parts_folder(out, model.name, state.fingerprint)
    with cache.lock(out / f"{model.name}.npz"):
        if not _is_complete(out, model.name, state.fingerprint):
            try:
                state.outcome.seconds = _join(out, model, state, folder, n)
            except DataError as error:
                state.outcome.error = str(error)
                return
        shutil.rmtree(folder, ignore_errors=True)
    state.outcome.done = True


def _join(out: Path, model: Model, state: _Progress, folder: Path, n: int) -> float:
    fields = ("values", "seed", "start", "seconds")
    parts = [read_npz(path, "a part of a simulation", fields) for path in sorted(folder.glob("*.npz"))]
    values = np.concatenate([part["values"] for part in parts])
    trajectories = standardise(model.name, values, model.spread.duration / (GRID - 1))
    seconds = float(sum(part["seconds"] for part in parts))
    about = {
        "name": model.name,
        "entry": model.entry,
        "fingerprint": state.fingerprint,
        "n": n,
        "spread": asdict(model.spread),
        "time_unit": state.problem.time_unit,
        "states": state.problem.states,
        "constants": state.problem.constants,
        "seconds": round(seconds, 3),
        "notes": state.problem.notes,
        "seed": np.concatenate([part["seed"] for part in parts]).tolist(),
        "start": np.concatenate([part["start"] for part in parts]).tolist(),
    }
    # Old trajectories must not stand beside the new description, not even after a crash in between.
    (out / f"{model.name}.npz").unlink(missing_ok=True)
    with atomic_write(out / f"{model.name}.json") as file:
        file.write(json.dumps(about, ensure_ascii=False).encode())
    # Written last: a system is complete once this file stands beside the other.
    save_trajectories(out / f"{model.name}.npz", trajectories)
    return seconds


def _parts_folder(out: Path, name: str, fingerprint: str) -> Path:
    return out / ".parts" / f"{name}-{fingerprint}"


def _is_complete(out: Path, name: str, fingerprint: str) -> bool:
    return (out / f"{name}.npz").is_file() and _about(out, name).get("fingerprint") == fingerprint


def _about(out: Path, name: str) -> dict[str, Any]:
    """What the JSON file beside the trajectories says; nothing if it is absent or not ours."""
    try:
        about = json.loads((out / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return about if isinstance(about, dict) else {}


def _fingerprint(model: Model, n: int) -> str:
    """Everything the trajectories depend on: the text of the model's files, entry, spread and count."""
    digest = hashlib.sha256(repr((_PROTOCOL, model.entry, model.spread, n)).encode())
    for key, document in sorted(cellml.read(model.path).items()):
        digest.update(key.encode())
        digest.update(document.path.read_bytes())
    return digest.hexdigest()[:16]
