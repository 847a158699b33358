"""The search for the spread of highest JGD, and the ranking of a folder of models by it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from tides.data.counts import require_whole
from tides.data.physiome import cellml
from tides.data.physiome.integrate import SimulationFailed, Spread
from tides.data.physiome.jgd import TRAJECTORIES, Score, score
from tides.data.physiome.problem import Problem, load_problem
from tides.data.physiome.rhs import compile_source
from tides.data.physiome.workers import run_tasks
from tides.errors import DataError

DURATIONS = (0.33, 1.0, 3.3, 10.0, 30.0)
D_STATES = (0.1, 0.3, 0.5)
D_CONSTANTS = (0.05, 0.1, 0.3)
OUTLIER = 10.0
"""A spread with any |z| beyond this drops out: a few escaping trajectories would make the score."""


def spreads() -> tuple[Spread, ...]:
    """The published grid over (T, d_states, d_constants)."""
    return tuple(Spread(*values) for values in product(DURATIONS, D_STATES, D_CONSTANTS))


@dataclass(frozen=True)
class Found:
    """Outcome of the search for one model."""

    name: str
    path: Path
    best: Score | None
    """None if the model cannot be read or no point of the grid is usable."""
    reason: str = ""
    """Why there is no score."""


@dataclass(frozen=True)
class _Point:
    path: Path
    problem: Problem
    spread: Spread
    n: int


def best_spread(
    path: str | Path,
    entry: str | None = None,
    *,
    grid: Iterable[Spread] | None = None,
    n: int = TRAJECTORIES,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Score:
    """The spread with the highest JGD for one model; see `OUTLIER` for which points are skipped."""
    require_whole("n", n, 2)
    problem = load_problem(path, entry)
    points = [_Point(Path(path), problem, spread, n) for spread in (spreads() if grid is None else grid)]
    scores, reason = [], ""
    for _, result in run_tasks(_score_point, points, workers):
        if isinstance(result, Score):
            scores.append(result)
        else:
            reason = result
        if progress is not None:
            progress(1)
    if not scores:
        raise DataError(f"{problem.name}: no point of the grid is usable; the last one: {reason}")
    # Results arrive in any order; equal scores are settled by the spread.
    return max(scores, key=_rank_key)


def rank(
    paths: Iterable[str | Path],
    *,
    grid: Iterable[Spread] | None = None,
    n: int = TRAJECTORIES,
    workers: int = 1,
    progress: Callable[[int], None] | None = None,
) -> list[Found]:
    """The best spread of every model, highest JGD first; models without a score come last with the reason."""
    require_whole("n", n, 2)
    chosen = spreads() if grid is None else tuple(grid)
    best: dict[Path, Score] = {}
    reasons: dict[Path, str] = {}

    def points() -> Iterator[_Point]:
        for path in map(Path, paths):
            try:
                problem = load_problem(path)
                # Compiled once here, found in the cache by the workers.
                compile_source(problem.source)
            except DataError as error:
                reasons[path] = str(error)
                if progress is not None:
                    progress(len(chosen))
            else:
                yield from (_Point(path, problem, spread, n) for spread in chosen)

    for point, result in run_tasks(_score_point, points(), workers):
        if isinstance(result, Score):
            best[point.path] = max((best.get(point.path, result), result), key=_rank_key)
        else:
            reasons.setdefault(point.path, result)
        if progress is not None:
            progress(1)
    scored = [Found(path.stem, path, result) for path, result in best.items()]
    scored.sort(key=lambda row: (-row.best.jgd if row.best else 0.0, row.name))
    return scored + [Found(p.stem, p, None, why) for p, why in sorted(reasons.items()) if p not in best]


def find_models(folder: str | Path) -> list[Path]:
    """CellML files in `folder` and its subfolders that no other file beside them imports."""
    place = Path(folder)
    if not place.is_dir():
        raise DataError(f"{place}: not a folder")
    files = sorted(p for p in place.rglob("*.cellml") if p.is_file())
    if not files:
        raise DataError(f"{place}: holds no .cellml file")
    imported: set[Path] = set()
    for file in files:
        try:
            documents = list(cellml.read(file).values())
        except DataError:
            continue
        imported.update(document.path for document in documents[1:])
    return [file for file in files if file.resolve() not in imported]


def _rank_key(result: Score) -> tuple[float, float, float, float]:
    spread = result.spread
    return result.jgd, -spread.duration, -spread.d_states, -spread.d_constants


def _score_point(point: _Point) -> Score | str:
    try:
        result = score(point.problem, point.spread, point.n)
    except SimulationFailed as error:
        return str(error)
    if result.largest > OUTLIER:
        return f"{point.problem.name}: values up to {result.largest:.0f} standard deviations from the mean"
    return result
