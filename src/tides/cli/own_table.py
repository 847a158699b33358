"""What `tides train`, `evaluate` and `predict` share: loading the estimator, and the last lines they print."""

from pathlib import Path
from typing import Any

from tides.errors import ConfigError


def estimator_of(folder: Path, *, ignore_new: bool) -> Any:
    """The estimator in a model folder; with `ignore_new` it leaves out what it does not know: columns, channels, and
    categories of static columns.
    """
    from tides.estimators.folder import load_estimator

    estimator: Any = load_estimator(folder)
    if ignore_new:
        estimator.channels, estimator.new_categories = list(estimator.schema_.channels), "missing"
    return estimator


def check_table(table: Path) -> None:
    """Fail before anything heavy is loaded."""
    if not table.exists():
        raise ConfigError(f"{table}: no such file")


def weighed_by(result: dict[str, Any], weight: str | None) -> str:
    """A remark about the weights of a result, if its series do not all count equally."""
    return f", weighed by {weight!r}" if result.get("weighed") else ""


def metric_lines(result: dict[str, Any]) -> list[str]:
    """Every metric with its interval, aligned."""
    rows = result["metrics"]
    width = max(map(len, rows))
    lines = []
    for name, (value, low, high) in rows.items():
        interval = f"  95 % interval {low:.4g} to {high:.4g}" if low is not None and low == low else ""
        shown = "undefined" if value is None or value != value else f"{value:.4g}"
        lines.append(f"  {name:<{width}}  {shown}{interval}")
    return lines


def write_page(record: dict[str, Any], folder: Path) -> str:
    """Write the report of a record, or say that matplotlib is missing."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        return 'no report: figures need matplotlib, pip install "tides-ssm[plots]"'
    from tides.reports.own_table import write_report

    return f"report: {write_report(record, folder)}"
