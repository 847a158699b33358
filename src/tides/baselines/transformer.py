"""The vanilla Transformer encoder (Vaswani et al. 2017, arXiv 1706.03762) on raw steps."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tides.baselines.classifier import Classifier, mean_over_time
from tides.baselines.config import ClassificationConfig
from tides.baselines.inputs import Series
from tides.errors import ConfigError

# Periods of the position codes run from 2π to 2π times this.
_LONGEST = 1e4


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(ClassificationConfig):
    """Sizes of a Transformer and what its position codes count: steps, or elapsed time in units of the time scale."""

    hidden_size: int = 64
    depth: int = 2
    heads: int = 4
    expand: float = 4.0
    """Inner width of the feed-forward part as a multiple of the hidden size."""
    dropout: float = 0.1
    causal: bool = False
    positions: Literal["index", "elapsed"] = "index"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_sizes("hidden_size", "depth", "heads")
        self.require_shares("dropout")
        if self.hidden_size % (2 * self.heads):
            raise ConfigError(f"hidden_size: found {self.hidden_size}, wanted a multiple of {2 * self.heads} (2·heads)")
        if round(self.expand * self.hidden_size) < 1:
            raise ConfigError(f"expand: found {self.expand}, wanted a number > 0")


class EncoderLayer(nn.Module):
    """x ← x + drop(attention(norm x)), then x ← x + drop(W₂ GELU(W₁ norm x))."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        h, inner = config.hidden_size, round(config.expand * config.hidden_size)
        self.heads, self.causal = config.heads, config.causal
        self.attention_norm, self.feed_norm = nn.LayerNorm(h), nn.LayerNorm(h)
        self.project, self.merge = nn.Linear(h, 3 * h), nn.Linear(h, h)
        self.feed = nn.Sequential(nn.Linear(h, inner), nn.GELU(), nn.Linear(inner, h))
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, valid: Tensor | None) -> Tensor:
        b, l, h = x.shape
        packed = self.project(self.attention_norm(x)).view(b, l, 3, self.heads, h // self.heads)
        query, key, value = packed.permute(2, 0, 3, 1, 4)  # each (b, heads, l, h / heads)
        # Padding stands at the end, so that a causal model never looks at it.
        mask = None if self.causal or valid is None else valid[:, None, None]
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=self.causal)
        x = x + self.dropout(self.merge(mixed.transpose(1, 2).reshape(b, l, h)))
        result: Tensor = x + self.dropout(self.feed(self.feed_norm(x)))
        return result


class Transformer(Classifier):
    """Linear encoder plus sinusoids of the position, pre-norm layers with fused attention, mean over time.

    Attention costs O(l²) time; the fused kernels keep memory O(l).
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.positions: Literal["index", "elapsed"] = config.positions
        self.encoder = nn.Linear(config.width, config.hidden_size)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.hidden_size)
        self.head = nn.Linear(config.hidden_size, config.classes)

    def logits(self, series: Series) -> Tensor:
        hidden = self.encoder(series.x)
        hidden = hidden + position_code(self._moments(series), hidden.shape[-1])
        # Attention without a mask is the faster one.
        valid = series.valid if series.padded else None
        for layer in self.layers:
            hidden = layer(hidden, valid)
        answer: Tensor = self.head(mean_over_time(self.norm(hidden), series.valid))
        return answer

    def _moments(self, series: Series) -> Tensor:
        if self.positions == "elapsed":
            return series.elapsed
        return torch.arange(series.gaps.shape[1], device=series.gaps.device, dtype=series.gaps.dtype).unsqueeze(0)


def position_code(moments: Tensor, width: int) -> Tensor:
    """sin and cos of the moments (…, l) at geometrically spaced periods: (…, l, width)."""
    count = width // 2
    ladder = torch.arange(count, device=moments.device, dtype=moments.dtype)
    angles = moments.unsqueeze(-1) * torch.exp(ladder * (-math.log(_LONGEST) / count))
    return torch.cat([angles.sin(), angles.cos()], dim=-1)
