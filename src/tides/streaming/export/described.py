"""The parts of a model and its kind of answer, in the form that every export uses."""

from typing import Literal, NamedTuple

from torch import nn

from tides.artefacts.release import StepwiseForecaster
from tides.errors import ConfigError
from tides.kernels.stepping import StepModel
from tides.nn import Backbone, Forecaster, SequenceClassifier, SequenceRegressor
from tides.nn.checks import check_model_dtype
from tides.nn.compiled_step import describe_head, describe_model

Kind = Literal["features", "every_step", "pooled", "readout", "query_steps"]
_MODELS = (Backbone, SequenceClassifier, SequenceRegressor, Forecaster, StepwiseForecaster)


class Described(NamedTuple):
    """Tensors, the backbone they come from, and the kind of answers the model gives."""

    model: StepModel
    backbone: Backbone
    kind: Kind


def describe(model: nn.Module, *, causal: bool = True) -> Described:
    """`model` for an export; an error says why if it cannot be exported. `causal`: it must answer step by step."""
    # Exactly these classes: a child of one may answer in another way than the export does.
    if type(model) not in _MODELS:
        names = ", ".join(kind.__name__ for kind in _MODELS)
        raise ConfigError(f"model: found {type(model).__name__}, wanted one of {names}")
    if model.training:
        raise ConfigError("model: found training mode, wanted model.eval(): a stream has no batch statistics")
    backbone = model if isinstance(model, Backbone) else model.backbone
    assert isinstance(backbone, Backbone)
    check_model_dtype(backbone.calibration.shift)
    if causal:
        backbone.require_causal("be exported as a step")
    if isinstance(model, SequenceClassifier | SequenceRegressor):
        if model.static_size:
            raise ConfigError(
                "static_size: static covariates have no place among the observations of an export; "
                "train with these columns as channels, which never change"
            )
        kind: Kind = "every_step" if model.config.pool == "last" else "pooled"
        return Described(describe_model(model), backbone, kind)
    if isinstance(model, Backbone):
        return Described(describe_model(backbone), backbone, "features")
    kind = "every_step"
    if isinstance(model, Forecaster):
        kind = "readout" if model.query_mode == "readout" else "query_steps"
    return Described(describe_model(backbone)._replace(head=describe_head(model)), backbone, kind)
