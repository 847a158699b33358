"""`tides data list`: which data sets exist, and which of them are on this machine."""

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def list_(
    root: Annotated[Path | None, typer.Option(help="Data folder; default $TIDES_DATA or the user cache.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
) -> None:
    """Show every data set with its size, source, licence and whether it is on this machine."""
    from tides.data import cache, catalogue

    rows = catalogue.table(root)
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    print(f"data folder: {root or cache.cache_root()}")
    for row in rows:
        size = f"{row['size_mb']} MB" if row["size_mb"] else "size unknown"
        print(f"\n{row['name']}: {row['state']}")
        print(f"  {row['what']}")
        print(f"  {size} · licence: {row['licence']} · {row['source']} ({row['how']})")
