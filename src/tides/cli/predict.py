"""`tides predict`: predictions of a trained model for a new table."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tides.cli import table_options as options

app = typer.Typer()

_YEARS = (-62_135_596_800, 253_402_300_800)  # seconds since 1970 at the beginning of the years 1 and 10000


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="Folder that `tides train` wrote.")],
    table: Annotated[Path, typer.Argument(help="Table with the same columns; labels are not needed.")],
    out: Annotated[Path, typer.Option(help="File for the predictions: .parquet, .csv or .feather.")],
    at: Annotated[
        str | None,
        typer.Option(
            help="Forecasts: times, comma separated: +6h after each series' last time, a date (in the table's zone, "
            "else UTC) or a number."
        ),
    ] = None,
    coverage: Annotated[
        float | None, typer.Option(help="Forecasts: share of values that the intervals should contain; 0.9 by default.")
    ] = None,
    ignore_new: options.IgnoreNew = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Predict classes, numbers or forecasts for a table."""
    from tides.atomic import require_folder
    from tides.cli.own_table import check_table, estimator_of
    from tides.data.clock import zone_of
    from tides.errors import ConfigError

    check_table(table)
    if out.suffix.lower() not in (".parquet", ".csv", ".feather"):
        raise ConfigError(f"--out: found {out.name!r}, wanted a name that ends in .parquet, .csv or .feather")
    if out.exists() and out.samefile(table):
        raise ConfigError(f"--out: {out} is the table itself; wanted another file for the answers")
    if out.is_dir():
        raise ConfigError(f"--out: {out} is a folder; wanted a file")
    require_folder(out.parent)
    estimator = estimator_of(model, ignore_new=ignore_new)
    data = estimator.to_dataset(table)
    kind = type(estimator).__name__
    if kind == "TIDESForecaster":
        share = 0.9 if coverage is None else coverage
        columns = _forecasts(estimator, data, at, share, zone_of(table, estimator.time))
    elif at is not None:
        raise ConfigError(f"--at: the model in {model} is a {kind} and answers once for each series")
    elif coverage is not None:
        raise ConfigError(f"--coverage: the model in {model} is a {kind} and answers without intervals")
    elif kind == "TIDESClassifier":
        columns = _classes(estimator, data)
    else:
        columns = _numbers(estimator, data)
    rows = len(next(iter(columns.values())))
    _write(columns, out)
    if as_json:
        print(json.dumps({"series": len(data), "rows": rows, "columns": list(columns), "out": str(out)}))
    else:
        print(f"{out}: {rows} rows for {len(data)} series, columns {', '.join(columns)}")


def _classes(estimator: Any, data: Any) -> dict[str, Any]:
    probabilities = estimator.predict_proba(data)
    answers: dict[str, Any] = {"predicted": estimator.classes_[probabilities.argmax(axis=1)].tolist()}
    for k, name in enumerate(estimator.classes_.tolist()):
        answers[f"p({name})"] = probabilities[:, k]
    return _beside(_named(estimator, data.ids), answers)


def _numbers(estimator: Any, data: Any) -> dict[str, Any]:
    return _beside(_named(estimator, data.ids), {"predicted": estimator.predict(data)})


def _named(estimator: Any, ids: list[Any]) -> dict[str, Any]:
    """The column of ids, which a table that is one series does not have."""
    return {} if estimator.id is None else {estimator.id: ids}


def _beside(asked: dict[str, Any], answers: dict[str, Any]) -> dict[str, Any]:
    """The table's own columns, then the answers; an answer whose name is taken gets an underscore at its end."""
    columns = dict(asked)
    for name, values in answers.items():
        while name in columns:
            name += "_"
        columns[name] = values
    return columns


