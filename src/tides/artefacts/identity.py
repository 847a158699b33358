"""A model's fingerprint: equal exactly where architecture, weights and what is known of the data are equal."""

import hashlib
from collections.abc import Mapping
from typing import Any

from torch import nn

from tides.artefacts.folder import as_json, describe, named_tensors


def identify(model: nn.Module, metadata: Mapping[str, Any] | None = None) -> str:
    """SHA-256 over the model's description, every tensor of its state, and `metadata`; independent of the version of
    TIDES.
    """
    text = as_json({**describe(model), "metadata": dict(metadata or {})}, sort_keys=True)
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(named_tensors(model).items()):
        array = tensor.contiguous().numpy()
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
