"""`tides sweep`: search for a configuration on validation data; several workers may share one storage."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tides.experiments.sweep import Options, Result, Sweep

app = typer.Typer()


@app.command()
def sweep(
    target: Annotated[str, typer.Argument(help="uea or physiome (the paper's spaces), or your own TOML file.")],
    trials: Annotated[
        int | None, typer.Option(help="Number of configurations in all; ten with --protocol published.")
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(help="sqlite:///file.db or postgresql://user@host/name; by default <out>/sweep.db."),
    ] = None,
    protocol: Annotated[
        str, typer.Option(help="search, or published: ten configurations, the best on fold 0, then five folds.")
    ] = "search",
    datasets: Annotated[str | None, typer.Option(help="uea, physiome: names of data sets, comma separated.")] = None,
    variant: Annotated[str | None, typer.Option(help="uea, physiome: shipped configuration to start from.")] = None,
    sampler: Annotated[str, typer.Option(help="random, or tpe, which learns from finished trials.")] = "random",
    prune: Annotated[
        bool | None,
        typer.Option(
            "--prune/--no-prune", help="Stop trials that are behind the median; off with --protocol published."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the drawn configurations.")] = 0,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run the same code with few steps, as a check; not a result.")
    ] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Fix a setting, for example train.epochs=50. Repeatable.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results; by default runs/sweep.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu",
    heartbeat: Annotated[
        int, typer.Option(help="Seconds between a worker's heartbeats; after six missed ones it counts as lost.")
    ] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")] = False,
) -> None:
    """Search for a configuration on validation data. Repeat the command to add a worker or to continue."""
    from tides.cli.words import listed
    from tides.errors import ConfigError, TidesError
    from tides.experiments import sweep as sweeps
    from tides.training.world import check_device

    if protocol not in ("search", "published"):
        raise ConfigError(f"--protocol: found {protocol!r}, wanted search or published")
    if sampler not in ("random", "tpe"):
        raise ConfigError(f"--sampler: found {sampler!r}, wanted random or tpe")
    published = protocol == "published"
    if published and sampler != "random":
        raise ConfigError(f"--sampler {sampler}: the published protocol draws at random")
    if published and trials not in (None, sweeps.PUBLISHED_TRIALS):
        raise ConfigError(f"--trials {trials}: the published protocol has {sweeps.PUBLISHED_TRIALS}")
    check_device(device)
    names = listed(datasets) or []
    found = _resolve(target, variant=variant, quick=quick, settings=settings or [], datasets=names, device=device)
    count = sweeps.PUBLISHED_TRIALS if published else trials
    if count is None:
        raise ConfigError("--trials: say how many configurations to try")
    folder = out or Path("runs") / "sweep"
    options = sweeps.Options(
        trials=count,
        storage=storage or f"sqlite:///{folder / 'sweep.db'}",
        seed=seed,
        sampler="tpe" if sampler == "tpe" else "random",
        prune=not published if prune is None else prune,
        all_folds=published,
        heartbeat=heartbeat,
    )
    folder.mkdir(parents=True, exist_ok=True)
    results, failed = [], {}
    for one in found:
        try:
            results.append(_with_bar(one, options, folder, quiet=as_json))
        except ConfigError:
            raise
        except TidesError as error:
            failed[one.name] = str(error).removeprefix(f"{one.name}: ")
            continue
        if not as_json:
            _print(results[-1], options)
    if as_json:
        print(json.dumps({"folder": str(folder), "sweeps": [_summary(result) for result in results], "failed": failed}))
    elif results:
        print(f"Plots: tides report sweep --in {folder}")
    if failed:
        lines = "; ".join(f"{name}: {text}" for name, text in failed.items())
        several = f"{len(failed)} of {len(found)} sweeps failed, the others are kept. " if len(found) > 1 else ""
        raise TidesError(f"{several}{lines}")


def _resolve(
    target: str, *, variant: str | None, quick: bool, settings: list[str], datasets: list[str], device: str
) -> "list[Sweep]":
    """The sweeps that a target stands for, with valid settings; missing data is noticed later."""
    from tides.errors import ConfigError
    from tides.experiments import sweep as sweeps
    from tides.experiments.sweep_space import PAPER_SPACES

    known = ", ".join(PAPER_SPACES)
    if target in PAPER_SPACES:
        found = sweeps.paper_sweeps(
            target, variant=variant, quick=quick, settings=settings, datasets=datasets, device=device
        )
    elif not Path(target).is_file():
        raise ConfigError(f"{target}: found no file of that name, wanted {known} or a TOML file of your own")
    elif datasets or variant:
        raise ConfigError(f"--datasets, --variant: belong to {known}; {target} names its own")
    else:
        found = [sweeps.file_sweep(Path(target), quick=quick, settings=settings, device=device)]
    for one in found:
        one.target.check_settings(one.space.example())
    return found


def _with_bar(sweep: "Sweep", options: "Options", folder: Path, *, quiet: bool) -> "Result":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from tides.experiments.sweep import run_sweep

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    console = Console(stderr=True, quiet=quiet)
    told: set[str] = set()
    with Progress(TextColumn(sweep.name), *columns, console=console) as bar:
        task = bar.add_task("", total=options.trials)

        def show(settled: int, awaited: Sequence[int]) -> None:
            held = f"waiting for trial {', '.join(map(str, awaited))} of another worker" if awaited else ""
            # A study may already have more settled trials than this call asks for.
            total = max(options.trials, settled)
            bar.update(task, completed=settled, total=total, description=held)
            line = f"{sweep.name}: {held or f'{settled} of {total} trials'}"
            # A log file shows no bar.
            if not console.is_terminal and line not in told:
                told.add(line)
                console.print(line, highlight=False, soft_wrap=True)

        return run_sweep(sweep, options, folder, show)


def _print(result: "Result", options: "Options") -> None:
    results = result.record.results
    states = [row["state"] for row in results["trials"]]
    best = results["best"]
    print(
        f"{result.name}: {len(states)} trials ({states.count('pruned')} pruned, {states.count('failed')} failed), "
        f"best is trial {best['trial']} with validation score {best['value']:.4g}"
    )
    if "folds" in results:
        folds = results["folds"]
        print(f"five folds: {folds['metric']} {folds['mean']:.4g} ± {folds['std']:.2g}")
    for note in results["notes"]:
        print(f"note: {note}")
    print(f"chosen: {result.chosen}")


def _summary(result: "Result") -> dict[str, object]:
    kept: dict[str, object] = {
        name: result.record.results[name] for name in ("best", "folds", "notes") if name in result.record.results
    }
    return {"name": result.name, "record": str(result.record_path), "chosen": str(result.chosen), **kept}
