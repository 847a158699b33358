"""Small models of every kind, with weights and scales away from their start."""

from typing import Any

import pytest
import torch

from tides.nn import Backbone, Forecaster, SequenceClassifier, SequenceRegressor, TIDESConfig

SMALL = {"input_size": 2, "hidden_size": 5, "state_size": 4, "rank": 3, "depth": 2, "projector_init": "random"}

VARIANTS: list[dict[str, Any]] = [
    {},
    {"variant": "s5"},
    {"variant": "s5", "conjugate": True},
    {"variant": "tides-lambda", "conjugate": True},
    {"variant": "tides-bc", "rank": 1},
    {"variant": "tides-full", "decay_depth": 2},
    {"variant": "mamba-s"},
    {"rank": "full"},
    {"rank": "diag"},
    {"rank": "diag", "projector_norm": False},
    {"projector_norm": False},
    {"discretisation": "bilinear"},
    {"discretisation": "dirac"},
    {"hold": "preceding"},
    {"hold": "preceding", "discretisation": "bilinear"},
    {"hold": "preceding", "discretisation": "dirac"},
    {"hold": "preceding", "variant": "mamba-s"},
    {"reparam": "stable", "clip": 0.5},
    {"reparam": "softplus"},
    {"reparam": "standard", "clip": 0.1},
    {"norm": "layer"},
    {"norm": "rms"},
    {"encoder_depth": 2, "mask_channels": True},
    {"expand": 2.5},
    {"expand": 0.0, "compat": "release"},
]


def tiers(cases: list[Any], fast: int) -> list[Any]:
    """Every `fast`-th case as it is, the others for the slow tests."""
    return [case if k % fast == 0 else _slow(case) for k, case in enumerate(cases)]


def _slow(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)


def make(kind: str, dtype: torch.dtype = torch.float64, seed: int = 0, **options: Any) -> Any:
    """A backbone, classifier, regressor or forecaster (`steps`, `readout`) in evaluation mode."""
    torch.manual_seed(seed)
    config = TIDESConfig(**(SMALL | options))
    model: Any
    match kind:
        case "backbone":
            model = Backbone(config)
        case "classifier":
            model = SequenceClassifier(config, 3)
        case "regressor":
            model = SequenceRegressor(config, 2)
        case _:
            model = Forecaster(config, 2, kind)  # type: ignore[arg-type]
    model = model.to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer += 0.3 * torch.randn_like(buffer)
            if name.endswith("running_var"):
                buffer *= 1 + torch.rand_like(buffer)
    scales = torch.randn(2).to(dtype), 1 + torch.rand(2).to(dtype)
    if kind in ("backbone", "classifier"):
        model.calibrate(torch.rand(50) * 3, *scales)
    else:
        model.calibrate(torch.rand(50) * 3, *scales, torch.randn(2).to(dtype), 1 + torch.rand(2).to(dtype))
    if config.summary:
        size = model.summary.size
        model.calibrate_summary(torch.randn(size), 1 + torch.rand(size))
    return model.eval()
