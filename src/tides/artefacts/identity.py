"""A model's fingerprint: equal exactly where architecture, weights and what is known of the data are equal."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from torch import nn

from tides.artefacts.folder import describe
from tides.errors import ConfigError


def identify(model: nn.Module, metadata: Mapping[str, Any] | None = None) -> str:
    """SHA-256 over the model's description, every tensor of its state, and `metadata`; independent of the version."""
    content = {**describe(model), "metadata": dict(metadata or {})}
    try:
        text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    except TypeError as error:
        raise ConfigError(f"metadata: wanted what JSON can hold: {error}") from None
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(model.state_dict().items()):
        array = tensor.detach().cpu().contiguous().numpy()
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
