"""`tides data simulate`: trajectories from CellML models, in parallel and resumable."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer()


@app.command()
def simulate(
    target: Annotated[str, typer.Argument(help="`physiome` for the benchmark's systems, or your own CellML file.")],
    cellml: Annotated[
        Path | None, typer.Option(help="For `physiome`: folder of CellML files (HOD01.cellml …).")
    ] = None,
    models: Annotated[
        str | None, typer.Option(help="For `physiome`: short names, comma separated; default: all 50.")
    ] = None,
    n: Annotated[int, typer.Option("-n", "--trajectories", min=2, help="Trajectories per model.")] = 2000,
    out: Annotated[
        Path | None,
        typer.Option(help="Output folder; default physiome/trajectories, or simulated, in the data folder."),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; default: all cores.")] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace existing files.")] = False,
    duration: Annotated[float | None, typer.Option(help="For your own file: the duration T.")] = None,
    d_states: Annotated[float | None, typer.Option(help="Relative width for the initial states.")] = None,
    d_constants: Annotated[float | None, typer.Option(help="Relative width for the constants.")] = None,
    against: Annotated[
        Path | None, typer.Option(help="For `physiome`: folder of reference trajectories to compare with.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
) -> None:
    """Simulate models with random initial states and constants; repeat the command to continue after a stop."""
    from tides.cli.words import listed
    from tides.data.cache import cache_root
    from tides.data.physiome.campaign import Model, published_models, run_campaign
    from tides.data.physiome.comparison import compare
    from tides.data.physiome.simulation import choose_spread
    from tides.data.physiome.workers import available_cores
    from tides.errors import ConfigError

    published = target == "physiome"
    if published and cellml is None:
        raise ConfigError("--cellml: wanted the folder with the CellML files of the benchmark")
    if cellml is not None and not cellml.is_dir():
        raise ConfigError(f"--cellml: found {cellml}, wanted a folder of CellML files")
    if against is not None and not against.is_dir():
        raise ConfigError(f"--against: found {against}, wanted a folder of reference trajectories")
    if published and (duration, d_states, d_constants) != (None, None, None):
        raise ConfigError("--duration, --d-states, --d-constants are published for `physiome` and cannot be given")
    if not published and (cellml, models, against) != (None, None, None):
        raise ConfigError("--cellml, --models and --against belong to `physiome`, not to a file of your own")
    if not published and not Path(target).is_file():
        raise ConfigError(f"{target}: no such file; wanted `physiome`, or a CellML file of your own")
    if published:
        chosen = published_models(str(cellml), listed(models) or None)
    else:
        spread = choose_spread(None, duration, d_states, d_constants)
        chosen = [Model(Path(target).stem, Path(target), None, spread)]
    folder = out or cache_root() / ("physiome/trajectories" if published else "simulated")
    processes = workers or available_cores()
    with _progress() as bar:
        task = bar.add_task("simulating", total=n * len(chosen))
        outcomes = run_campaign(
            chosen,
            folder,
            n=n,
            workers=processes,
            overwrite=overwrite,
            progress=lambda name, k: bar.update(task, advance=k, description=name),
        )
    rows: list[dict[str, Any]] = [vars(outcome).copy() for outcome in outcomes]
    good = all(outcome.done for outcome in outcomes)
    if against is not None:
        done = [model for model, outcome in zip(chosen, outcomes, strict=True) if outcome.done]
        with _progress() as bar:
            task = bar.add_task("comparing", total=len(done))
            agreements = compare(
                done, folder, against, workers=processes, progress=lambda name: bar.update(task, advance=1)
            )
        by_name = {agreement.name: agreement for agreement in agreements}
        for row in rows:
            if row["name"] in by_name:
                row.update(vars(by_name[row["name"]]), agrees=by_name[row["name"]].good)
        good = good and all(agreement.good for agreement in agreements)
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        _print_table(rows, folder)
    if not good:
        raise typer.Exit(1)


def _progress() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _print_table(rows: list[dict[str, Any]], folder: Path) -> None:
    for row in rows:
        if row["error"]:
            print(f"{row['name']:8} FAILED  {row['error']}")
            continue
        line = f"{row['name']:8} {row['seconds']:8.1f} s  {'kept' if row['reused'] else 'made'}"
        if "fraction" in row:
            ratio = row["jgd"] / row["published_jgd"]
            line += f"  same {row['fraction']:7.2%}  JGD {row['jgd']:.6f} (published × {ratio:.6f})"
            line += "  ok" if row["agrees"] else "  DIFFERS"
        print(line)
        for note in row["notes"]:
            print(f"         {note}")
    print(f"{sum(row['done'] for row in rows)} of {len(rows)} models in {folder}")
