"""No speed without correctness: a layer of the workload against the float64 reference, outputs and gradients."""

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tides import kernels
from tides.errors import TidesError
from tides.experiments.naive import NaiveSSM
from tides.nn import TIDESConfig
from tides.nn.ssm import SSM

# Crosses the chunk boundaries of every backend and is no multiple of anything.
_LENGTH = 131
_BATCH = 2
_FLOAT32 = (1e-5, 1e-4)
_FLOAT64 = (1e-9, 1e-9)


class ContractBroken(TidesError):
    """A backend computes something else than the definition, so its speed means nothing."""


class Errors(NamedTuple):
    """Largest deviations relative to the largest entry of each tensor, and the precision they were measured in."""

    forward: float
    gradient: float
    dtype: str


def check_contract(model: dict[str, Any], backend: str, device: str) -> Errors | None:
    """Raise `ContractBroken` where `backend` is wrong; None for models that have no reference to agree with.

    The naive model is checked in float64: in float32 its textbook ZOH cancels, as the release's does.
    """
    if backend in ("transformer", "rformer"):
        return None
    return _check(tuple(sorted(model.items())), backend, device)


@cache
def _check(model: tuple[tuple[str, Any], ...], backend: str, device: str) -> Errors:
    config = TIDESConfig(**dict(model))
    dtype = torch.float64 if backend == "naive" else torch.float32
    reference = _layer(config, SSM).double()
    inputs = _inputs(config.hidden_size)
    with kernels.use_backend("reference"):
        wanted = _run(reference, [x.double() for x in inputs])
    layer = _layer(config, NaiveSSM if backend == "naive" else SSM).to(device, dtype)
    with kernels.use_backend("reference" if backend == "naive" else backend):  # type: ignore[arg-type]
        found = _run(layer, [x.to(device, dtype) for x in inputs])
    errors = {name: _relative_error(found[name], value) for name, value in wanted.items()}
    forward, gradient = errors.pop("y"), max(errors.values())
    limits = _FLOAT64 if backend == "naive" else _FLOAT32
    if not (forward <= limits[0] and gradient <= limits[1]):
        worst = max(errors, key=lambda name: errors[name])
        raise ContractBroken(
            f"backend {backend!r} on {device}: output off by {forward:.1e} (allowed {limits[0]:.0e}), "
            f"gradient of {worst} by {gradient:.1e} (allowed {limits[1]:.0e})"
        )
    return Errors(forward, gradient, str(dtype).removeprefix("torch."))


def _layer(config: TIDESConfig, kind: type[SSM]) -> SSM:
    """A layer whose every weight has moved away from its start, rounded to float32."""
    torch.manual_seed(0)
    layer = kind(config)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return layer


def _inputs(width: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(2)
    u, cotangent = torch.randn(2, _BATCH, _LENGTH, width, generator=generator)
    return [u, 2 * torch.rand(_BATCH, _LENGTH, generator=generator), cotangent]


def _run(layer: SSM, inputs: list[Tensor]) -> dict[str, Tensor]:
    u, gaps, cotangent = inputs
    u, gaps = u.requires_grad_(), gaps.requires_grad_()
    y, _ = layer(u, gaps)
    named = {"u": u, "gaps": gaps, **dict(layer.named_parameters())}
    gradients = torch.autograd.grad((y * cotangent).sum(), list(named.values()))
    return {"y": y.detach(), **dict(zip(named, gradients, strict=True))}


def _relative_error(found: Tensor, wanted: Tensor) -> float:
    error = (found.detach().cpu().double() - wanted).abs().max() / wanted.abs().max().clamp_min(1e-300)
    value = float(error)
    return float("inf") if value != value else value
