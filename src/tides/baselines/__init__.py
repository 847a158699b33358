"""Competing models under the call contract of `nn`, built by name: `build("lru", input_size=3, classes=5)`."""

from tides.baselines.registry import Entry, build, config_of, describe, entry, names

__all__ = ["Entry", "build", "config_of", "describe", "entry", "names"]
