"""A model on disk: `config.json` beside `model.safetensors`, the layout model hubs expect; never pickle."""

from tides.artefacts.folder import load, read_metadata, register_model, save
from tides.artefacts.identity import identify
from tides.artefacts.release import from_release

__all__ = ["from_release", "identify", "load", "read_metadata", "register_model", "save"]