def _forecasts(estimator: Any, data: Any, at: str | None, coverage: float, zone: str | None) -> dict[str, Any]:
    """One row for each series, asked time and channel."""
    import sys

    import numpy as np

    from tides.estimators.questions import query_times

    method = estimator.interval
    obstacle = estimator.calibrated_.obstacle(coverage, estimator.schema_.channels)
    if method == "conformal" and obstacle is not None:
        method = "gaussian"
        print(f"note: {obstacle}; intervals are gaussian ones", file=sys.stderr)
    asked = query_times(f"+{estimator.horizon_!r}" if at is None else at, data, estimator.schema_, zone=zone)
    for note in _out_of_reach(estimator, data, asked):
        print(f"note: {note}", file=sys.stderr)
    mean = estimator.predict(data, asked)
    low, high = estimator.predict_interval(data, asked, coverage, method=method)
    n, q, c = mean.shape
    times = np.repeat(np.concatenate(asked), c)
    named = _named(estimator, [one for one in data.ids for _ in range(q * c)])
    named[estimator.time] = _dates(times, estimator.schema_, zone)
    answers = {"channel": list(estimator.schema_.channels) * (n * q)}
    return _beside(named, answers | {"mean": mean.ravel(), "low": low.ravel(), "high": high.ravel()})


def _out_of_reach(estimator: Any, data: Any, asked: Any) -> list[str]:
    """Remarks about asked times beyond the horizon or before the first observation."""
    import numpy as np

    ends = [(data.times(i)[0], data.times(i)[-1]) for i in range(len(data))]
    reach = estimator.horizon_ * (1 + 1e-9)
    total = sum(map(len, asked))
    beyond = sum(int(np.sum(times - last > reach)) for times, (_, last) in zip(asked, ends, strict=True))
    before = sum(int(np.sum(times < first)) for times, (first, _) in zip(asked, ends, strict=True))
    notes = []
    if beyond:
        span = f"{estimator.horizon_:g} {data.unit or ''}".rstrip()
        notes.append(f"{beyond} of {total} asked times lie beyond the horizon of {span}: nothing was learnt about them")
    if before and not estimator.smoothing:
        notes.append(f"{before} of {total} asked times lie before the first observation: nothing was known then")
    return notes


def _dates(times: Any, schema: Any, zone: str | None) -> Any:
    """Times as in the table: as dates, in its time zone, if it had dates."""
    import numpy as np
    import pyarrow as pa

    from tides.errors import DataError
    from tides.units import seconds_per

    if schema.origin is None:
        return np.rint(times).astype(np.int64) + schema.offset if schema.offset else times
    since = float(np.datetime64(schema.origin, "us").astype(np.int64)) * 1e-6
    seconds = times * seconds_per(schema.unit)
    if not ((since + seconds >= _YEARS[0]) & (since + seconds < _YEARS[1])).all():
        furthest = times[np.abs(times).argmax()]
        raise DataError(
            f"--at: {furthest:g} {schema.unit} after {schema.origin} is not a date between the years 1 and 9999"
        )
    # Nanoseconds of 64 bits end in 2262, and a float64 counts them for a few weeks.
    ends = max(abs(since), np.abs(since + seconds).max()) * 1e9 >= 2**63 - 1e12
    coarse = np.spacing(np.abs(seconds).max(initial=0.0)) * 4 > 1e-9
    unit, ticks = ("us", 1e6) if ends or coarse else ("ns", 1e9)
    origin: Any = np.array(schema.origin, f"datetime64[{unit}]")
    dates = pa.array(origin + np.round(seconds * ticks).astype(f"timedelta64[{unit}]"))
    return dates if zone is None else dates.cast(pa.timestamp(unit, zone))


def _write(columns: dict[str, Any], out: Path) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.feather
    import pyarrow.parquet

    from tides.atomic import atomic_write

    table = pa.table(columns)
    with atomic_write(out) as file:
        if out.suffix.lower() == ".csv":
            pyarrow.csv.write_csv(table, file)
        elif out.suffix.lower() == ".feather":
            pyarrow.feather.write_feather(table, file)
        else:
            pyarrow.parquet.write_table(table, file)
