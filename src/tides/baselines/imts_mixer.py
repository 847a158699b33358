"""IMTS-Mixer: every channel's observations become one vector, mixed over channels and features."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tides.baselines.attention import masked_softmax
from tides.baselines.forecasting import ForecastConfig, ForecastModel, Question
from tides.baselines.perceptron import perceptron


@dataclass(frozen=True, kw_only=True)
class IMTSMixerConfig(ForecastConfig):
    """Published settings for Physiome-ODE."""

    hidden_size: int = 128
    """D: features of a channel."""
    output_size: int = 128
    """D_out: features that a query's kernel weighs."""
    kernel_size: int = 32
    """Hidden units of the small networks."""
    depth: int = 3
    """Mixer blocks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_sizes("hidden_size", "output_size", "kernel_size", "depth")


class MixerBlock(nn.Module):
    """Z ← Z + (ReLU W_C RMSNorm(Zᵀ))ᵀ, then Z ← Z + ReLU W_D RMSNorm(Z)."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.channel_norm, self.channel_mix = nn.RMSNorm(channels), nn.Linear(channels, channels)
        self.feature_norm, self.feature_mix = nn.RMSNorm(width), nn.Linear(width, width)

    def forward(self, z: Tensor) -> Tensor:
        z = z + self.channel_mix(self.channel_norm(z.mT)).relu().mT
        result: Tensor = z + self.feature_mix(self.feature_norm(z)).relu()
        return result


class IMTSMixer(ForecastModel):
    """An aggregator, a mixer and a decoder, none of them recurrent.

        Z_c = b_c + Σ_i softmax_i(α(v_i, t_i)) ⊙ φ(v_i, t_i)      over the observations i of channel c
        Z   ← mixer blocks                                        over channels and over features
        ŷ_c(t) = wᵀ (W RMSNorm(Z_c) ⊙ ψ_c(t)) + w₀

    α, φ and ψ are perceptrons with one hidden layer; the softmax is taken for every feature apart, and a channel
    without observations is b_c alone. Source: Klötergens, Dernedde and Schmidt-Thieme, "IMTS-Mixer", 2025
    (arXiv 2502.11816); blocks follow the paper's equations.
    """

    config: IMTSMixerConfig

    def __init__(self, config: IMTSMixerConfig) -> None:
        super().__init__(config)
        c, d, o, k = self.channels, config.hidden_size, config.output_size, config.kernel_size
        self.content, self.weight = perceptron(2, k, d), perceptron(2, k, d)
        self.channel_bias = nn.Parameter(torch.zeros(c, d))
        self.blocks = nn.ModuleList(MixerBlock(c, d) for _ in range(config.depth))
        self.norm, self.reduce = nn.RMSNorm(d), nn.Linear(d, o)
        self.moment = nn.Linear(1, k)
        self.kernel = nn.Linear(k, c * o)
        self.readout = nn.Linear(o, 1)

    def answer(self, question: Question) -> Tensor:
        features = self.reduce(self.norm(self._mixed(question)))  # (b, c, o)
        moment = self.moment(question.query_moments).relu()  # (b, q, k)
        # ψ is linear in its hidden layer, so readout and features are contracted with its weights first and no
        # (b, q, c, o) kernel is ever built.
        weighed = features * self.readout.weight
        c, o = weighed.shape[1:]
        slope = torch.einsum("bco,cok->bck", weighed, self.kernel.weight.view(c, o, -1))
        offset = (weighed * self.kernel.bias.view(c, o)).sum(-1) + self.readout.bias
        result: Tensor = moment @ slope.mT + offset.unsqueeze(1)
        return result

    def _mixed(self, question: Question) -> Tensor:
        """One vector per channel, (b, c, d)."""
        times = question.moments.expand_as(question.values)
        entries = torch.stack([question.values, times], dim=-1)  # (b, l, c, 2)
        weights = masked_softmax(self.weight(entries), question.observed.unsqueeze(-1), dim=1)
        z: Tensor = (weights * self.content(entries)).sum(dim=1) + self.channel_bias
        for block in self.blocks:
            z = block(z)
        return z
