"""Saving and loading model folders. Weights, running statistics, scales and time unit travel together."""

import hashlib
import json
from collections.abc import Callable
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as deserialise
from safetensors.torch import save as serialise
from torch import nn

from tides.atomic import atomic_write
from tides.errors import ConfigError, DataError
from tides.nn import Backbone, Forecaster, SequenceClassifier, SequenceRegressor, TIDESConfig
from tides.records import environment

FORMAT = 1
_CONFIG, _WEIGHTS = "config.json", "model.safetensors"
# Where `torch.compile` keeps the module that it was given.
_COMPILED = "_orig_mod"
_DTYPES = {"float32": torch.float32, "float64": torch.float64}

# Models of rooms that are not imported until one of their models is saved or loaded: name → module with `describe`
# and `restore`.
_ELSEWHERE = {"baseline": "tides.baselines.registry"}

_describe: dict[type[nn.Module], tuple[str, Callable[[Any], dict[str, Any]]]] = {}
_build: dict[str, Callable[[dict[str, Any]], nn.Module]] = {}


def register_model(
    name: str,
    kind: type[nn.Module],
    describe: Callable[[Any], dict[str, Any]],
    build: Callable[[dict[str, Any]], nn.Module],
) -> None:
    """Make a model class savable: `describe(model)` gives JSON from which `build` makes the same architecture again."""
    _describe[kind] = (name, describe)
    _build[name] = build


def save(model: nn.Module, folder: str | Path, *, metadata: dict[str, Any] | None = None) -> Path:
    """Write `model` to `folder`. `metadata` (channel names, classes, units, …) must be JSON; `read_metadata` returns
    it.

    Each file is written under another name and then renamed, and the config holds a digest of the weights, so `load`
    refuses a folder that was only half replaced. A model in which a part was replaced raises `ConfigError`, because
    `load` could not build it again.
    """
    description, tensors = describe(model), named_tensors(model)
    _check_what_is_built_again(model, description, tensors)
    weights = serialise({key: tensor.contiguous() for key, tensor in tensors.items()})
    config = {
        "format": FORMAT,
        "tides_version": environment()["tides-ssm"],
        **description,
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
        "metadata": metadata or {},
    }
    text = as_json(config, indent=2) + "\n"
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # Not by safetensors' own `save_file`, whose files only their owner can read.
    with atomic_write(folder / _WEIGHTS) as file:
        file.write(weights)
    with atomic_write(folder / _CONFIG) as file:
        file.write(text.encode())
    return folder


def load(folder: str | Path, *, device: str | torch.device = "cpu") -> nn.Module:
    """The model that `save` wrote, in evaluation mode."""
    config = _read_config(Path(folder))
    model = _build_model(config, str(folder))
    try:
        weights = (Path(folder) / _WEIGHTS).read_bytes()
        tensors = deserialise(weights)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{folder}: {_WEIGHTS} cannot be read: {error}") from error
    # Folders of earlier versions hold no digest.
    if config.get("weights_sha256") not in (None, hashlib.sha256(weights).hexdigest()):
        raise DataError(
            f"{folder}: {_WEIGHTS} is not the file that {_CONFIG} was written with: saving over this folder was "
            "interrupted, or one of them was replaced; save the model again"
        )
    different = _different(model.state_dict(), tensors)
    if different:
        raise DataError(f"{folder}: {_WEIGHTS} does not fit {_CONFIG}; first difference at {different[0]!r}")
    model.load_state_dict(tensors)
    return model.to(device).eval()


def named_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """A model's state on the CPU, under the same names whether or not parts of it are compiled."""
    return {key.replace(f"{_COMPILED}.", ""): tensor.detach().cpu() for key, tensor in model.state_dict().items()}


def describe(model: nn.Module) -> dict[str, Any]:
    """Kind, precision and architecture of a model as JSON, without its weights."""
    model = getattr(model, _COMPILED, model)
    name, fields = _format(model)
    # A predictor without parameters has the dtype of its first buffer.
    dtype = str(next(chain(model.parameters(), model.buffers())).dtype).removeprefix("torch.")
    if dtype not in _DTYPES:
        # `load` would refuse what was written.
        raise ConfigError(
            f"model: found parameters in {dtype}, wanted {' or '.join(_DTYPES)}: call model.float() first"
        )
    return {"model": name, "dtype": dtype, **fields(model)}


