"""`tides bench`: measure this machine."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tides.cli.words import listed

app = typer.Typer(no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure time and memory on this machine."""


@app.command()
def speed(
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    lengths: Annotated[str | None, typer.Option(help="Sequence lengths for paper-100k, comma separated.")] = None,
    configs: Annotated[
        str | None, typer.Option(help="paper-100k, eigenworms, wide, streaming; comma separated.")
    ] = None,
    backends: Annotated[
        str | None, typer.Option(help="triton, torch, cpu, reference, naive, transformer, rformer, module, compiled.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write everything to this file.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the records; finished cells are not repeated.")] = Path(
        "runs/speed"
    ),
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure finished cells again.")] = False,
    limit: Annotated[float | None, typer.Option(help="Give up on a cell after this many seconds.")] = None,
) -> None:
    """Time training steps and forward passes, and measure peak memory, by backend and length."""
    from rich.console import Console

    from tides.atomic import require_folder
    from tides.errors import ConfigError, TidesError
    from tides.experiments import speed as benchmark
    from tides.experiments.runner import Cell
    from tides.records import Record
    from tides.reports import speed as results
    from tides.reports.speed_summary import summarise

    try:
        wanted = None if lengths is None else [int(word.replace("_", "")) for word in lengths.split(",")]
    except ValueError as error:
        raise ConfigError(f"lengths: found {lengths!r}, wanted integers separated by commas") from error
    cells = benchmark.cells(
        device,
        lengths=wanted,
        workloads=listed(configs) or None,
        backends=listed(backends) or None,
        threads=threads,
    )
    notices = Console(stderr=True)
    done: list[str] = []

    def watch(cell: Cell, record: Record, cached: bool) -> None:
        done.append(cell.label)
        found = record.results
        taken = f"{found['step']['median'] * 1e3:.3g} ms" if "step" in found else found["status"]
        state = "already there" if cached else f"measured in {record.seconds:.0f} s"
        notices.print(f"{len(done)}/{len(cells)} {cell.label}: {taken} ({state})", highlight=False)

    require_folder(out)
    if json_file is not None:
        require_folder(json_file.parent)
    records = benchmark.run_all(cells, out, seconds_per_cell=limit, fresh=fresh, watch=watch)
    if json_file is not None:
        results.write_results(json_file, records, benchmark.protocol(device))
    summary = summarise(records)
    table = results.cell_table(summary)
    _print_table(table.columns, table.rows)
    for note in results.notes(summary, records):
        print(note)
    print(f"Records: {out}/records" + (f", everything: {json_file}" if json_file else ""))
    failed = [cell.label for cell, record in zip(cells, records, strict=True) if record.results["status"] == "failed"]
    if failed:
        raise TidesError(f"{len(failed)} cells failed: {', '.join(failed)}")


def _print_table(columns: list[str], rows: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        # A log has no edge at which numbers would have to wrap.
        console = Console(width=200)
    table = Table(*columns)
    for column in table.columns[2:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*(cell.replace("\n", " ") for cell in row))
    console.print(table)


@app.command()
def models(
    names: Annotated[str | None, typer.Option("--models", help="Names, comma separated; all by default.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    batch: Annotated[int, typer.Option(min=1, help="Series per step.")] = 16,
    length: Annotated[int, typer.Option(min=4, help="Observations per series.")] = 256,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    seconds: Annotated[float, typer.Option(min=0, help="Seconds per model; at least three steps are taken.")] = 5.0,
    limit: Annotated[float | None, typer.Option(help="Give up on a model after this many seconds.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write everything to this file.")] = None,
) -> None:
    """Compare step time and peak memory of TIDES and every baseline at one size."""
    import torch
    from rich.console import Console

    from tides.atomic import require_folder
    from tides.experiments import model_cost
    from tides.records import write_json
    from tides.training.world import check_device

    check_device(device)
    torch.set_num_threads(threads)
    notices = Console(stderr=True)
    if json_file is not None:
        require_folder(json_file.parent)
    found = model_cost.measure_all(
        listed(names),
        size=model_cost.Size(batch=batch, length=length),
        device=device,
        seconds=seconds,
        limit=limit,
        watch=lambda row: notices.print(f"{row['model']}: {_cost(row)[0]}", highlight=False),
    )
    if json_file is not None:
        write_json(json_file, found)
    rows = [
        [row.get("task", ""), row["model"], f"{row['parameters']:,}" if "parameters" in row else "", *_cost(row)]
        for row in found["models"]
    ]
    _print_table(["task", "model", "parameters", "step", "processor time", "memory"], rows)


def _cost(row: dict[str, Any]) -> list[str]:
    """Step time and memory as text, or the reason why there are none."""
    if "step" not in row:
        return [row["status"], "", ""]
    return [*(f"{row[kind] * 1e3:.3g} ms" for kind in ("step", "processor")), f"{row['memory'] / 2**20:.0f} MiB"]


@app.command()
def scale(
    workers: Annotated[
        str | None,
        typer.Option(help="Numbers of workers, comma separated; by default 1, 2, 4, … up to all processors."),
    ] = None,
    engines: Annotated[
        str | None, typer.Option(help="local, ray or both, comma separated; by default both if Ray is installed.")
    ] = None,
    cells: Annotated[int, typer.Option(min=1, help="Cells per worker.")] = 4,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs per cell.")] = 16,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of every setup; medians are shown.")] = 3,
    threads: Annotated[
        bool, typer.Option("--threads/--no-threads", help="Also measure one worker with a thread on every processor.")
    ] = True,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write everything to this file.")] = None,
) -> None:
    """Measure cells per minute and training observations per second against the number of workers."""
    from rich.console import Console

    from tides.atomic import require_folder
    from tides.errors import ConfigError
    from tides.experiments import scale as benchmark
    from tides.records import write_json
    from tides.reports import scale as report

    try:
        counts = None if workers is None else [int(word) for word in workers.split(",")]
    except ValueError as error:
        raise ConfigError(f"--workers: found {workers!r}, wanted integers separated by commas") from error
    wanted = listed(engines) or benchmark.default_engines()
    chosen = benchmark.setups(wanted, counts or benchmark.default_workers(), threads=threads)
    notices = Console(stderr=True)
    if json_file is not None:
        require_folder(json_file.parent)
    found = benchmark.measure_all(
        chosen,
        workload=benchmark.Workload(cells_per_worker=cells, epochs=epochs),
        repeats=repeats,
        watch=lambda run: notices.print(
            f"{run['engine']}, {run['workers']} workers on {run['processors']} processors: "
            f"{run['cells']} cells in {run['wall']:.1f} s",
            highlight=False,
        ),
    )
    if json_file is not None:
        write_json(json_file, found)
    for table in (report.throughput_table(found), report.extrapolation_table(found)):
        if table.rows:
            print(table.caption)
            _print_table(table.columns, table.rows)
    for note in report.notes(found):
        print(note)
