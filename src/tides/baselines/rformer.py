"""Rough Transformer, RFormer (Moreno-Pino et al. 2024, arXiv 2405.20799): attention over signatures of time windows."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tides.baselines.classifier import Classifier
from tides.baselines.config import ClassificationConfig
from tides.baselines.inputs import Series
from tides.baselines.path import Path, make_path
from tides.baselines.signature import Signature, between, extend, prefix_signatures, signature_size
from tides.fields import require


@dataclass(frozen=True, kw_only=True)
class RFormerConfig(ClassificationConfig):
    """Which signatures make the tokens, and the sizes of the attention over them."""

    windows: int = 50
    """M windows of equal duration."""
    level: int = 2
    views: Literal["local", "global", "both"] = "global"
    """Signature of each window, of everything up to its end, or both side by side."""
    univariate: bool = True
    """Signatures of (time, channel) for every channel, or one of all channels together."""
    embedding: int = 10
    """Learned position code beside each signature; there is no projection of the input."""
    depth: int = 2
    heads: int = 3
    dropout: float = 0.1
    scaled: bool = False
    """Divide attention scores by √width."""
    causal: bool = True
    shared: bool = False
    """One set of weights for all layers, as the published code (not its text) has it."""
    time_channel: Literal["none", "index", "elapsed", "gap"] = "elapsed"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_sizes("windows", "embedding", "depth", "heads")
        self.require_shares("dropout")
        require(self, ("level",), lambda value: 1 <= value <= 3, "1, 2 or 3")
        require(self, ("time_channel",), lambda value: value != "none", "a time channel: a signature needs one")
        tokens = self.token_size
        require(self, ("heads",), lambda value: value <= tokens, f"at most the width of a token, {tokens}")

    @property
    def token_size(self) -> int:
        channels = self.width - 1
        size = channels * signature_size(2, self.level) if self.univariate else signature_size(self.width, self.level)
        return size * (2 if self.views == "both" else 1) + self.embedding


class RoughLayer(nn.Module):
    """x ← norm(x + drop(attention x)), then x ← norm(x + drop(W₂ ReLU(W₁ x))).

    Every head has queries and keys of the token's full width d and values of width ⌊d/heads⌋.
    """

    def __init__(self, config: RFormerConfig) -> None:
        super().__init__()
        d, heads = config.token_size, config.heads
        self.heads, self.causal = heads, config.causal
        self.scale = 1 / math.sqrt(d) if config.scaled else 1.0
        self.match = nn.Linear(d, 2 * heads * d)
        self.value = nn.Linear(d, heads * (d // heads))
        self.merge = nn.Linear(heads * (d // heads), d)
        self.feed = nn.Sequential(nn.Linear(d, 4 * d), nn.ReLU(), nn.Linear(4 * d, d))
        self.attention_norm, self.feed_norm = nn.LayerNorm(d), nn.LayerNorm(d)
        self.dropout = nn.Dropout(config.dropout)
        for layer in (self.match, self.value, self.merge, self.feed[0], self.feed[2]):
            nn.init.normal_(layer.weight, std=0.01)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        b, m, d = x.shape
        query, key = self.match(x).view(b, m, 2, self.heads, d).permute(2, 0, 3, 1, 4)
        value = self.value(x).view(b, m, self.heads, -1).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal, scale=self.scale)
        x = self.attention_norm(x + self.dropout(self.merge(mixed.transpose(1, 2).reshape(b, m, -1))))
        result: Tensor = self.feed_norm(x + self.dropout(self.feed(x)))
        return result


class RFormer(Classifier):
    """Tokens [signature of window k, position code], post-norm attention over M tokens, mean, linear head."""

    def __init__(self, config: RFormerConfig) -> None:
        super().__init__(config)
        self.settings = config
        self.positions = nn.Parameter(0.01 * torch.randn(config.windows, config.embedding))
        count = 1 if config.shared else config.depth
        self.layers = nn.ModuleList(RoughLayer(config) for _ in range(count))
        self.head = nn.Linear(config.token_size, config.classes)
        nn.init.normal_(self.head.weight, std=0.01)

    def logits(self, series: Series) -> Tensor:
        tokens = window_signatures(make_path(series, self.settings), self.settings)
        positions = self.positions.expand(tokens.shape[0], -1, -1)
        hidden = torch.cat([tokens, positions], dim=-1)
        for index in range(self.settings.depth):
            hidden = self.layers[0 if self.settings.shared else index](hidden)
        answer: Tensor = self.head(hidden.mean(1))
        return answer


def window_signatures(path: Path, config: RFormerConfig) -> Tensor:
    """Signatures (b, windows, size) of the views that the config asks for, no position codes."""
    points, moments = path
    b, l, width = points.shape
    if config.univariate:
        pairs = torch.stack([points[..., :1].expand(b, l, width - 1), points[..., 1:]], dim=-1)
        points = pairs.permute(0, 2, 1, 3).reshape(-1, l, 2)  # (b · channels, l, 2)
        moments = moments.repeat_interleave(width - 1, dim=0)
    ends = torch.arange(1, config.windows + 1, device=points.device, dtype=moments.dtype) / config.windows
    whole = signatures_at(points, moments, ends.expand(len(moments), -1), config.level)
    views = [whole] if config.views != "local" else []
    if config.views != "global":
        starts = whole.each(lambda level: torch.cat([torch.zeros_like(level[:, :1]), level[:, :-1]], dim=1))
        views.append(between(starts, whole))
    flat = torch.cat([view.flat() for view in views], dim=-1).to(points.dtype)
    if not config.univariate:
        return flat
    return flat.view(b, width - 1, config.windows, -1).transpose(1, 2).flatten(2)


def signatures_at(points: Tensor, moments: Tensor, ends: Tensor, level: int) -> Signature:
    """Signatures (b, m), in float64, of the path from its beginning to `ends`, which may lie between points."""
    l = points.shape[1]
    index = (torch.searchsorted(moments.contiguous(), ends.contiguous(), right=True) - 1).clamp_min(0)
    following = (index + 1).clamp_max(l - 1)
    start, stop = moments.gather(1, index), moments.gather(1, following)
    flat = stop <= start
    share = ((ends - start) / (stop - start).masked_fill(flat, 1)).masked_fill(flat, 0)
    rows = torch.arange(len(points), device=points.device).unsqueeze(-1)
    step = share.unsqueeze(-1) * (points[rows, following] - points[rows, index])
    return extend(prefix_signatures(points, level).take(index), step.double())
