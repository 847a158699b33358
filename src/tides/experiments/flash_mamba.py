"""A real Mamba block for Fading Flash, many seeds side by side (a leading model axis m).

e_k = W_enc [u_k, Δ_k] + b_enc                  the gap is an input channel, as is usual for Mamba
[v, z] = W_in LayerNorm(e)                      v ← SiLU(causal convolution over three steps)
[τ, B, C] = W_x v                               δ = softplus(W_dt τ + b_dt) per channel
s_k = exp(δ_k A) s_{k−1} + δ_k B_k v_k          A = −exp(A_log), three states per channel
y = W_out((C s + D v) ⊙ SiLU(z)) + e            then a linear readout
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from tides.functional import discretise, linear_scan

WIDTH = 4
STATES = 3
KERNEL = 3
CHANNELS = 4


class FlashMamba(nn.Module):
    """d_model 4, d_state 3, convolution 3, expansion 1, dt_rank 1, LayerNorm, residual: 153 parameters.

    Inside, the few channels come first and the positions n = (l, b) last, time slowest: with four channels and
    three states every other order would spend its time on loops of length three.
    """

    def __init__(self, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        starts = [_start(generator) for generator in generators]
        self.weights = nn.ParameterDict(
            {name: nn.Parameter(torch.stack([start[name] for start in starts])) for name in starts[0]}
        )

    def forward(self, x: Float[Tensor, "m b l 4"], gaps: Float[Tensor, "m b l"]) -> Float[Tensor, "m b l 1"]:
        """The predicted glow."""
        (m, b, l, _), w = x.shape, self.weights
        encoded, v, gate, B, C, delta = self._project(x, gaps)
        # Mamba's own rule: exact decay, Euler input. `dirac` is the decay alone.
        lam_bar, _ = discretise(self._lam(), delta.unsqueeze(2), "dirac")  # (m, 4, 3, n)
        drive = (delta * v).unsqueeze(2) * B.unsqueeze(1)
        s, _ = linear_scan(lam_bar.view(m, -1, l, b), drive.view(m, -1, l, b))
        y = (s.reshape(drive.shape) * C.unsqueeze(1)).sum(2) + v * w["skip"].unsqueeze(-1)
        y = encoded + w["out"] @ (y * F.silu(gate))
        y = torch.baddbmm(w["readout_bias"].unsqueeze(-1), w["readout"], y)
        return y.view(m, 1, l, b).permute(0, 3, 2, 1)

    def rates(self, x: Float[Tensor, "m b l 4"], gaps: Float[Tensor, "m b l"]) -> Float[Tensor, "m b l n"]:
        """The decay per unit of physical time of all twelve states: −Aδ/Δ."""
        m, b, l, _ = x.shape
        *_, delta = self._project(x, gaps)
        decay = (-self._lam() * delta.unsqueeze(2)).view(m, -1, l, b).permute(0, 3, 2, 1)
        return decay / gaps.unsqueeze(-1)

    def parameter_count(self, *, published: bool = False) -> int:
        """Parameters of one model."""
        return sum(parameter[0].numel() for parameter in self.parameters())

    def _project(self, x: Tensor, gaps: Tensor) -> tuple[Tensor, ...]:
        """Encoded input, convolved value, gate, B, C and step, each (m, channels, n)."""
        (m, b, l, _), w = x.shape, self.weights
        inputs = torch.cat([x, gaps.unsqueeze(-1)], -1).permute(0, 3, 2, 1).reshape(m, CHANNELS + 1, l * b)
        encoded = torch.baddbmm(w["encoder_bias"].unsqueeze(-1), w["encoder"], inputs)
        centred = encoded - encoded.mean(1, keepdim=True)
        normed = centred * torch.rsqrt(centred.square().mean(1, keepdim=True) + 1e-5)
        normed = normed * w["norm"].unsqueeze(-1) + w["norm_bias"].unsqueeze(-1)
        v, gate = (w["inward"] @ normed).chunk(2, 1)
        padded = F.pad(v, (b * (KERNEL - 1), 0))
        taps = (padded[..., k * b : (k + l) * b] * w["conv"][:, k].unsqueeze(-1) for k in range(KERNEL))
        v = F.silu(sum(taps, start=w["conv_bias"].unsqueeze(-1)))
        tau, B, C = (w["select"] @ v).split([1, STATES, STATES], 1)
        delta = F.softplus(tau * w["step"].unsqueeze(-1) + w["step_bias"].unsqueeze(-1))
        return encoded, v, gate, B, C, delta

    def _lam(self) -> Float[Tensor, "m 4 3 1"]:
        lam: Tensor = -self.weights["log_decay"].exp().unsqueeze(-1)
        return lam


def _start(generator: torch.Generator) -> dict[str, Tensor]:
    """Mamba's usual starting values: A = −(1, 2, 3), steps log-uniform in [0.001, 0.1], D = 1."""

    def uniform(bound: float, *shape: int) -> Tensor:
        return bound * (2 * torch.rand(*shape, generator=generator) - 1)

    inner = 1 / math.sqrt(WIDTH)
    encoder = 1 / math.sqrt(CHANNELS + 1)
    step = torch.exp(math.log(1e-3) + math.log(100) * torch.rand(WIDTH, generator=generator))
    return {
        "encoder": uniform(encoder, WIDTH, CHANNELS + 1),
        "encoder_bias": uniform(encoder, WIDTH),
        "norm": torch.ones(WIDTH),
        "norm_bias": torch.zeros(WIDTH),
        "inward": uniform(inner, 2 * WIDTH, WIDTH),
        "conv": uniform(1 / math.sqrt(KERNEL), KERNEL, WIDTH),
        "conv_bias": uniform(1 / math.sqrt(KERNEL), WIDTH),
        "select": uniform(inner, 1 + 2 * STATES, WIDTH),
        "step": uniform(1.0, WIDTH),
        # softplus(bias) = step
        "step_bias": step + torch.log(-torch.expm1(-step)),
        "log_decay": torch.log(torch.arange(1.0, STATES + 1)).repeat(WIDTH, 1),
        "skip": torch.ones(WIDTH),
        "out": uniform(inner, WIDTH, WIDTH),
        "readout": uniform(inner, 1, WIDTH),
        "readout_bias": uniform(inner, 1),
    }
