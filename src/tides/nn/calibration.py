"""The scales of the training data that a model stores: units of the channels and of time."""

from typing import Protocol

import torch
from torch import Tensor, nn

from tides.errors import ConfigError, DataError, ShapeError
from tides.functional.checks import describe_tensor
from tides.functional.gaps import gaps_from_times


class Scales(Protocol):
    """The part of a configuration about scales."""

    @property
    def input_size(self) -> int: ...
    @property
    def time_scale(self) -> float | str: ...
    @property
    def first_gap(self) -> float | str: ...


class Calibration(nn.Module):
    """Buffers saved with the model: channel shift and scale, the time scale, and the first gap.

    Learned time scales start in [1e-3, 0.1] whatever the unit, so gaps are divided by `time_scale` (the training
    median gap by default): the same table in seconds, hours or days gives the same predictions.
    """

    shift: Tensor
    scale: Tensor
    time_scale: Tensor
    first_gap: Tensor

    def __init__(self, config: Scales) -> None:
        super().__init__()
        self.time_policy, self.first_policy = config.time_scale, config.first_gap
        unit = 1.0 if isinstance(config.time_scale, str) else config.time_scale
        first = unit if isinstance(config.first_gap, str) else config.first_gap
        self.register_buffer("shift", torch.zeros(config.input_size))
        self.register_buffer("scale", torch.ones(config.input_size))
        self.register_buffer("time_scale", torch.tensor(unit, dtype=torch.float64))
        self.register_buffer("first_gap", torch.tensor(first, dtype=torch.float64))

    @torch.no_grad()
    def fit_time(self, gaps: Tensor) -> None:
        """Set time scale and first gap from the positive training gaps, if the config asks for the median."""
        if not isinstance(gaps, Tensor) or gaps.is_complex():
            raise ShapeError(f"gaps: found {describe_tensor(gaps)}, wanted a tensor of all training gaps")
        bad = gaps[~((gaps >= 0) & torch.isfinite(gaps))]
        if bad.numel():
            raise DataError(f"gaps: found {bad[0].item():g} among the training gaps, wanted finite numbers ≥ 0")
        positive = gaps[gaps > 0].double()
        if "median" not in (self.time_policy, self.first_policy):
            return
        if positive.numel() == 0:
            raise DataError("gaps: all training gaps are zero, so time has no scale; is the time unit too coarse?")
        if self.time_policy == "median":
            self.time_scale.copy_(positive.median())
        if self.first_policy == "median":
            self.first_gap.copy_(positive.median())

    def fit_values(self, shift: Tensor | None, scale: Tensor | None) -> None:
        """Set the channels' shift and scale, e.g. mean and standard deviation of observed training entries."""
        store_scales(self, shift, scale)

    def scaled_values(self, x: Tensor) -> Tensor:
        return (x - self.shift) / self.scale

    def unscaled_values(self, x: Tensor) -> Tensor:
        return x * self.scale + self.shift

    def scaled_gaps(self, gaps: Tensor) -> Tensor:
        return gaps / self.time_scale.to(gaps.dtype)

    def gaps(self, times: Tensor, valid: Tensor | None = None, *, origin: Tensor | None = None) -> Tensor:
        """Gaps from times, in the times' precision, with the stored first-gap policy; times may count from `origin`."""
        if self.first_policy == "start":
            return gaps_from_times(times, start=0.0 if origin is None else -origin, valid=valid)
        return gaps_from_times(times, self.first_gap, valid=valid)

    def _apply(self, fn, recurse=True):  # type: ignore[no-untyped-def]
        # `model.float()` must not round the time scales: they are divided into float64 gaps.
        kept = {name: getattr(self, name) for name in ("time_scale", "first_gap")}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        device = self.shift.device
        for name, value in kept.items():
            # From the meta device (`to_empty`) there is nothing to copy.
            setattr(self, name, torch.empty_like(value, device=device) if value.is_meta else value.to(device))
        return self


@torch.no_grad()
def store_scales(module: nn.Module, shift: Tensor | None, scale: Tensor | None, prefix: str = "") -> None:
    """Check scales and copy them to the buffers of `module` with these names behind `prefix`."""
    kept = module.get_buffer(f"{prefix}shift"), module.get_buffer(f"{prefix}scale")
    for buffer, value in zip(kept, check_scales(shift, scale, kept[0].numel(), prefix=prefix), strict=True):
        buffer.copy_(value)


def check_scales(
    shift: Tensor | None, scale: Tensor | None, channels: int, *, prefix: str = ""
) -> tuple[Tensor, Tensor]:
    """Both or neither, one finite number per channel, and scales that can be divided by."""
    names = f"{prefix}shift, {prefix}scale"
    fits = isinstance(shift, Tensor) and isinstance(scale, Tensor) and shift.shape == scale.shape == (channels,)
    if shift is None or scale is None or not fits:
        found = [tuple(x.shape) if isinstance(x, Tensor) else x for x in (shift, scale)]
        raise ConfigError(f"{names}: found shapes {found}, wanted ({channels},) for both, one number per channel")
    usable = torch.isfinite(shift) & torch.isfinite(scale) & (scale > 0)
    if not bool(usable.all()):
        channel = int((~usable).nonzero()[0])
        raise ConfigError(
            f"{names}: found {shift[channel].item():g}, {scale[channel].item():g} for channel {channel}, "
            "wanted finite numbers with scale > 0"
        )
    return shift, scale
