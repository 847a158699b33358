"""Estimators on disk: the network as `tides.save` writes it, and `estimator.json` beside it. Never pickle."""

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tides.artefacts import load, save
from tides.data.schema import Schema
from tides.errors import DataError
from tides.records import write_json

if TYPE_CHECKING:
    from tides.estimators.base import TIDESEstimator

FORMAT = 1
FILE = "estimator.json"
_HOME = {"TIDESClassifier": "classifier", "TIDESRegressor": "regressor", "TIDESForecaster": "forecaster"}
# They belong to the machine and the run, not to what was learnt.
_LEFT_OUT = ("folder", "verbose", "device", "random_state")


def save_estimator(estimator: "TIDESEstimator", folder: Path) -> Path:
    """See `TIDESEstimator.save`. `estimator.json` comes last: a folder that has it is complete."""
    params = {name: value for name, value in estimator.get_params(deep=False).items() if name not in _LEFT_OUT}
    content = {
        "format": FORMAT,
        "estimator": type(estimator).__name__,
        "params": params,
        "schema": estimator.schema_.to_dict(),
        "static_features": list(estimator.schema_.static_names),
        **estimator._facts(),
    }
    try:
        content = json.loads(json.dumps(content))
    except TypeError as error:
        raise DataError(f"{FILE}: classes and parameters must be JSON to be saved: {error}") from None
    # An old description beside a new network would be a wrong one.
    (folder / FILE).unlink(missing_ok=True)
    save(estimator.model_, folder)
    write_json(folder / FILE, content)
    return folder


def load_estimator(folder: str | Path) -> "TIDESEstimator":
    """The estimator that `save` wrote to this folder, whichever it is."""
    facts = read_facts(folder)
    try:
        name = str(facts["estimator"])
        kind = getattr(import_module(f"tides.estimators.{_HOME[name]}"), name)
        estimator: TIDESEstimator = kind(**facts["params"])
        estimator.schema_ = Schema.from_dict(facts["schema"])
        estimator.model_ = load(folder)
        estimator._restore(facts)
    except (KeyError, TypeError) as error:
        raise DataError(f"{folder}: {FILE} does not describe an estimator: {error!r}") from error
    estimator.history_ = []
    return estimator


def read_facts(folder: str | Path) -> dict[str, Any]:
    """`estimator.json` of a folder."""
    path = Path(folder) / FILE
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{folder}: has no {FILE}; wanted a folder that `tides train` or `save` wrote") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise DataError(f"{path}: wanted an estimator of format {FORMAT}")
    return facts
