"""The model's own clock: how fast every mode forgets, at every observation, in the user's unit of time.

Between observations a mode decays as e^{−rate·t}, rate = −Re λ_k · e^{log_step} / time_scale per unit of time; half of
it is gone after ln 2 / rate. λ_k is the eigenvalue that observation k sets: it rules the interval after k under
hold="following" and the one before k under hold="preceding". Mamba_S learns its step: its rate is the decay that the
interval really applied, divided by the interval, and no property of physical time.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tides import functional as tf
from tides.data.batch import IrregularBatch
from tides.errors import ConfigError, ShapeError
from tides.explain.asking import is_whole, require_evaluation
from tides.functional.heads import StepHead
from tides.nn import SSM, Backbone


class LayerClock(NamedTuple):
    """One layer: rates and turns per unit of time, and each mode's contribution to the layer's output; all (b, l,
    p).
    """

    rate: Tensor
    frequency: Tensor
    contribution: Tensor
    """Root mean square over the outputs of Re(C_k[:, p] s_p)."""


@dataclass(frozen=True, eq=False)
class Clock:
    """Decay of every mode of every layer at every step: (layer, b, l, p), zero contribution where a step is padding."""

    rate: Tensor
    """Decay per unit of time."""
    frequency: Tensor
    """Turns per unit of time; the sign says in which direction."""
    contribution: Tensor
    times: Tensor
    valid: Tensor
    unit: str = ""

    @property
    def half_life(self) -> Tensor:
        """ln 2 / rate; infinite for a mode that does not decay."""
        return torch.where(self.rate > 0, math.log(2) / self.rate.clamp_min(1e-300), torch.inf)

    def typical_half_life(self) -> Tensor:
        """(layer, p): the median over all valid steps."""
        steps = self.half_life[:, self.valid]  # (layer, n, p)
        return steps.median(dim=1).values

    def remembers(self, horizon: float) -> Tensor:
        """(layer, p): modes that keep more than half of what they know over `horizon` units of time, at most steps."""
        return self.typical_half_life() > horizon

    def series(self, index: int) -> "Clock":
        """One series without its padding; −1 is the last."""
        count = len(self.valid)
        if not is_whole(index) or not -count <= index < count:
            raise ShapeError(f"series: found {index!r}, wanted an index into {count} series")
        index %= count
        n = int(self.valid[index].sum())
        parts = {name: getattr(self, name)[:, index : index + 1, :n] for name in ("rate", "frequency", "contribution")}
        return replace(self, **parts, times=self.times[index : index + 1, :n], valid=self.valid[index : index + 1, :n])


@torch.no_grad()
def clock(model: nn.Module, batch: IrregularBatch, *, unit: str = "") -> Clock:
    """The clock of a backbone, or of any model that contains one, on the series of `batch`."""
    require_evaluation(model, batch)
    backbone = model if isinstance(model, Backbone) else getattr(model, "backbone", None)
    if not isinstance(backbone, Backbone):
        raise ConfigError(f"model: found {type(model).__name__}, wanted a Backbone or a model with one")
    # The model's own first gap, as in training, and not the one that this batch was put together with.
    steps = backbone.calibration.gaps(batch.times, batch.valid)
    x, gaps, valid = backbone.prepare(batch.values, steps, observed=batch.observed, valid=batch.valid)
    hidden, layers = backbone.encoder(x), []
    for block in backbone.typed_blocks():
        u = block.norm(hidden)
        layers.append(layer_clock(block.ssm, u, gaps, valid=valid, time_scale=backbone.calibration.time_scale.item()))
        hidden, _ = block(hidden, gaps, valid=valid)
    rate, frequency, contribution = (torch.stack(part) for part in zip(*layers, strict=True))
    contribution = contribution.masked_fill(~batch.valid.unsqueeze(-1), 0)
    return Clock(rate, frequency, contribution, batch.times, batch.valid, unit)


@torch.no_grad()
def layer_clock(
    ssm: SSM, u: Tensor, gaps: Tensor, *, valid: Tensor | None = None, time_scale: float = 1.0
) -> LayerClock:
    """The clock of one layer for inputs u (b, l, h) and gaps (b, l) in units of `time_scale`."""
    weights, spec = ssm.weights(), ssm.spec
    _, trace = ssm.trace(u, gaps, valid=valid)
    if isinstance(weights.step, StepHead):
        step = tf.step_sizes(u, gaps, weights.step)
        scale = torch.where(gaps.unsqueeze(-1) > 0, step / gaps.unsqueeze(-1).clamp_min(1e-30), torch.nan)
    else:
        scale = torch.exp(weights.step)
    per_time = scale / time_scale
    contribution = _contributions(ssm, trace.s, u).square().mean(-1).sqrt()
    if spec.bidirectional:
        # Both directions of time decay with the same eigenvalues.
        contribution = torch.hypot(*contribution.chunk(2, dim=-1))
    lam = trace.lam
    return LayerClock(-lam.real * per_time, lam.imag * per_time / (2 * math.pi), contribution)


@torch.no_grad()
def response_rate(
    ssm: SSM, u: Tensor, changed: Tensor, gaps: Tensor, readout: Tensor, time_scale: float = 1.0
) -> Tensor:
    """(b, l): how fast the difference between inputs `u` and `changed` (b, l, h) fades in readout·y, per unit of time.

    The difference is a sum Σ_p Re(c_p e^{λ_p t}) over the modes, so it fades at −Re Σ c_p λ_p / Re Σ c_p. It is
    meaningful where both inputs are the same again, and with them the layer's B, C and λ.
    """
    (_, ours), (_, theirs) = (ssm.trace(x, gaps) for x in (u, changed))
    difference = theirs.s - ours.s
    real, imaginary = (_contributions(ssm, s, u) @ readout for s in (difference, -1j * difference))
    found = layer_clock(ssm, u, gaps, time_scale=time_scale)
    turned = 2 * math.pi * found.frequency
    return (real * found.rate + imaginary * turned).sum(-1) / real.sum(-1)


def _contributions(ssm: SSM, s: Tensor, u: Tensor) -> Tensor:
    """Re(C_k[:, p] s_p), the contribution of every mode: (b, l, p, h)."""
    mix, eps = ssm.weights().readout, ssm.spec.eps
    alone = torch.diag_embed(s).transpose(0, 2).transpose(1, 2)  # (p, b, l, p)
    voices = torch.stack([tf.mix_out(one, u, mix, eps) for one in alone], dim=-2)
    return 2 * voices if ssm.spec.conjugate else voices
