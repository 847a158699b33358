"""The numbers of `paper_numbers.toml`, and the settings that are shipped with baselines."""

import tomllib
from functools import cache
from importlib import resources
from typing import Any


@cache
def published(experiment: str) -> dict[str, Any]:
    """Everything known about one experiment: protocol, values, source."""
    text = (resources.files("tides.reports") / "paper_numbers.toml").read_text(encoding="utf-8")
    found: dict[str, Any] = tomllib.loads(text)[experiment]
    return found


@cache
def shipped(model: str, dataset: str) -> dict[str, Any]:
    """The tables `model` and `train` of a baseline's settings for a data set; nothing where none are shipped."""
    file = resources.files("tides.baselines") / "settings" / f"{model}.toml"
    if not file.is_file():
        return {}
    found: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8")).get(dataset, {})
    return found
