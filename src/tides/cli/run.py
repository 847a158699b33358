"""`tides run`: compute an experiment's cells; complete ones are kept, so it can be stopped and repeated."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tides.experiments.engines import Engine
    from tides.experiments.runner import Cell, Outcome

app = typer.Typer()

_SECONDS_BETWEEN_LINES = 30.0


@app.command()
def run(
    experiment: Annotated[str, typer.Argument(help="Name of the experiment, for example fading-flash.")],
    variant: Annotated[
        str | None, typer.Option(help="Shipped configuration to use; by default 'paper' if there is one.")
    ] = None,
    own: Annotated[
        Path | None, typer.Option("--config", help="Your own configuration file, such as one chosen by a sweep.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds.")] = None,
    models: Annotated[
        str | None,
        typer.Option("--models", "--model", help="Names of models, comma separated; package:function for your own."),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(help="Run only cells whose label (or its beginning) matches one of these: 'HOD01,SCP2*seed42'."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run the same code with few steps, as a check; not a result.")
    ] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Change a setting, for example train.steps=500. Repeatable.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the records; by default runs/<experiment>.")] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Maximum number of stacks at once; by default one per core, or what the Ray cluster has room for.",
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu",
    streams: Annotated[
        int, typer.Option(min=1, help="Stacks that share a GPU in one process, each on its own CUDA stream.")
    ] = 1,
    time_limit: Annotated[
        float | None,
        typer.Option(min=0, help="Start nothing new after this many seconds; repeat the command to continue."),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="local: processes on this machine; ray: tasks on a Ray cluster.")
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(help="ray: host:port, auto (this machine's cluster, the default) or local (a new one)."),
    ] = None,
    cpus: Annotated[float | None, typer.Option(min=0, help="ray: processors per stack; 1 by default.")] = None,
    gpus: Annotated[
        float | None, typer.Option(min=0, help="ray: GPUs per stack; by default 1 with --device cuda.")
    ] = None,
    retries: Annotated[
        int | None,
        typer.Option(min=0, help="ray: how often to try a stack again after it lost its worker; 3 by default."),
    ] = None,
    shared_files: Annotated[
        bool, typer.Option("--shared-files", help="ray: all machines see this machine's files under the same paths.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")] = False,
) -> None:
    """Run an experiment: train, evaluate, write records."""
    from fnmatch import fnmatch

    from tides.cli.words import listed
    from tides.errors import ConfigError, TidesError
    from tides.experiments import config, runner

    module = runner.find(experiment)
    if own is not None and variant is not None:
        raise ConfigError(f"--config {own}: takes the place of --variant {variant}; wanted one of them")
    chosen = list(settings or [])
    if seeds is not None:
        chosen.append(f"seeds={seeds}")
    if models is not None:
        chosen.append(f"models={json.dumps(listed(models))}")
    if own is None:
        variant = variant or config.default_variant(experiment)
        resolved = config.load(experiment, variant, quick=quick, settings=chosen)
    else:
        variant = own.stem
        resolved = config.load_file(own, quick=quick, settings=chosen)
    cells = runner.plan(module, resolved, variant=variant, quick=quick)
    if only is not None:
        patterns = listed(only) or []

        def matches(label: str, pattern: str) -> bool:
            return fnmatch(label, pattern) or fnmatch(label, f"{pattern}-*")

        labels = [cell.label for cell in cells]
        cells = [cell for cell in cells if any(matches(cell.label, pattern) for pattern in patterns)]
        if not cells:
            more = f" and {len(labels) - 3} more" if len(labels) > 3 else ""
            raise ConfigError(f"--only {only}: no cell has such a label; there are {', '.join(labels[:3])}{more}")
    folder = out or Path("runs") / experiment
    wishes = {"address": address, "cpus": cpus, "gpus": gpus, "retries": retries, "shared_files": shared_files or None}
    chosen_engine = _engine(
        engine, device, workers, streams, {name: value for name, value in wishes.items() if value is not None}
    )
    outcome = _with_bar(experiment, cells, folder, device, chosen_engine, time_limit, quiet=as_json)
    if as_json:
        print(json.dumps({"folder": str(folder), "cells": len(cells), **vars(outcome)}))
    else:
        print(
            f"{experiment}: {len(cells)} cells, {outcome.computed} computed, {outcome.cached} already there, "
            f"{outcome.seconds:.1f} s. Records: {folder}/records"
        )
        for name, reason in outcome.unavailable.items():
            print(f"not available: {name}: {reason}")
        if outcome.postponed:
            print(f"{outcome.postponed} cells were not started within {time_limit:g} s; run the same command again.")
    if outcome.failed:
        lines = "; ".join(f"{name}: {text}" for name, text in outcome.failed.items())
        raise TidesError(f"{len(outcome.failed)} stacks failed, the others are kept. {lines}")


def _engine(name: str, device: str, workers: int | None, streams: int, wishes: dict[str, Any]) -> "Engine":
    """The engine that was asked for; `wishes` are the given options for Ray."""
    from tides.errors import ConfigError
    from tides.experiments.engines import Processes, Streams, available_cpus
    from tides.training.world import check_device

    if streams > 1 and (name != "local" or device == "cpu" or workers is not None):
        raise ConfigError("--streams: wanted --device cuda with --engine local, and not --workers")
    if name == "local":
        if wishes:
            options = ", ".join(f"--{option.replace('_', '-')}" for option in wishes)
            raise ConfigError(f"{options}: found --engine local, wanted --engine ray")
        check_device(device)
        if streams > 1:
            return Streams(streams)
        return Processes(workers or (available_cpus() if device == "cpu" else 1))
    if name != "ray":
        raise ConfigError(f"--engine: found {name!r}, wanted local or ray")
    if device not in ("cpu", "cuda"):
        raise ConfigError(
            f"--device: found {device!r}, wanted cpu or cuda, because Ray chooses among the GPUs of a node"
        )
    from tides.experiments.cluster import Cluster

    shares_files = wishes.pop("shared_files", False)
    return Cluster(**{"gpus": float(device == "cuda"), **wishes}, at_once=workers, shares_files=shares_files)


def _with_bar(
    title: str,
    cells: "list[Cell]",
    folder: Path,
    device: str,
    engine: "Engine",
    time_limit: float | None,
    *,
    quiet: bool,
) -> "Outcome":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    from tides.experiments import runner

    columns = (BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    console = Console(stderr=True, quiet=quiet)
    start = time.perf_counter()
    told = start
    with Progress(TextColumn(title), *columns, console=console) as bar:
        task = bar.add_task("", total=len(cells))

        def watch(done: float, labels: list[str]) -> None:
            nonlocal told
            bar.update(task, completed=done, description=", ".join(labels))
            now = time.perf_counter()
            # A log file shows no bar.
            if not console.is_terminal and now - told >= _SECONDS_BETWEEN_LINES:
                told = now
                line = f"{title}: {done:.2f} of {len(cells)} cells after {now - start:.0f} s: {', '.join(labels)}"
                console.print(line, highlight=False, soft_wrap=True)

        return runner.run_cells(cells, folder, device=device, engine=engine, time_limit=time_limit, watch=watch)
