"""LogSig-SSM (arXiv 2610.05051): log-signatures of sliding windows as tokens in front of a state-space model."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tides.baselines.classifier import Classifier, mean_over_time
from tides.baselines.config import StackConfig
from tides.baselines.inputs import Series
from tides.baselines.linoss import LinOSSConfig, LinOSSMixer
from tides.baselines.lru import LRUConfig, LRUMixer
from tides.baselines.mamba import MambaConfig, MambaMixer
from tides.baselines.path import make_path
from tides.baselines.registry import config_of
from tides.baselines.s5 import S5Config, S5Mixer
from tides.baselines.s6 import S6Config, SelectiveScan
from tides.baselines.signature import log_signature, log_signature_size, logarithm, prefix_signatures
from tides.baselines.stack import Mixer
from tides.errors import ConfigError
from tides.fields import require
from tides.nn.norm import MaskedBatchNorm

Core = Literal["mamba", "s6", "s5", "lru", "linoss-im", "linoss-imex", "d-linoss"]


@dataclass(frozen=True, kw_only=True)
class LogSigConfig(StackConfig):
    """The windows of the tokeniser, the model behind it and that model's own sizes."""

    core: Core = "mamba"
    stride: int = 8
    """Points from one token to the next."""
    lengths: tuple[int, ...] = (16,)
    """Points of every window that ends at a token."""
    levels: tuple[int, ...] = (2,)
    """1 (increments) or 2 (and areas), one for each length."""
    global_level: int = 0
    """Log-signature of everything up to the token: none (0), level 1 or 2."""
    state_size: int = 64
    dropout: float = 0.3
    conv: int | None = None
    expand: int | None = None
    """Of Mamba; None leaves its defaults."""
    groups: int | None = None
    """Of S5; None leaves its default."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_sizes("stride", "state_size")
        require(self, ("lengths",), lambda value: all(n >= 2 for n in value), "windows of at least two points")
        require(self, ("levels",), lambda value: all(n in (1, 2) for n in value), "levels 1 or 2")
        require(self, ("global_level",), lambda value: value in (0, 1, 2), "0, 1 or 2")
        if len(self.lengths) != len(self.levels):
            raise ConfigError(f"levels: found {len(self.levels)}, wanted one for each of {len(self.lengths)} lengths")
        if not self.lengths and not self.global_level:
            raise ConfigError("lengths: found none and global_level=0, wanted something to make tokens of")
        self.core_config()

    @property
    def token_size(self) -> int:
        local = sum(log_signature_size(self.width, level) for level in self.levels)
        return local + (log_signature_size(self.width, self.global_level) if self.global_level else 0)

    def core_config(self) -> StackConfig:
        """The configuration of the model behind the tokens; fields that it does not have raise."""
        shared = {name: getattr(self, name) for name in ("classes", "hidden_size", "depth", "state_size", "steps")}
        own = {name: getattr(self, name) for name in ("conv", "expand", "groups")}
        given = {name: value for name, value in own.items() if value is not None}
        config = config_of(self.core, input_size=self.token_size, **shared, **given)
        assert isinstance(config, StackConfig)
        return config


class TokenBlock(nn.Module):
    """x + drop(mix(norm(x)))."""

    def __init__(self, mixer: Mixer, width: int, dropout: float) -> None:
        super().__init__()
        self.norm, self.mixer, self.dropout = nn.LayerNorm(width), mixer, nn.Dropout(dropout)

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        result: Tensor = x + self.dropout(self.mixer(self.norm(x), steps))
        return result


class LogSigSSM(Classifier):
    """Tokens → standardised coordinates → linear encoder → blocks → norm → mean over tokens → linear head.

    Coordinates are standardised by a BatchNorm without affine part over the valid tokens: in evaluation by running
    statistics of the training data (the original computes those once, before training).
    """

    def __init__(self, config: LogSigConfig) -> None:
        super().__init__(config)
        self.settings = config
        core, h = config.core_config(), config.hidden_size
        self.standardise = MaskedBatchNorm(config.token_size)
        self.encoder = nn.Linear(config.token_size, h)
        self.blocks = nn.ModuleList(TokenBlock(make_mixer(core), h, config.dropout) for _ in range(config.depth))
        self.norm = nn.LayerNorm(h)
        self.head = nn.Linear(h, config.classes)

    def logits(self, series: Series) -> Tensor:
        points, _ = make_path(series, self.settings)
        tokens = tokenise(points, self.settings)
        stride, count = self.settings.stride, tokens.shape[1]
        begins = torch.arange(count, device=tokens.device) * stride
        valid = begins < series.valid.sum(-1, keepdim=True)
        gaps = F.pad(series.gaps, (0, count * stride - series.gaps.shape[1])).view(-1, count, stride).sum(-1)
        steps = torch.ones_like(gaps[:1, :1]) if self.settings.steps == "unit" else gaps
        hidden = self.encoder(self.standardise.normalise(tokens, self.standardise.statistics(tokens, valid)))
        for block in self.blocks:
            hidden = block(hidden, steps)
        answer: Tensor = self.head(mean_over_time(self.norm(hidden), valid))
        return answer


def tokenise(points: Tensor, config: LogSigConfig) -> Tensor:
    """Tokens (b, ⌈l/stride⌉, size) at the points stride − 1, 2·stride − 1, … of a path (b, l, d).

    Before its beginning and behind its end the path stands still.
    """
    l = points.shape[1]
    count = -(-l // config.stride)
    anchors = (torch.arange(1, count + 1, device=points.device) * config.stride - 1).unsqueeze(-1)  # (tokens, 1)
    parts = []
    for length, level in zip(config.lengths, config.levels, strict=True):
        back = torch.arange(length - 1, -1, -1, device=points.device)
        parts.append(log_signature(points[:, (anchors - back).clamp(0, l - 1)], level))
    if config.global_level:
        index = anchors.squeeze(-1).clamp_max(l - 1).expand(len(points), -1)
        parts.append(logarithm(prefix_signatures(points, config.global_level).take(index)).to(points.dtype))
    return torch.cat(parts, dim=-1)


def make_mixer(config: Any) -> Mixer:
    """The sequence mixer that belongs to a state-space baseline's configuration."""
    match config:
        case MambaConfig():
            return MambaMixer(config)
        case S6Config():
            return SelectiveScan(config.hidden_size, config.state_size, math.ceil(config.hidden_size / 16))
        case S5Config():
            return S5Mixer(config)
        case LRUConfig():
            return LRUMixer(config)
        case LinOSSConfig():
            return LinOSSMixer(config)
    raise ConfigError(f"core: {type(config).__name__} has no sequence mixer")
