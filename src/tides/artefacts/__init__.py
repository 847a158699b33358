"""A model on disk: `config.json` beside `model.safetensors`, the layout model hubs expect; never pickle."""

from tides.artefacts.folder import load, register_model, save
from tides.artefacts.release import from_release

__all__ = ["from_release", "load", "register_model", "save"]
