"""`tides train`: a model from your own table."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tides.cli import table_options as options

app = typer.Typer()

# Arguments of the estimators with an option of their own, besides the columns.
_OWN_OPTIONS = {"label": "label", "device": "device", "folder": "out"}


@app.command()
def train(
    table: options.Table,
    time: options.Time,
    out: Annotated[Path, typer.Option(help="Folder for the model; an interrupted run in it is resumed.")],
    id: options.Series = None,
    label: Annotated[str | None, typer.Option(help="Column of labels; ignored by forecasts.")] = None,
    task: Annotated[str, typer.Option(help="auto, classify, regress or forecast.")] = "auto",
    horizon: Annotated[str | None, typer.Option(help="Forecasts: how far ahead to learn, for example 24h.")] = None,
    cut: Annotated[
        str | None,
        typer.Option(help="Forecasts of few long series, or of one: learn from pieces this long, for example 7d."),
    ] = None,
    weight: Annotated[
        str | None, typer.Option(help="Column of weights: how much each series counts, in training and in the score.")
    ] = None,
    static: Annotated[
        str | None, typer.Option(help="Static columns, which describe a whole series, comma separated.")
    ] = None,
    channel: options.Channel = None,
    value: options.Value = None,
    channels: options.Channels = None,
    group: options.Group = None,
    unit: Annotated[str | None, typer.Option(help="Unit of time in which the model counts: s, min, h, d, …")] = None,
    duplicates: options.Duplicates = "error",
    unlabelled: options.Unlabelled = "error",
    test: Annotated[float, typer.Option(help="Share of the series held out for the final score.")] = 0.2,
    balanced: Annotated[bool, typer.Option("--balanced", help="Classes: give all classes the same weight.")] = False,
    smoothing: Annotated[bool, typer.Option("--smoothing", help="Forecasts: learn to fill in the past, too.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Set any argument of the estimator, as TOML, for example model.rank=8. Repeatable."),
    ] = None,
    own: Annotated[
        Path | None, typer.Option("--config", help="TOML file with such arguments, for example one chosen by a sweep.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, ...")] = "cpu",
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the split, the initial weights and the order of training.")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")] = False,
) -> None:
    """Train on your own table: classes, numbers or forecasts."""
    from tides.cli.own_table import check_table, metric_lines, weighed_by, write_page
    from tides.cli.words import listed
    from tides.errors import ConfigError, DataError, TidesError
    from tides.experiments.config import parse_settings, put, read_toml
    from tides.records import environment, json_text, timestamp, write_json

    check_table(table)
    if task not in ("auto", "classify", "regress", "forecast"):
        raise ConfigError(f"--task: found {task!r}, wanted auto, classify, regress or forecast")
    if task == "auto" and label is None:
        task = "forecast"
    if task == "forecast" and horizon is None:
        raise ConfigError("--horizon: a forecast needs one, such as 24h; to classify or regress, name the --label")
    if task != "forecast" and label is None:
        raise ConfigError(f"--label: --task {task} needs a column of labels")
    if id is None and (cut is None or task != "forecast"):
        raise ConfigError("--id: wanted the column that names the series; a table that is one long series needs --cut")
    if not 0 <= test < 1:
        raise ConfigError(f"--test: found {test}, wanted a share from 0 up to, not including, 1")

    given = {} if own is None else read_toml(own, "--config ")
    for name, setting in parse_settings(settings or []).items():
        put(given, name, setting)

    from rich.console import Console

    from tides.data.summary import describe
    from tides.estimators.inputs import Columns, read_series
    from tides.estimators.recipe import hold_out
    from tides.estimators.scorecard import scorecard
    from tides.training import is_first_process

    roles: dict[str, Any] = {"id": id, "time": time, "channel": channel, "value": value, "channels": listed(channels)}
    roles |= {"static": listed(static), "weight": weight, "group": group, "unit": unit, "duplicates": duplicates}
    roles |= {"unlabelled": unlabelled}
    columns = Columns(**{**roles, "static": tuple(roles["static"] or ())}, label=label, layout=None, cut=cut)
    with Console(stderr=True).status(f"reading {table.name}"):
        kind: Any = {"classify": "class", "regress": "number"}.get(task, "auto")
        labels: Any = "ignored" if task == "forecast" else "required"
        data = read_series(table, None, columns, labels=labels, label_kind=kind, schema=None, weights=True)
        notes = describe(data).notes
    if task == "auto":
        task = "regress" if data.class_names is None else "classify"
    options = roles | {"folder": out / "training", "device": device, "random_state": seed, "verbose": not as_json}
    for name in given:
        if name in roles or name in _OWN_OPTIONS:
            raise ConfigError(f"--set or --config, {name}: wanted --{_OWN_OPTIONS.get(name, name)}, its own option")
    options |= given
    estimator = _estimator(task, options, label, horizon, cut, balanced=balanced, smoothing=smoothing)
    try:
        train_part, test_part, latest = hold_out(data, test, seed, cut)
    except DataError as error:
        raise ConfigError(f"--test {test:g}: {error}; choose another share, or 0 to train on all series") from error
    if is_first_process():
        for note in notes:
            print(f"tides: note: {note}", file=sys.stderr)
    estimator.fit(train_part)
    if not is_first_process():
        return
    estimator.save(out)
    try:
        result = None if test_part is None else scorecard(estimator, test_part)
    except TidesError as error:
        raise TidesError(f"{error}. The model is in {out}, without a score; `tides evaluate` scores it") from error
    parts = estimator.series_ | {"test": 0 if test_part is None else len(test_part)}
    # Series that count for nothing, or have nothing to forecast.
    rest = len(train_part) + len(test_part or ()) - sum(parts.values())
    record = {
        "record": "own-table",
        "table": table.name,
        "data": _facts(data),
        "notes": notes,
        "split": parts | ({"left out": rest} if rest else {}),
        "parameters": estimator.model_.count_parameters(),
        "seconds": estimator.seconds_,
        "best_epoch": estimator.best_epoch_,
        "history": estimator.history_,
        "result": result,
        "environment": environment(),
        "finished": timestamp(),
    }
    write_json(out / "record.json", record)
    page = write_page(record, out / "report")
    if as_json:
        shown = {key: entry for key, entry in record.items() if key not in ("history", "result")}
        print(json_text(shown | {"metrics": (record["result"] or {}).get("metrics"), "model": str(out)}))
        return
    _print(record, task, estimator, out)
    if record["result"] is not None:
        kind = "series" if cut is None else "pieces, the latest of each series," if latest else "pieces of series"
        print(f"on {len(test_part or ())} {kind} that were kept apart{weighed_by(record['result'], weight)}:")
        print("\n".join(metric_lines(record["result"])))
    print(f"model: {out}\n{page}")


def _estimator(
    task: str,
    options: dict[str, Any],
    label: str | None,
    horizon: str | None,
    cut: str | None,
    *,
    balanced: bool,
    smoothing: bool,
) -> Any:
    import difflib

    from tides.errors import ConfigError
    from tides.estimators import TIDESClassifier, TIDESForecaster, TIDESRegressor

    kind: Any = {"classify": TIDESClassifier, "regress": TIDESRegressor, "forecast": TIDESForecaster}[task]
    for option, given, wanted in (
        ("--horizon", horizon is not None, "forecast"),
        ("--cut", cut is not None, "forecast"),
        ("--smoothing", smoothing, "forecast"),
        ("--balanced", balanced, "classify"),
    ):
        if given and task != wanted:
            raise ConfigError(f"{option}: belongs to --task {wanted}, found {task}; leave it out, or name that task")
    options["label"] = label
    if task == "classify":
        options |= {"class_weight": "balanced"} if balanced else {}
    elif task == "forecast":
        options |= {"horizon": horizon, "cut": cut} | ({"smoothing": True} if smoothing else {})
    known = kind().get_params()
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            guess = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"--set or --config, {name}: not an argument of {kind.__name__}{guess}")
    return kind(**options)


def _facts(data: Any) -> dict[str, Any]:
    return {
        "series": len(data),
        "steps": int(data.lengths.sum()),
        "channels": list(data.channels),
        "static": list(data.static_names),
        "unit": data.unit,
        "median_gap": data.median_gap(),
        "class_names": data.class_names,
    }


def _print(record: dict[str, Any], task: str, estimator: Any, out: Path) -> None:
    facts, split = record["data"], record["split"]
    unit = facts["unit"] or "(no unit)"
    print(
        f"{record['table']}: {facts['series']} series, {facts['steps']} steps, {len(facts['channels'])} channels, "
        f"median gap {facts['median_gap']:.4g} {unit}"
    )
    print(f"{type(estimator).__name__}, {record['parameters']} parameters")
    parts = ", ".join(f"{count} {name}" for name, count in split.items() if count)
    print(
        f"series: {parts}; {len(record['history'])} epochs in {record['seconds']:.0f} s, "
        f"best epoch {record['best_epoch']}"
    )
