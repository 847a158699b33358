"""Published configurations of baselines per dataset, as shipped in `settings/<name>.toml`."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from tides.baselines.registry import entry
from tides.errors import ConfigError


@dataclass(frozen=True)
class Published:
    """One published run: fields of the model's config, settings of its training, and what was reported of it."""

    protocol: str
    """Splits and selection: `walker` (five seeds, validation accuracy), `rformer` (last epoch), `logsig-ssm`."""
    model: Mapping[str, Any]
    """Everything but `input_size` and `classes`."""
    train: Mapping[str, Any]
    parameters: int | None = None
    """The reported number of parameters, in the original's way of counting."""


def datasets(name: str) -> tuple[str, ...]:
    """The datasets for which a configuration of this baseline was published."""
    return tuple(_read(name))


def published(name: str, dataset: str) -> Published:
    """The published configuration; a dataset without one raises `ConfigError`."""
    found = _read(name)
    if dataset not in found:
        known = ", ".join(found) or "none"
        raise ConfigError(f"dataset: found {dataset!r}, but configurations of {name} were published for: {known}")
    return Published(**found[dataset])


def _read(name: str) -> dict[str, Any]:
    entry(name)
    file = resources.files("tides.baselines") / "settings" / f"{name}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
