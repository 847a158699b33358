"""The frame that S5, LRU, S6, Mamba and LinOSS share in the published comparison (Walker et al. 2024):

    x ← W_enc u;  x ← x + drop(GLU(drop(GELU(mix(norm(x)))))) for every block;  logits = W_out mean_k x_k
    GLU(x) = (W1 x + b1) ⊙ σ(W2 x + b2)

with BatchNorm over batch and time without affine part (S5, LRU, LinOSS) or LayerNorm (S6, Mamba). Padding stays out
of the batch statistics and of the mean.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tides.baselines.classifier import Classifier, mean_over_time
from tides.baselines.config import StackConfig
from tides.baselines.inputs import Series
from tides.nn.norm import MaskedBatchNorm


class Mixer(nn.Module, ABC):
    """A causal map of sequences."""

    @abstractmethod
    def forward(self, u: Tensor, steps: Tensor) -> Tensor:
        """y (b, l, h) from inputs u (b, l, h) and the length of every step (b, l), or (1, 1) where all are equal."""


class MixerBlock(nn.Module):
    """x + drop(GLU(drop(GELU(mix(norm(x))))))."""

    def __init__(self, mixer: Mixer, width: int, dropout: float, norm: Literal["batch", "layer"]) -> None:
        super().__init__()
        self.norm = MaskedBatchNorm(width) if norm == "batch" else nn.LayerNorm(width)
        self.mixer = mixer
        self.value, self.gate = nn.Linear(width, width), nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, steps: Tensor, valid: Tensor) -> Tensor:
        if isinstance(self.norm, MaskedBatchNorm):
            normed = self.norm.normalise(x, self.norm.statistics(x, valid))
        else:
            normed = self.norm(x)
        y = self.dropout(F.gelu(self.mixer(normed, steps)))
        result: Tensor = x + self.dropout(self.value(y) * torch.sigmoid(self.gate(y)))
        return result


class StackClassifier(Classifier):
    """Linear encoder, `depth` blocks, mean over time, linear head."""

    def __init__(
        self, config: StackConfig, make_mixer: Callable[[], Mixer], norm: Literal["batch", "layer"] = "batch"
    ) -> None:
        super().__init__(config)
        self.steps = config.steps
        self.encoder = nn.Linear(config.width, config.hidden_size)
        self.blocks = nn.ModuleList(
            MixerBlock(make_mixer(), config.hidden_size, config.dropout, norm) for _ in range(config.depth)
        )
        self.head = nn.Linear(config.hidden_size, config.classes)

    def logits(self, series: Series) -> Tensor:
        # Where all steps are equal mixers have less to do.
        steps = torch.ones_like(series.gaps[:1, :1]) if self.steps == "unit" else series.gaps
        hidden = self.encoder(series.x)
        for block in self.blocks:
            hidden = block(hidden, steps, series.valid)
        answer: Tensor = self.head(mean_over_time(hidden, series.valid))
        return answer
