"""The backends under test: every pair of a backend and the device it runs on."""

from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
import torch

from tides.errors import BackendUnavailable
from tides.kernels import use_backend
from tides.kernels.dispatch import _module


class Target(NamedTuple):
    """A backend and the device of its tensors."""

    backend: str
    device: str

    def __str__(self) -> str:
        return f"{self.backend}-{self.device}"


ON_CPU = [Target("torch", "cpu"), Target("cpu", "cpu")]
ON_GPU = [Target("torch", "cuda"), Target("triton", "cuda")]


def over_targets(*extra: Target) -> pytest.MarkDecorator:
    """Parametrise a test with `target` over all backends; those on a GPU are marked `gpu`."""
    params = [pytest.param(target, id=str(target)) for target in (*extra, *ON_CPU)]
    params += [pytest.param(target, id=str(target), marks=pytest.mark.gpu) for target in ON_GPU]
    return pytest.mark.parametrize("target", params)


@contextmanager
def running(target: Target) -> Any:
    """Run on `target`, or skip with the reason where it is not installed."""
    if target.device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    if target.backend != "reference":
        try:
            _module(target.backend)
        except ImportError as error:
            pytest.skip(f"backend {target.backend!r} is not installed: {error}")
    try:
        with use_backend(target.backend):
            yield
    except BackendUnavailable as refusal:
        if target.backend == "triton" and "float32" in str(refusal):
            pytest.skip(str(refusal))
        raise
