"""`tides report`: draw tables and figures from the records of an experiment, or of all of them."""

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()

# Where records are looked for without `--in`: the user's runs, then those that came with the project.
_ROOTS = ("runs", "results")


@app.command()
def report(
    experiment: Annotated[
        str, typer.Argument(help="Name of the experiment, for example fading-flash; 'all' also writes an index.")
    ] = ("all"),
    folder: Annotated[
        Path | None,
        typer.Option("--in", help="Folder of the records; by default runs/<experiment>, else results/<experiment>."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the report; by default <records>/report.")] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(help="Use only records with this setting, for example train.steps=3000. Repeatable."),
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the main tables in Markdown.")] = False,
    into: Annotated[
        Path | None, typer.Option(help="Put the main tables between the results marks of this Markdown page.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write the report of an experiment: page, figures, tables."""
    from importlib import import_module

    from tides.errors import ConfigError
    from tides.reports import REPORTS
    from tides.reports.document import MARKDOWN, insert
    from tides.reports.index import report_all

    if experiment == "all":
        if where:
            raise ConfigError(f"--where {where[0]}: choose an experiment to select its records")
        page, summary = report_all(folder or _existing(""), out)
    elif experiment in REPORTS:
        source = folder or _existing(experiment)
        page, summary = import_module(REPORTS[experiment]).report(source, where or [], out)
    else:
        raise ConfigError(f"experiment: found {experiment!r}, reports exist for {', '.join(REPORTS)}, and all")
    if into is not None:
        insert((page.parent / MARKDOWN).read_text(encoding="utf-8"), into)
    if as_json:
        print(json.dumps({"page": str(page), "files": sorted(file.name for file in page.parent.iterdir())}))
    elif markdown and (page.parent / MARKDOWN).is_file():
        print((page.parent / MARKDOWN).read_text(encoding="utf-8"))
    else:
        print(f"{summary}\n\nReport: {page}")


def _existing(name: str) -> Path:
    found = (Path(root) / name for root in _ROOTS)
    return next((folder for folder in found if folder.is_dir()), Path(_ROOTS[0]) / name)
