"""`tides evaluate`: a trained model on a table whose answers are known."""

from pathlib import Path
from typing import Annotated

import typer

from tides.cli import table_options as options

app = typer.Typer()


@app.command()
def evaluate(
    model: Annotated[Path, typer.Argument(help="Folder that `tides train` wrote.")],
    table: Annotated[Path, typer.Argument(help="Table with the same columns, including labels.")],
    weight: Annotated[
        str | None, typer.Option(help="Column of weights: how much each series counts; all equal by default.")
    ] = None,
    unlabelled: Annotated[
        str | None,
        typer.Option(help="What to do with series without a label: error or drop; by default as in training."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for a report with figures.")] = None,
    ignore_new: options.IgnoreNew = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Score a model on a table with known answers."""
    from tides.cli.own_table import check_table, estimator_of, metric_lines, weighed_by, write_page
    from tides.records import environment, json_text, timestamp, write_json

    check_table(table)
    estimator = estimator_of(model, ignore_new=ignore_new)

    from tides.errors import ConfigError
    from tides.estimators.scorecard import scorecard

    labelled = type(estimator).__name__ != "TIDESForecaster"
    if weight is not None:
        if not labelled:
            raise ConfigError("--weight: forecasts count all series the same; leave it out")
        estimator.weight = weight
    if unlabelled is not None:
        estimator.unlabelled = unlabelled
    result = scorecard(estimator, estimator.to_dataset(table, labelled=labelled, weighted=weight is not None))
    page = None
    if out is not None:
        record = {
            "record": "own-table",
            "table": table.name,
            "data": {"unit": estimator.schema_.unit, "channels": list(estimator.schema_.channels)},
            "result": result,
            "environment": environment(),
            "finished": timestamp(),
        }
        write_json(out / "record.json", record)
        page = write_page(record, out)
    if as_json:
        print(
            json_text(
                {"model": str(model), "table": table.name, "series": result["series"]} | {"metrics": result["metrics"]}
            )
        )
        return
    print(f"{table.name}: {result['series']} series{weighed_by(result, weight)}")
    print("\n".join(metric_lines(result)))
    if page is not None:
        print(page)
