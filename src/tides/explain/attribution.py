"""Which observations made the answer: integrated gradients, per observation and channel.

    φ_{k,c} = (x_{k,c} − x'_{k,c}) ∫₀¹ ∂f/∂x_{k,c} (x' + α (x − x')) dα,        Σ φ = f(x) − f(x')

The baseline x' is an uninformative value of every channel, by default the training mean that the model stores. What was
observed when stays as it is along the whole path: missing entries and padding are never read and get exactly nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tides.data.batch import IrregularBatch
from tides.errors import ConfigError, DataError, ShapeError
from tides.explain.asking import Target, ask, choose, is_whole, numbers, require_evaluation
from tides.nn import Backbone


@dataclass(frozen=True, eq=False)
class Attribution:
    """`values` (b, l, c) in units of the answer, which went from `reference` to `answer` (b,)."""

    values: Tensor
    answer: Tensor
    reference: Tensor

    @property
    def incompleteness(self) -> Tensor:
        """(b,): what the attributions do not account for, an error of the quadrature."""
        return self.answer - self.reference - self.values.sum((1, 2))


def attribute(
    model: nn.Module,
    batch: IrregularBatch,
    *,
    target: Target = None,
    baseline: Tensor | Sequence[float] | None = None,
    steps: int = 32,
) -> Attribution:
    """Attributions of one answer per series (see `choose` for `target`).

    `baseline` holds one number per channel, in the data's units. `steps` is the number of nodes of Gauss–Legendre
    quadrature; raise it if `incompleteness` is not small.
    """
    require_evaluation(model, batch)
    if not is_whole(steps) or steps < 1:
        raise ConfigError(f"steps: found {steps!r}, wanted an integer ≥ 1")
    start = _baseline(model, batch, baseline)
    with torch.no_grad():
        pick = choose(ask(model, batch), target)
        answer, reference = (pick(ask(model, replace(batch, values=x))) for x in (batch.values, start))
    nodes, weights = np.polynomial.legendre.leggauss(int(steps))
    mean = torch.zeros_like(batch.values)
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        # Gradients are needed here even if the caller has switched them off.
        with torch.enable_grad():
            point = (start + float(node) * (batch.values - start)).requires_grad_()
            (gradient,) = torch.autograd.grad(pick(ask(model, replace(batch, values=point))).sum(), point)
        mean += float(weight) * gradient
    return Attribution((batch.values - start) * mean, answer, reference)


def _baseline(model: nn.Module, batch: IrregularBatch, baseline: Any) -> Tensor:
    """Values (b, l, c) of the beginning of the path; where nothing was observed, those of the batch."""
    if baseline is None:
        backbone = getattr(model, "backbone", model)
        baseline = backbone.calibration.shift if isinstance(backbone, Backbone) else torch.zeros(batch.values.shape[-1])
    wanted = f"one finite number for each of {batch.values.shape[-1]} channels"
    start = numbers(baseline, "baseline", wanted, batch.values)
    if start.shape != batch.values.shape[-1:]:
        raise ShapeError(f"baseline: found shape {tuple(start.shape)}, wanted {wanted}")
    if not bool(torch.isfinite(start).all()):
        raise DataError(f"baseline: found {start.tolist()}, wanted {wanted}")
    return torch.where(batch.observed, start.to(batch.values), batch.values)
