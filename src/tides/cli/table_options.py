"""Arguments and options that several verbs share: a table and the roles of its columns."""

from pathlib import Path
from typing import Annotated

import typer

Table = Annotated[Path, typer.Argument(help="Parquet, Feather or CSV file, or a folder of Parquet files.")]
Id = Annotated[str, typer.Option(help="Column that names the series.")]
Series = Annotated[
    str | None, typer.Option("--id", help="Column that names the series; without it, the table is one series.")
]
Time = Annotated[str, typer.Option(help="Column of times: numbers, dates or durations.")]
Channel = Annotated[str | None, typer.Option(help="Long tables: column with the names of channels.")]
Value = Annotated[str | None, typer.Option(help="Long tables: column of values.")]
Channels = Annotated[
    str | None,
    typer.Option(help="Columns to use as channels, or channels of a long table, comma separated; all by default."),
]
Group = Annotated[str | None, typer.Option(help="Column of groups (such as patients) that are never split.")]
Duplicates = Annotated[str, typer.Option(help="What to do with repeated measurements: error, mean or last.")]
Unlabelled = Annotated[str, typer.Option(help="What to do with series without a label: error or drop.")]
IgnoreNew = Annotated[
    bool, typer.Option("--ignore-new", help="Leave out columns, channels and categories that the model does not know.")
]
