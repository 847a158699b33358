"""The transformer of the speed benchmark: 4 layers and about as many parameters as the model it stands beside.

Pre-norm encoder with fused attention (`scaled_dot_product_attention`), mean pooling and a linear head. Observation
times enter as sinusoids of the elapsed time, so that it reads the same irregular series through the same call.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class TransformerLayer(nn.Module):
    """x + attention(norm(x)), then x + W2 GELU(W1 norm(x))."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))

    def forward(self, x: Tensor) -> Tensor:
        b, l, width = x.shape
        packed = self.project(self.attention_norm(x)).view(b, l, 3, self.heads, width // self.heads)
        query, key, value = packed.permute(2, 0, 3, 1, 4)  # each (b, heads, l, width / heads)
        mixed = F.scaled_dot_product_attention(query, key, value)
        x = x + self.merge(mixed.transpose(1, 2).reshape(b, l, width))
        result: Tensor = x + self.feed(self.feed_norm(x))
        return result


class TransformerClassifier(nn.Module):
    """logits (b, k) = model(x (b, l, d), gaps (b, l)), called as `SequenceClassifier` is.

    The default sizes give 101,109 parameters with one channel and five classes.
    """

    def __init__(
        self, input_size: int, classes: int, *, depth: int = 4, width: int = 48, heads: int = 3, inner: int = 160
    ) -> None:
        super().__init__()
        self.width = width
        self.encoder = nn.Linear(input_size, width)
        self.layers = nn.Sequential(*(TransformerLayer(width, heads, inner) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor, gaps: Tensor) -> Tensor:
        hidden = self.encoder(x) + self._encode_times(gaps.cumsum(-1))
        logits: Tensor = self.head(self.norm(self.layers(hidden)).mean(1))
        return logits

    def _encode_times(self, times: Tensor) -> Tensor:
        """sin and cos of the time at periods from 2π to 2π·10⁴ (b, l, width)."""
        count = self.width // 2
        rates = torch.exp(torch.arange(count, device=times.device) * (-math.log(1e4) / count))
        angles = times.unsqueeze(-1) * rates
        return torch.cat([angles.sin(), angles.cos()], dim=-1)
