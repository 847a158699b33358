"""The parts of a model that a compiled step needs, and access to it."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from tides.errors import BackendUnavailable
from tides.functional.heads import GLUWeights
from tides.functional.ssm import SSMSpec, SSMWeights
from tides.functional.tail import TailWeights


class StepBlock(NamedTuple):
    """One block's tensors: `affine` = (scale, shift) of a batch norm; `tail`, or the bias that is left of it."""

    ssm: SSMWeights
    affine: tuple[Tensor, Tensor] | None
    tail: TailWeights | Tensor


class StepModel(NamedTuple):
    """Encoder, blocks and, for answers, the head."""

    encoder: tuple[GLUWeights, ...]
    encoder_out: tuple[Tensor, Tensor]
    blocks: tuple[StepBlock, ...]
    spec: SSMSpec
    norm: str
    norm_eps: float
    scaling: tuple[Tensor, Tensor]
    """Shift and scale of the data channels."""
    time_scale: float
    masked: bool
    """Whether observation flags follow the data channels."""
    gap_channel: bool
    """Whether the last input channel is the gap."""
    pool: str | None = None
    head: tuple[Tensor, Tensor] | None = None
    static: tuple[Tensor, Tensor] | None = None
    """Shift and scale of the static covariates that join the pooled features."""
    summary: tuple[Tensor, Tensor] | None = None
    """Shift and scale of the statistics behind them."""


def step_program(model: StepModel, streams: int, dtype: torch.dtype) -> Any:
    """The model packed for `streams` streams (`cpu.stepper.StepProgram`)."""
    try:
        from tides.kernels.cpu.stepper import StepProgram
    except ImportError as error:
        raise BackendUnavailable(f"compiled step: it needs a library that is not installed ({error})") from error
    return StepProgram(model, streams, dtype)
