"""`tides data verify`: open the files on this machine and check that they are what they should be."""

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def verify(
    names: Annotated[list[str] | None, typer.Argument(help="Data sets; default: all on this machine.")] = None,
    root: Annotated[Path | None, typer.Option(help="Data folder; default $TIDES_DATA or the user cache.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
) -> None:
    """Check shapes, contents and published checksums of data sets; exit code 1 if anything is wrong."""
    from tides.data import catalogue
    from tides.data.verify import verify as check_entry
    from tides.errors import DataError

    checks = []
    for entry in [catalogue.find(name) for name in names] if names else catalogue.entries():
        found = check_entry(entry, root)
        if names and not found:
            raise DataError(f"nothing of {entry.name} in {catalogue.room(entry, root)}")
        checks += [{"dataset": entry.name} | check._asdict() for check in found]
        if not as_json:
            for check in found:
                print(f"{'ok ' if check.good else 'BAD'} {entry.name}/{check.file}: {check.detail}", flush=True)
    if as_json:
        print(json.dumps(checks, indent=2))
    elif not checks:
        print("no data here; see `tides data list`")
    if not all(check["good"] for check in checks):
        raise typer.Exit(1)
