"""`tides data jgd`: rank a folder of CellML models by the joint gradient deviation they can reach."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer()


@app.command()
def jgd(
    folder: Annotated[Path, typer.Argument(help="Folder of CellML models, or one CellML file.")],
    top: Annotated[int | None, typer.Option(min=1, help="Show only this many of the best.")] = None,
    n: Annotated[int, typer.Option("-n", "--trajectories", min=2, help="Trajectories per point of the grid.")] = 100,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; default: all cores.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
) -> None:
    """Search every model over (T, d_states, d_constants) and list the models by their best JGD."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from tides.data.physiome.search import find_models, rank, spreads
    from tides.data.physiome.workers import available_cores
    from tides.errors import DataError

    paths = [folder] if folder.is_file() else find_models(folder)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{len(paths)} models", total=len(paths) * len(spreads()))
        found = rank(
            paths,
            n=n,
            workers=workers or available_cores(),
            progress=lambda k: bar.update(task, advance=k),
        )
    scored = [(row, row.best) for row in found if row.best is not None]
    unusable = [row for row in found if row.best is None]
    if as_json:
        print(json.dumps([_record(row) for row in [row for row, _ in scored[:top]] + unusable], indent=2))
    else:
        _print(scored[:top], unusable)
    if not scored:
        raise DataError(f"{folder}: none of {len(found)} models could be scored; the first one: {found[0].reason}")


def _print(scored: list[tuple[Any, Any]], unusable: list[Any]) -> None:
    print(f"{'JGD':>10}  {'T':>5}  {'d_states':>8}  {'d_constants':>11}  model")
    for row, best in scored:
        spread = best.spread
        numbers = f"{best.jgd:10.6f}  {spread.duration:5g}  {spread.d_states:8g}  {spread.d_constants:11g}"
        print(f"{numbers}  {row.name}")
    for row in unusable:
        print(f"{'—':>10}  {row.name}: {row.reason}")


def _record(row: Any) -> dict[str, Any]:
    record = {"name": row.name, "path": str(row.path), "jgd": None, "reason": row.reason}
    if row.best is not None:
        record |= {"jgd": row.best.jgd, "channels": row.best.channels} | vars(row.best.spread)
    return record
