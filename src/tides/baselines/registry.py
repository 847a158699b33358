"""Which baselines exist, by name. Models and their configurations are imported when one of them is asked for.

A name stands for a model class, its config class and the config fields that the name fixes (`linoss-im` and
`linoss-imex` are one class).
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from tides.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

    from tides.baselines.config import BaselineConfig

Task = Literal["classification", "forecasting"]


@dataclass(frozen=True)
class Entry:
    """Where a baseline lives: `module` of this room, the names of its model and config classes, what the name fixes."""

    task: Task
    module: str
    model: str
    config: str
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def model_class(self) -> "type[nn.Module]":
        kind: type[nn.Module] = getattr(import_module(f"tides.baselines.{self.module}"), self.model)
        return kind

    def config_class(self) -> "type[BaselineConfig]":
        kind: type[BaselineConfig] = getattr(import_module(f"tides.baselines.{self.module}"), self.config)
        return kind


_CLASSIFIERS = {
    "lru": Entry("classification", "lru", "LRU", "LRUConfig"),
    "s5": Entry("classification", "s5", "S5", "S5Config"),
    "s6": Entry("classification", "s6", "S6", "S6Config"),
    "mamba": Entry("classification", "mamba", "Mamba", "MambaConfig"),
    "linoss-im": Entry("classification", "linoss", "LinOSS", "LinOSSConfig", {"scheme": "im"}),
    "linoss-imex": Entry("classification", "linoss", "LinOSS", "LinOSSConfig", {"scheme": "imex"}),
    "d-linoss": Entry("classification", "linoss", "LinOSS", "LinOSSConfig", {"scheme": "damped"}),
    "transformer": Entry("classification", "transformer", "Transformer", "TransformerConfig"),
    "rformer": Entry("classification", "rformer", "RFormer", "RFormerConfig"),
    "ncde": Entry("classification", "ncde", "NCDE", "NCDEConfig"),
    "nrde": Entry("classification", "nrde", "NRDE", "NRDEConfig"),
    "log-ncde": Entry("classification", "log_ncde", "LogNCDE", "LogNCDEConfig"),
    "logsig-ssm": Entry("classification", "logsig_ssm", "LogSigSSM", "LogSigConfig"),
    "gru-d": Entry("classification", "gru_d", "GRUD", "GRUDConfig"),
    "class-prior": Entry("classification", "prior", "ClassPrior", "ClassificationConfig"),
}
_FORECASTERS = {
    "zero": Entry("forecasting", "trivial", "ZeroForecast", "ForecastConfig"),
    "last-value": Entry("forecasting", "trivial", "LastValueForecast", "ForecastConfig"),
    "observed-mean": Entry("forecasting", "trivial", "ObservedMeanForecast", "ForecastConfig"),
    "imts-mixer": Entry("forecasting", "imts_mixer", "IMTSMixer", "IMTSMixerConfig"),
    "grafiti": Entry("forecasting", "grafiti", "GraFITi", "GraFITiConfig"),
    "grafiti-c": Entry("forecasting", "grafiti", "GraFITiC", "GraFITiConfig"),
    "linodenet": Entry("forecasting", "linodenet", "LinODEnet", "LinODEnetConfig"),
    "cru": Entry("forecasting", "cru", "CRU", "CRUConfig"),
    "gru-ode-bayes": Entry("forecasting", "gru_ode_bayes", "GRUODEBayes", "GRUODEBayesConfig"),
    "neural-flow-resnet": Entry("forecasting", "neural_flow", "NeuralFlow", "NeuralFlowConfig", {"flow": "resnet"}),
    "neural-flow-gru": Entry("forecasting", "neural_flow", "NeuralFlow", "NeuralFlowConfig", {"flow": "gru"}),
    "neural-flow-coupling": Entry("forecasting", "neural_flow", "NeuralFlow", "NeuralFlowConfig", {"flow": "coupling"}),
    "mtan": Entry("forecasting", "mtan", "MTAN", "MTANConfig"),
    "latent-ode": Entry("forecasting", "latent_ode", "LatentODE", "LatentODEConfig"),
}
_ENTRIES = _CLASSIFIERS | _FORECASTERS


def names(task: Task | None = None) -> tuple[str, ...]:
    """All baselines, or those for one task."""
    return tuple(name for name, found in _ENTRIES.items() if task in (None, found.task))


def entry(name: str) -> Entry:
    """The registry's entry for `name`; an unknown name raises an error that suggests the nearest one."""
    if name not in _ENTRIES:
        nearest = difflib.get_close_matches(name, _ENTRIES, n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        raise ConfigError(f"baseline: found {name!r}, wanted one of {', '.join(_ENTRIES)}{hint}")
    return _ENTRIES[name]


def config_of(name: str, **fields: Any) -> "BaselineConfig":
    """The checked configuration of a baseline."""
    found = entry(name)
    for key, value in found.fixed.items():
        if fields.get(key, value) != value:
            raise ConfigError(f"{key}: found {fields[key]!r}, but {name} means {value!r}")
    return found.config_class().from_dict({**fields, **found.fixed})


def build(name: str, **fields: Any) -> "nn.Module":
    """A baseline with fresh weights: `build("lru", input_size=3, classes=5, hidden_size=64)`."""
    return entry(name).model_class()(config_of(name, **fields))


def describe(model: Any) -> dict[str, Any]:
    """JSON from which `restore` makes the same architecture (the contract of `artefacts.register_model`)."""
    kind: Any = type(model)
    for name, found in _ENTRIES.items():
        if kind.__name__ == found.model and kind is found.model_class():
            fields: dict[str, Any] = model.config.to_dict()
            if all(fields[key] == value for key, value in found.fixed.items()):
                return {"baseline": name, "config": fields}
    raise ConfigError(f"model: {kind.__name__} is not in the registry of baselines")


def restore(description: Mapping[str, Any]) -> "nn.Module":
    """The architecture that `describe` wrote down."""
    return build(description["baseline"], **description["config"])
