"""`TrainConfig`: every choice of a training run in one frozen, strict dataclass."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self

from tides.errors import ConfigError
from tides.fields import check_names, check_types, require, with_known_names

# Fields that change how a run is carried out but not what comes out of it.
BOOKKEEPING = ("checkpoint_seconds",)


@with_known_names
@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a model is trained. Unknown, ill-typed or contradictory fields raise `ConfigError` naming the field."""

    epochs: int = 100
    """At most this many passes over the training data; the cosine schedule ends there."""
    batch_size: int = 32
    bucketed: bool = False
    """Batches hold series of similar lengths, so that little is spent on padding."""
    optimiser: Literal["adam", "adamw"] = "adamw"
    """`adam` adds the decay to the gradient (coupled); `adamw` shrinks the weights beside it (decoupled)."""
    lr: float = 1e-3
    """Learning rate of parameters tagged `ssm`."""
    lr_factor: float = 1.0
    """All other parameters learn at lr · lr_factor."""
    weight_decay: float = 0.0
    """Applies to parameters tagged `decayed`."""
    schedule: Literal["constant", "cosine"] = "cosine"
    warmup_epochs: int = 0
    """Epochs over which the learning rate rises linearly from zero."""
    clip_norm: float | None = None
    """Gradients are scaled down to this global norm; None leaves them alone."""
    monitor: str = "loss"
    """The validation metric that chooses the best epoch."""
    patience: int | None = None
    """Stop after this many epochs without a better one; None trains all epochs."""
    calibrate: Literal["all", "time", "none"] = "all"
    """What the model learns about scales from the training data before the first step: time and values, or less."""
    autocast: bool = False
    """Forward passes and losses in bfloat16 where torch deems that safe."""
    deterministic: bool = False
    """Only algorithms that give the same bits every time; slower on a GPU."""
    explosion: float = 1e4
    """A training loss above explosion · (|first loss| + 1) counts as diverged."""
    seed: int = 0
    checkpoint_seconds: float = 30.0
    """Time between checkpoints; 0 writes one after every step."""

    def __post_init__(self) -> None:
        check_types(self)
        require(self, ("epochs", "batch_size"), lambda value: value >= 1, "an integer ≥ 1")
        require(self, ("lr", "lr_factor"), lambda value: value > 0, "a number > 0")
        require(self, ("weight_decay", "checkpoint_seconds"), lambda value: value >= 0, "a number ≥ 0")
        require(self, ("warmup_epochs",), lambda value: value >= 0, "an integer ≥ 0")
        require(self, ("seed",), lambda value: 0 <= value < 2**64, "an integer ≥ 0 of at most 64 bits")
        require(self, ("explosion",), lambda value: value > 1, "a number > 1")
        require(self, ("clip_norm",), lambda value: value is None or value > 0, "None or a number > 0")
        require(self, ("patience",), lambda value: value is None or value >= 1, "None or an integer ≥ 1")
        if self.warmup_epochs >= self.epochs:
            raise ConfigError(f"warmup_epochs: found {self.warmup_epochs}, wanted fewer than epochs = {self.epochs}")

    @classmethod
    def from_dict(cls, mapping: Mapping[str, Any]) -> Self:
        """The strict inverse of `to_dict`."""
        check_names(cls, mapping)
        return cls(**mapping)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    def replace(self, **fields: Any) -> Self:
        """A copy with some fields changed, checked again."""
        check_names(type(self), fields)
        return replace(self, **fields)
