"""mTAN: attention from fixed reference times to irregular observations, and back to any query."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tides.baselines.attention import masked_softmax
from tides.baselines.forecasting import ForecastConfig, ForecastModel, Question
from tides.baselines.gru import GRUCell
from tides.baselines.perceptron import perceptron
from tides.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class MTANConfig(ForecastConfig):
    """Published settings of the attention (embedding 128, one head, 128 references)."""

    embed_size: int = 128
    """Features of a time."""
    heads: int = 1
    references: int = 128
    """Reference times, evenly over one unit of time: choose `time_scale` as the length of the interval."""
    hidden_size: int = 64
    """Units of the recurrent network in either direction."""
    latent_size: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_sizes("embed_size", "heads", "references", "hidden_size", "latent_size")
        if self.embed_size % self.heads or self.embed_size < 2:
            raise ConfigError(f"embed_size: found {self.embed_size}, wanted 2 or more, a multiple of heads")


class TimeAttention(nn.Module):
    """x̂_c(r) = Σ_i softmax_i(φ(r) W_q · φ(t_i) W_k / √d) x_ic over the entries of channel c, for every head;

    φ(t) = [ω₀ t + α₀, sin(ω t + α)]. A channel without entries gives 0. Heads and channels are mixed linearly.
    """

    def __init__(self, values: int, outputs: int, embed: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.embedding = nn.Linear(1, embed)
        self.query, self.key = nn.Linear(embed, embed), nn.Linear(embed, embed)
        self.mix = nn.Linear(heads * values, outputs)

    def embed(self, times: Float[Tensor, "b n 1"]) -> Tensor:
        linear, angle = self.embedding(times).tensor_split([1], dim=-1)
        return torch.cat([linear, angle.sin()], dim=-1)

    def attend(self, at: Tensor, times: Tensor, values: Tensor, present: Bool[Tensor, "b l c"]) -> Tensor:
        """Interpolated values (b, n, heads, c) at times `at` (b, n, 1)."""
        query = self.query(self.embed(at)).unflatten(-1, (self.heads, -1))
        key = self.key(self.embed(times)).unflatten(-1, (self.heads, -1))
        scores = torch.einsum("bnhe,blhe->bnhl", query, key) / math.sqrt(query.shape[-1])
        weights = masked_softmax(scores.unsqueeze(-1), present[:, None, None], dim=-2)  # (b, n, h, l, c)
        return torch.einsum("bnhlc,blc->bnhc", weights, values)

    def forward(self, at: Tensor, times: Tensor, values: Tensor, present: Tensor) -> Tensor:
        result: Tensor = self.mix(self.attend(at, times, values, present).flatten(2))
        return result


class MTAN(ForecastModel):
    """Observations → attention at R reference times → bidirectional GRU → a latent at every reference → attention
    at the queries → perceptron.

    Which channels have entries stands beside the interpolated values. The published encoder-decoder is variational;
    here it is deterministic (the latent is its mean) and trained by squared error, as in later comparisons.
    Source: Shukla and Marlin, "Multi-Time Attention Networks for Irregularly Sampled Time Series", ICLR 2021
    (arXiv 2101.10318).
    """

    config: MTANConfig
    references: Tensor

    def __init__(self, config: MTANConfig) -> None:
        super().__init__(config)
        c, h, z = self.channels, config.hidden_size, config.latent_size
        self.register_buffer("references", torch.linspace(0, 1, config.references), persistent=False)
        self.encode = TimeAttention(c, h, config.embed_size, config.heads)
        self.presence = nn.Linear(c, h, bias=False)
        self.forwards, self.backwards = GRUCell(h, h), GRUCell(h, h)
        self.latent = perceptron(2 * h, h, z)
        self.decode = TimeAttention(z, h, config.embed_size, config.heads)
        self.readout = perceptron(h, h, c)

    def answer(self, question: Question) -> Tensor:
        values = question.values
        b = values.shape[0]
        at = self.references.to(values.dtype).view(1, -1, 1).expand(b, -1, 1)
        known = question.observed.any(dim=1, keepdim=True).to(values.dtype)
        seen = self.encode(at, question.moments, values, question.observed) + self.presence(known)
        states = torch.cat([self.forwards.sequence(seen), self.backwards.sequence(seen, reverse=True)], dim=-1)
        latent = self.latent(states)
        whole = torch.ones_like(latent, dtype=torch.bool)
        result: Tensor = self.readout(self.decode(question.query_moments, at, latent, whole).relu())
        return result
