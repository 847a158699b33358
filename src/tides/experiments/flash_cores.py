"""The bare SSM cores of Fading Flash, many seeds side by side (a leading model axis m).

    h_k = W_enc u_k + b_enc                                         u_k ∈ R⁴ → R^H
    s_k = λ̄_k ⊙ s_{k−1} + gain_k ⊙ b_k ⊙ (B_0 h_k)                  P = 3 real modes, ZOH, hold="preceding"
    y_k = (C_0 ⊙ c_k) s_k + D h_k

S5 keeps λ and b = c = 1 fixed; TIDES_Λ makes θ_k = W_Λ h_k + θ_0 (λ = −e^θ) input-dependent, TIDES also the
modulations b_k and c_k; all three step by δ = Δ·exp(log_step). Mamba_S makes b_k, c_k and the step input-dependent,
δ_k = softplus(W_Δ [h_k, Δ] + b_Δ), and keeps λ fixed. The widths H match them at 144 parameters.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tides.functional import discretise, linear_scan, reparameterise, reparameterise_inverse

MODES = 3
CHANNELS = 4


@dataclass(frozen=True)
class Core:
    """What is input-dependent in a core, and how wide it is."""

    hidden: int
    selective_decay: bool = False
    selective_mix: bool = False
    learned_step: bool = False


CORES = {
    "s5": Core(15),
    "mamba-s": Core(7, selective_mix=True, learned_step=True),
    "tides": Core(7, selective_decay=True, selective_mix=True),
    "tides-lambda": Core(11, selective_decay=True),
}


class FlashCore(nn.Module):
    """One core per generator, each starting from its own draw."""

    def __init__(self, core: Core, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.core = core
        starts = [_start(core, generator) for generator in generators]
        self.weights = nn.ParameterDict(
            {name: nn.Parameter(torch.stack([start[name] for start in starts])) for name in starts[0]}
        )

    def forward(self, x: Float[Tensor, "m b l 4"], gaps: Float[Tensor, "m b l"]) -> Float[Tensor, "m b l 1"]:
        """The predicted glow."""
        drive, readout, direct, lam, delta = self._project(x, gaps)
        lam_bar, gain = discretise(lam, delta)
        s, _ = linear_scan(lam_bar, gain * drive)
        return (readout * s).sum(-1, keepdim=True) + direct

    def rates(self, x: Float[Tensor, "m b l 4"], gaps: Float[Tensor, "m b l"]) -> Float[Tensor, "m b l p"]:
        """The decay per unit of physical time that each mode applies at each step: −λδ/Δ."""
        _, _, _, lam, delta = self._project(x, gaps)
        return -lam * delta / gaps.unsqueeze(-1)

    def parameter_count(self, *, published: bool = False) -> int:
        """Parameters of one model; the published counts include static decays that a selective Λ never uses."""
        own = sum(parameter[0].numel() for parameter in self.parameters())
        return own + (MODES if published and self.core.selective_decay else 0)

    def _project(self, x: Tensor, gaps: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Everything that the recurrence needs, from one product with all head matrices side by side."""
        m, b, l, _ = x.shape
        core, w, gap = self.core, self.weights, gaps.unsqueeze(-1)
        heads = [w["drive"], w["skip"]]
        if core.selective_decay:
            heads.append(w["decay_head"])
        if core.selective_mix:
            heads += [w["drive_head"], w["readout_head"]]
        if core.learned_step:
            heads.append(w["step_head"][:, :-1])
        h = torch.baddbmm(w["encoder_bias"].unsqueeze(1), x.reshape(m, b * l, CHANNELS), w["encoder"])
        widths = [head.shape[-1] for head in heads]
        parts = list(torch.bmm(h, torch.cat(heads, -1)).view(m, b, l, -1).split(widths, -1))
        drive, direct = parts.pop(0), parts.pop(0)

        theta = _per_model(w["decay"])
        if core.selective_decay:
            theta = theta + parts.pop(0)
        readout = _per_model(w["readout"])
        if core.selective_mix:
            drive = drive * (parts.pop(0) + _per_model(w["drive_modulation"]))
            readout = readout * (parts.pop(0) + _per_model(w["readout_modulation"]))
        if core.learned_step:
            delta = F.softplus(parts.pop(0) + gap * _per_model(w["step_head"][:, -1]) + _per_model(w["step_bias"]))
        else:
            delta = gap * _per_model(w["log_step"]).exp()
        return drive, readout, direct, reparameterise(theta, "exp").expand(m, b, l, MODES), delta


def _start(core: Core, generator: torch.Generator) -> dict[str, Tensor]:
    """Starting values of one model; head weights are zero, so every variant begins as a static core.

    Drawn in the order and with the rule of `nn.Linear`, then B, C and log_step.
    """
    width = core.hidden

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(*shape, generator=generator)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    bound = 1 / math.sqrt(CHANNELS)
    start = {
        "encoder": uniform(-bound, bound, width, CHANNELS).T,
        "encoder_bias": uniform(-bound, bound, width),
        "drive": normal(MODES, width).T / math.sqrt(width),
        "readout": normal(MODES) / math.sqrt(MODES),
        "skip": torch.zeros(width, 1),
        "decay": reparameterise_inverse(-torch.linspace(0.5, 3.0, MODES), "exp"),
    }
    if core.selective_decay:
        start["decay_head"] = torch.zeros(width, MODES)
    if core.selective_mix:
        for name in ("drive", "readout"):
            start[f"{name}_head"] = torch.zeros(width, MODES)
            start[f"{name}_modulation"] = torch.ones(MODES)
    if core.learned_step:
        # softplus(bias) = 1: the step starts as one, whatever the input.
        start["step_head"] = torch.zeros(width + 1, MODES)
        start["step_bias"] = torch.full((MODES,), math.log(math.e - 1))
    else:
        start["log_step"] = uniform(math.log(0.1), math.log(1.0), MODES)
    return start


def _per_model(parameter: Float[Tensor, "m p"]) -> Float[Tensor, "m 1 1 p"]:
    return parameter[:, None, None]