def _check_what_is_built_again(model: nn.Module, description: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    """Raise if a part was replaced: the description does not show it, so `load` would build the original part."""
    # Building draws random weights; saving must not change the caller's random numbers.
    with torch.random.fork_rng(devices=[]):
        again = _build_model(json.loads(as_json(description)), "model")
    found, wanted = _parts(model), _parts(again)
    replaced = sorted(part for part in {*found, *wanted} if found.get(part) is not wanted.get(part))
    different = replaced or _different(again.state_dict(), tensors)
    if different:
        raise ConfigError(
            f"model: {different[0]!r} differs from what `load` would build from {_CONFIG}: a part was replaced. Give "
            "the model a class of its own and register it (artefacts.register_model)"
        )


def _parts(model: nn.Module) -> dict[str, type[nn.Module]]:
    """The class of every module inside the model, by its name in a model without compiled parts."""
    parts = {}
    for name, module in model.named_modules():
        parts[".".join(word for word in name.split(".") if word != _COMPILED)] = type(module)
    del parts[""]
    return parts


def _different(expected: dict[str, torch.Tensor], tensors: dict[str, torch.Tensor]) -> list[str]:
    """Names of tensors that only one of them has, or that differ in shape."""
    return sorted(expected.keys() ^ tensors.keys()) or sorted(
        key for key, tensor in expected.items() if tensor.shape != tensors[key].shape
    )


def as_json(description: dict[str, Any], **options: Any) -> str:
    """A model's description as JSON text, with the caller's own facts under "metadata"."""
    try:
        return json.dumps(description, ensure_ascii=False, **options)
    except TypeError as error:
        raise ConfigError(f"metadata: wanted what JSON can hold: {error}") from None


def _format(model: nn.Module) -> tuple[str, Callable[[Any], dict[str, Any]]]:
    """Under which name a model is saved, and the function that describes it."""
    if type(model) in _describe:
        return _describe[type(model)]
    for name, module in _ELSEWHERE.items():
        if type(model).__module__.startswith(f"{module.rpartition('.')[0]}."):
            return name, import_module(module).describe
    raise ConfigError(f"model: {type(model).__name__} has no registered format; see artefacts.register_model")


def _build_model(config: dict[str, Any], where: str) -> nn.Module:
    name, dtype = str(config.get("model")), _DTYPES.get(str(config.get("dtype")))
    if name in _ELSEWHERE:
        _build[name] = import_module(_ELSEWHERE[name]).restore
    if name not in _build:
        raise DataError(f"{where}: found model {name!r}, wanted one of {', '.join(sorted({*_build, *_ELSEWHERE}))}")
    if dtype is None:
        raise DataError(f"{where}: found dtype {config.get('dtype')!r}, wanted one of {', '.join(_DTYPES)}")
    try:
        return _build[name](config).to(dtype)
    except (AttributeError, KeyError, TypeError) as error:
        raise DataError(f"{where}: {_CONFIG} does not describe a {name}: {error!r}") from error


def read_metadata(folder: str | Path) -> dict[str, Any]:
    """What was passed to `save` as `metadata`."""
    metadata: dict[str, Any] = _read_config(Path(folder)).get("metadata", {})
    return metadata


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / _CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        found = f"it holds no {_CONFIG}" if folder.is_dir() else "no such folder"
        raise DataError(f"{folder}: {found}; wanted a model folder, as `tides.save` writes it") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as a model's config: {error}") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise DataError(f"{path}: wanted a TIDES model of format {FORMAT}")
    return config


def _config_of(model: Any) -> dict[str, Any]:
    return {"config": model.config.to_dict()}


def _read(config: dict[str, Any]) -> TIDESConfig:
    fields = config["config"]
    if not isinstance(fields, dict):
        raise TypeError(f"config is {fields!r}")
    return TIDESConfig.from_dict(fields)


register_model(
    "backbone",
    Backbone,
    lambda model: _config_of(model) | {"query_channel": model.query_channel},
    lambda config: Backbone(_read(config), query_channel=config["query_channel"]),
)
register_model(
    "sequence-classifier",
    SequenceClassifier,
    lambda model: _config_of(model) | {"classes": model.classes, "static_size": model.static_size},
    lambda config: SequenceClassifier(_read(config), config["classes"], static_size=config["static_size"]),
)
register_model(
    "sequence-regressor",
    SequenceRegressor,
    lambda model: _config_of(model) | {"targets": model.targets, "static_size": model.static_size},
    lambda config: SequenceRegressor(_read(config), config["targets"], static_size=config["static_size"]),
)
register_model(
    "forecaster",
    Forecaster,
    lambda model: _config_of(model) | {"channels": model.channels, "query_mode": model.query_mode},
    lambda config: Forecaster(_read(config), config["channels"], config["query_mode"]),
)
