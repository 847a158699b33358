"""The numbers of `paper_numbers.toml`."""

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
