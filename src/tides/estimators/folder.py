"""Estimators on disk: the network as `tides.save` writes it, and `estimator.json` beside it. Never pickle."""

import json
from collections.abc import Mapping
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from tides.artefacts import load, save
from tides.data.schema import Schema
from tides.errors import DataError
from tides.records import write_json
from tides.units import duration_in

if TYPE_CHECKING:
    from tides.estimators.base import TIDESEstimator

FORMAT = 1
FILE = "estimator.json"
_HOME = {"TIDESClassifier": "classifier", "TIDESRegressor": "regressor", "TIDESForecaster": "forecaster"}
# These belong to the machine and the run, not to the model.
_LEFT_OUT = ("folder", "verbose", "device", "random_state")
# Optional results of a fit, besides the network.
_OF_THE_FIT = ("best_epoch", "n_iter", "series", "n_features_in", "feature_names_in")


def save_estimator(estimator: "TIDESEstimator", folder: Path) -> Path:
    """See `TIDESEstimator.save`. `estimator.json` comes last: a folder that has it is complete.

    A child of one of our estimators is saved as its parent, with the parent's parameters.
    """
    kind: Any = next(kind for kind in type(estimator).__mro__ if kind.__name__ in _HOME)
    params = {name: getattr(estimator, name) for name in kind._get_param_names() if name not in _LEFT_OUT}
    if isinstance(params.get("class_weight"), Mapping):
        # Keys of JSON are text, classes need not be.
        params["class_weight"] = list(params["class_weight"].items())
    content = {
        "format": FORMAT,
        "estimator": kind.__name__,
        "params": params,
        "schema": estimator.schema_.to_dict(),
        "static_features": list(estimator.schema_.static_names),
        "fit": {name: getattr(estimator, f"{name}_") for name in _OF_THE_FIT if hasattr(estimator, f"{name}_")},
        **estimator._facts(),
    }
    try:
        content = json.loads(json.dumps(content, default=_plain))
    except TypeError as error:
        raise DataError(f"{FILE}: classes and parameters must be JSON to be saved: {error}") from None
    # An old description must not remain beside a new network.
    (folder / FILE).unlink(missing_ok=True)
    save(estimator.model_, folder)
    write_json(folder / FILE, content)
    return folder


def load_estimator(folder: str | Path) -> "TIDESEstimator":
    """The estimator that `save` wrote to this folder, of whichever class."""
    facts = read_facts(folder)
    try:
        name = str(facts["estimator"])
        kind = getattr(import_module(f"tides.estimators.{_HOME[name]}"), name)
        params = facts["params"]
        if isinstance(params.get("class_weight"), list):
            params = params | {"class_weight": dict(params["class_weight"])}
        estimator: TIDESEstimator = kind(**params)
        estimator.schema_ = Schema.from_dict(facts["schema"])
        estimator.model_ = _network(estimator, facts, folder)
        estimator._restore(facts)
        # Folders of earlier versions do not have them.
        for fact, value in facts.get("fit", {}).items():
            setattr(estimator, f"{fact}_", np.array(value, object) if fact == "feature_names_in" else value)
    except (AttributeError, KeyError, TypeError) as error:
        raise DataError(f"{folder}: {FILE} does not describe an estimator: {error!r}") from error
    estimator.history_ = []
    return estimator


def _network(estimator: "TIDESEstimator", facts: dict[str, Any], folder: str | Path) -> nn.Module:
    """The network in the folder, which must be the one that `estimator.json` describes."""
    network = load(folder)
    wanted, width = estimator._network_kind, estimator._width(facts)
    if not isinstance(network, wanted):
        raise DataError(f"{folder}: found the network of a {type(network).__name__}, wanted a {wanted.__name__}")
    head: Any = network.head
    if head.out_features != width:
        raise DataError(f"{folder}: the network answers with {head.out_features} numbers, {FILE} names {width}")
    return network


def _plain(value: Any) -> Any:
    """Turn parameters that JSON does not know into plain ones: numpy numbers and arrays, indexes, durations."""
    if isinstance(value, (timedelta, np.timedelta64)):
        return f"{duration_in(value, 's')!r}s"
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"found {value!r} ({type(value).__name__})")


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
