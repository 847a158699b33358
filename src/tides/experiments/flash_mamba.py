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
    """d_model 4, d_state 3, convolution 3, expansion 1, dt_rank 1, LayerNorm, residual: 153 parameters."""

    def __init__(self, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        starts = [_start(generator) for generator in generators]
        self.weights = nn.ParameterDict(
            {name: nn.Parameter(torch.stack([start[name] for start in starts])) for name in starts[0]}
        )

    def forward(self, x: Float[Tensor, "m b l 4"], gaps: Float[Tensor, "m b l"]) -> Float[Tensor, "m b l 1"]:
        """The predicted glow."""
        w = self.weights
        encoded, v, gate, (_, B, C), delta = self._project(x, gaps)
        # Mamba's own rule: exact decay, Euler input. `dirac` is the decay alone.
        lam_bar, _ = discretise(self._lam(), delta.unsqueeze(-1), "dirac")
        drive = (delta * v).unsqueeze(-1) * B.unsqueeze(-2)
        s, _ = linear_scan(lam_bar.flatten(-2), drive.flatten(-2))
        y = torch.linalg.vecdot(s.view_as(drive), C.unsqueeze(-2)) + v * _per_model(w["skip"])
        y = encoded + _apply(y * F.silu(gate), w["out"])
        return _apply(y, w["readout"], w["readout_bias"])

    def rates(self, x: Float[Tensor, "m b l 4"], gaps: Float[Tensor, "m b l"]) -> Float[Tensor, "m b l n"]:
        """The decay per unit of physical time of all twelve states: −Aδ/Δ."""
        *_, delta = self._project(x, gaps)
        return (-self._lam() * delta.unsqueeze(-1) / gaps[..., None, None]).flatten(-2)

    def parameter_count(self, *, published: bool = False) -> int:
        """Parameters of one model."""
        return sum(parameter[0].numel() for parameter in self.parameters())

    def _project(self, x: Tensor, gaps: Tensor) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, ...], Tensor]:
        w, length = self.weights, x.shape[2]
        encoded = _apply(torch.cat([x, gaps.unsqueeze(-1)], -1), w["encoder"], w["encoder_bias"])
        normed = F.layer_norm(encoded, (WIDTH,)) * _per_model(w["norm"]) + _per_model(w["norm_bias"])
        v, gate = _apply(normed, w["inward"]).chunk(2, -1)
        padded = F.pad(v, (0, 0, KERNEL - 1, 0))
        taps = (padded[:, :, k : k + length] * _per_model(w["conv"][:, k]) for k in range(KERNEL))
        v = F.silu(sum(taps, start=_per_model(w["conv_bias"])))
        parts = _apply(v, w["select"]).split([1, STATES, STATES], -1)
        delta = F.softplus(parts[0] * _per_model(w["step"]) + _per_model(w["step_bias"]))
        return encoded, v, gate, parts, delta

    def _lam(self) -> Float[Tensor, "m 1 1 4 3"]:
        lam: Tensor = -self.weights["log_decay"][:, None, None].exp()
        return lam


def _start(generator: torch.Generator) -> dict[str, Tensor]:
    """Mamba's usual starting values: A = −(1, 2, 3), steps log-uniform in [0.001, 0.1], D = 1."""

    def uniform(bound: float, *shape: int) -> Tensor:
        return bound * (2 * torch.rand(*shape, generator=generator) - 1)

    inner = 1 / math.sqrt(WIDTH)
    encoder = 1 / math.sqrt(CHANNELS + 1)
    step = torch.exp(math.log(1e-3) + math.log(100) * torch.rand(WIDTH, generator=generator))
    return {
        "encoder": uniform(encoder, CHANNELS + 1, WIDTH),
        "encoder_bias": uniform(encoder, WIDTH),
        "norm": torch.ones(WIDTH),
        "norm_bias": torch.zeros(WIDTH),
        "inward": uniform(inner, WIDTH, 2 * WIDTH),
        "conv": uniform(1 / math.sqrt(KERNEL), KERNEL, WIDTH),
        "conv_bias": uniform(1 / math.sqrt(KERNEL), WIDTH),
        "select": uniform(inner, WIDTH, 1 + 2 * STATES),
        "step": uniform(1.0, WIDTH),
        # softplus(bias) = step
        "step_bias": step + torch.log(-torch.expm1(-step)),
        "log_decay": torch.log(torch.arange(1.0, STATES + 1)).repeat(WIDTH, 1),
        "skip": torch.ones(WIDTH),
        "out": uniform(inner, WIDTH, WIDTH),
        "readout": uniform(inner, WIDTH, 1),
        "readout_bias": uniform(inner, 1),
    }


def _apply(x: Float[Tensor, "m b l i"], weight: Tensor, bias: Tensor | None = None) -> Float[Tensor, "m b l o"]:
    m, b, l, _ = x.shape
    flat = x.reshape(m, b * l, -1)
    out = torch.bmm(flat, weight) if bias is None else torch.baddbmm(bias.unsqueeze(1), flat, weight)
    return out.view(m, b, l, -1)


def _per_model(parameter: Float[Tensor, "m d"]) -> Float[Tensor, "m 1 1 d"]:
    return parameter[:, None, None]
