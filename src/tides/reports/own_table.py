"""The page of a model that was trained or scored on a user's own table, drawn from its record alone."""

from pathlib import Path
from typing import Any

import numpy as np

from tides.atomic import atomic_write
from tides.reports import own_table_figures as figures
from tides.reports.page import heading, page, paragraph, picture
from tides.reports.table import Table


def write_report(record: dict[str, Any], folder: Path) -> Path:
    """Write `index.html` and its figures to `folder`."""
    parts = [paragraph(_opening(record))]
    result = record.get("result")
    if result is not None:
        parts += [heading("Score"), _metrics(result)]
        parts += _SECTIONS[result["task"]](result, record, folder)
    if record.get("history"):
        image = figures.learning(record["history"], record["best_epoch"], folder)
        parts += [heading("Learning"), picture(image, "Loss by epoch", _LEARNING)]
    machine = record["environment"]
    footer = (
        f"{record['finished']}; tides {machine['tides-ssm']}, torch {machine['torch']}, Python {machine['python']}."
    )
    path = folder / "index.html"
    with atomic_write(path) as file:
        file.write(page(f"TIDES on {record['table']}", parts, footer).encode())
    return path


def _opening(record: dict[str, Any]) -> str:
    data, split = record["data"], record.get("split")
    if split is None:
        return f"A trained model, scored on {record['result']['series']} series of `{record['table']}`."
    parts = ", ".join(f"{count} {name}" for name, count in split.items() if count)
    unit = f" {data['unit']}" if data["unit"] else ""
    return (
        f"`{record['table']}`: {data['series']} series, {data['steps']} steps, {len(data['channels'])} channels "
        f"({', '.join(data['channels'][:8])}{', …' if len(data['channels']) > 8 else ''}), median gap "
        f"{data['median_gap']:.4g}{unit}. Series: {parts}. The network has {record['parameters']} parameters; training "
        f"took {record['seconds']:.0f} s."
    )


def _metrics(result: dict[str, Any]) -> str:
    rows = []
    for name, (value, low, high) in result["metrics"].items():
        interval = "" if low is None or high is None else f"{low:.4g} to {high:.4g}"
        rows.append([name, "undefined" if value is None else f"{value:.4g}", interval])
    weighed = " They count by their weights." if result.get("weighed") else ""
    caption = f"{result['series']} series that were not used in training.{weighed} Intervals resample whole series."
    return Table(["metric", "value", "95 % interval"], rows, caption).to_html()


def _classification(result: dict[str, Any], record: dict[str, Any], folder: Path) -> list[str]:
    truth, probabilities = np.array(result["truth"], np.int64), np.array(result["probabilities"], np.float64)
    classes = result["classes"]
    confused = figures.confusion(truth, probabilities.argmax(axis=1), classes, folder)
    ranked = figures.ranking(truth, probabilities, classes, folder)
    reliable = figures.reliability(truth, probabilities, classes, folder)
    return [
        heading("Classes"),
        picture(confused, "Confusion matrix", "Rows: true classes, columns: predicted ones; colour: share of the row."),
        picture(ranked, "ROC and precision-recall curves", _RANKING),
        heading("Probabilities"),
        picture(reliable, "Reliability diagram", _RELIABILITY),
    ]


def _regression(result: dict[str, Any], record: dict[str, Any], folder: Path) -> list[str]:
    image = figures.numbers(np.array(result["truth"]), np.array(result["predicted"]), folder)
    return [heading("Numbers"), picture(image, "Predicted against true numbers", "Left: each point is a series.")]


def _forecast(result: dict[str, Any], record: dict[str, Any], folder: Path) -> list[str]:
    unit = f" ({record['data']['unit']})" if record["data"].get("unit") else ""
    rows = [
        [name, "" if rmse is None else f"{rmse:.4g}"]
        for name, rmse in zip(result["channels"], result["rmse"], strict=True)
    ]
    parts = [Table(["channel", "RMSE"], rows, "Root mean squared error in each channel's own unit.").to_html()]
    parts += [heading("Forecasts"), picture(figures.forecasts(result, unit, folder), "Forecasts", _FORECASTS)]
    if result["by_lead"]:
        parts.append(picture(figures.leads(result, unit, folder), "Error and coverage by lead", _LEADS))
    return parts


_SECTIONS = {"classification": _classification, "regression": _regression, "forecast": _forecast}
_LEARNING = "Training stops when validation has not improved for a while; the weights of the best epoch are kept."
_RANKING = "One class against the rest. Dashed and dotted lines: what guessing would give."
_RELIABILITY = (
    "Points below the diagonal: the model is too sure of itself. Below: how many series each point stands for."
)
_FORECASTS = (
    "Random origins (dotted line) of series that were kept apart: what was known, the forecast up to the horizon with "
    "its interval, and what came."
)
_LEADS = "Left: error, with the last known value as a yardstick. Right: share of values inside their interval."
