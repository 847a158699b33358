"""Faces in the manner of scikit-learn: `TIDESClassifier`, `TIDESRegressor`, `TIDESForecaster`.

`estimator.save(folder)` writes a folder that `tides.load(folder)` reads too (the network alone), with three files:

- `config.json`, `model.safetensors`: the network as `tides.save` writes it. Channel scales, time scale, first gap,
  scales of static covariates and of outputs are buffers of the network: it takes raw values and times in `unit`.
- `estimator.json`: what the numbers mean.

    format      1
    estimator   "TIDESClassifier" | "TIDESRegressor" | "TIDESForecaster"
    params      the constructor's arguments; columns of the table among them: id, time, label, channel, value, static
    schema      channels (order of the input), unit, origin (date of time 0, ISO 8601, or null), class_names,
                static: [{name, categories or null, ordinal}]; offset (the number of time 0) where there is one
    static_features   names of the encoded static features in order; [] without. Numbers are themselves, a category is
                a one-hot block; NaN = not recorded. Classifier and regressor take them as `static=`, a forecaster
                as further input channels behind `channels` in every row
    fit         best_epoch, n_iter (epochs trained), series (how many trained, validated, calibrated), and for matrices
                n_features_in; absent in folders of earlier versions
    classes     classifier: the class behind each logit (numbers, truth values or text)
    targets     regressor: the number of outputs; null where y had one axis
    horizon     forecaster: how far ahead it was trained, in `unit`
    gaussian    forecaster: true if the network answers with 2c numbers, c means and then c raw spreads, with
                standard deviation = (softplus(raw) + 1e-3) · spread_scale (`training.Forecasting.moments`)
    spread_scale   forecaster: c numbers
    stretch     forecaster: c factors by which `gaussian` intervals widen the standard deviation
    conformal   forecaster: for each channel the sorted scores |y − mean| / standard deviation (|y − mean| /
                spread_scale unless `gaussian`) of the calibration series
    calibration_series   forecaster: their number; 0 = no intervals but the network's own
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tides.estimators.classifier import TIDESClassifier
    from tides.estimators.folder import load_estimator
    from tides.estimators.forecaster import TIDESForecaster
    from tides.estimators.regressor import TIDESRegressor

_HOME = {
    "TIDESClassifier": "classifier",
    "TIDESForecaster": "forecaster",
    "TIDESRegressor": "regressor",
    "load_estimator": "folder",
}

__all__ = ["TIDESClassifier", "TIDESForecaster", "TIDESRegressor", "load_estimator"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"tides.estimators.{_HOME[name]}"), name)
    raise AttributeError(f"module 'tides.estimators' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
