"""`tides report`: draw tables and figures from the records of an experiment."""

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def report(
    experiment: Annotated[str, typer.Argument(help="Its name, for example fading-flash.")],
    folder: Annotated[
        Path | None, typer.Option("--in", help="Where the records are; runs/<experiment> by default.")
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option(help="Only records with this setting: train.steps=3000. Repeatable.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write an experiment's page, figures and tables."""
    from importlib import import_module

    from tides.errors import ConfigError
    from tides.reports import REPORTS

    if experiment not in REPORTS:
        raise ConfigError(f"experiment: found {experiment!r}, reports exist for {', '.join(REPORTS)}")
    source = folder or Path("runs") / experiment
    page, summary = import_module(REPORTS[experiment]).report(source, where or [])
    if as_json:
        print(json.dumps({"page": str(page), "files": sorted(file.name for file in page.parent.iterdir())}))
    else:
        print(f"{summary}\n\nReport: {page}")
