"""`tides data describe`: what is in a table, before anything is trained on it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tides.cli import table_options as options

if TYPE_CHECKING:
    from tides.data.summary import Summary

app = typer.Typer()


@app.command()
def describe(
    table: options.Table,
    time: options.Time,
    id: options.Series = None,
    channel: options.Channel = None,
    value: options.Value = None,
    channels: options.Channels = None,
    label: Annotated[str | None, typer.Option(help="Column of labels.")] = None,
    weight: Annotated[str | None, typer.Option(help="Column of weights.")] = None,
    group: options.Group = None,
    static: Annotated[list[str] | None, typer.Option(help="Static columns, comma separated or one at a time.")] = None,
    unit: Annotated[str | None, typer.Option(help="Unit of time in which dates are counted.")] = None,
    duplicates: options.Duplicates = "error",
    unlabelled: options.Unlabelled = "error",
    spill: Annotated[Path | None, typer.Option(help="Folder for tables larger than memory.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a page of plots here (.png, .svg, .pdf).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show series, lengths, gaps, missing entries and label balance of your own table."""
    from rich.console import Console

    from tides.cli.words import listed
    from tides.data.summary import describe as summarise
    from tides.data.summary_plot import plot_summary
    from tides.data.tables import from_long, from_wide
    from tides.errors import ConfigError
    from tides.records import json_text

    if (channel is None) != (value is None):
        raise ConfigError("--channel and --value belong together: a long table has both, a wide table neither")
    roles: dict[str, Any] = {"id": id, "time": time, "label": label, "weight": weight, "group": group}
    roles |= {"unlabelled": unlabelled, "channels": listed(channels)}
    roles |= {"static": listed(",".join(static or [])), "unit": unit, "duplicates": duplicates, "spill": spill}
    with Console(stderr=True).status(f"reading {table.name}"):
        if channel is not None and value is not None:
            data = from_long(table, channel=channel, value=value, **roles)
        else:
            data = from_wide(table, **roles)
        summary = summarise(data)
        if plot is not None:
            plot_summary(data, summary, plot)
    if as_json:
        print(json_text(summary.to_dict(), indent=2))
    else:
        _print(summary)
        if plot is not None:
            print(f"plots: {plot}")


def _print(summary: "Summary") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False)
    unit = summary.unit or "as given"
    since = f", counted from {summary.origin}" if summary.origin else ""
    console.print(
        f"{summary.series} series, {summary.steps} steps, {len(summary.channels)} channels; time unit {unit}{since}"
    )
    ranges = Table("", "min", "5%", "median", "95%", "max", box=None)
    for name, quantiles in (
        ("steps per series", summary.lengths),
        ("duration", summary.durations),
        ("gap", summary.gaps),
    ):
        ranges.add_row(name, *(f"{number:.6g}" for number in quantiles.values()))
    console.print(ranges)
    channels = Table("channel", "observed", "missing", "", "mean", "std", "min", "max", box=None)
    for one in summary.channels[:40]:
        numbers = ("—" if x is None else f"{x:.5g}" for x in (one.mean, one.std, one.min, one.max))
        channels.add_row(one.name, str(one.observed), f"{one.missing:.1%}", _bar(one.missing), *numbers)
    console.print(channels)
    if len(summary.channels) > 40:
        console.print(f"… and {len(summary.channels) - 40} more channels (all of them with --json)")
    console.print(f"missing over all channels and steps: {summary.missing:.1%}")
    if summary.labels is not None and summary.labels["kind"] == "class":
        total = sum(summary.labels["counts"].values())
        classes = Table("class", "series", "", box=None)
        for name, count in summary.labels["counts"].items():
            classes.add_row(name, str(count), _bar(count / total))
        console.print(classes)
    elif summary.labels is not None:
        spread = ", ".join(f"{name} {number:.6g}" for name, number in summary.labels["quantiles"].items())
        console.print(f"label: {spread}")
    if summary.groups is not None:
        console.print(f"{summary.groups} groups")
    if summary.static:
        console.print(f"static features: {', '.join(summary.static)}")
    for note in summary.notes:
        console.print(f"note: {note}")


def _bar(share: float) -> str:
    return "█" * round(20 * share)
