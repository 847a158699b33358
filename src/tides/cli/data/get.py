"""`tides data get`: fetch a data set; an interrupted download resumes where it stopped."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="A name from `tides data list`, such as SCP1 or physiome.")],
    root: Annotated[Path | None, typer.Option(help="Data folder; default $TIDES_DATA or the user cache.")] = None,
) -> None:
    """Download a data set, and check it if its source publishes a checksum."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    from tides.data import catalogue

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(name, total=None)
        paths = catalogue.get(name, root, progress=lambda done, total: bar.update(task, completed=done, total=total))
    for path in paths:
        print(path)
