"""`TIDESConfig`: every choice of a model in one frozen, strict dataclass; `compat` is a preset over its fields."""

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from tides.errors import ConfigError
from tides.fields import check_names, check_types, require
from tides.functional.ssm import SSMSpec

Variant = Literal["tides", "s5", "tides-lambda", "tides-bc", "tides-full", "mamba-s"]

# Where the authors' release differs from our defaults; SEMANTICS: docs/maths/semantics.md.
_RELEASE: dict[str, Any] = {
    "hold": "preceding",
    "reverse": "release",
    "norm_start": "ones",
    "padding": "include",
    "mask_channels": False,
    "query_flag": False,
    "first_gap": "start",
    "time_scale": 1.0,
    "decay_vectors": True,
}
_RELEASE_MAMBA_S: dict[str, Any] = {"step_init": (1.0, 1.0)}


@dataclass(frozen=True, kw_only=True)
class TIDESConfig:
    """A model's architecture. Unknown, ill-typed or contradictory fields raise `ConfigError` naming the field.

    Only `input_size`, the number of data channels, must be given. docs/reference/config.md explains every field;
    `replace`, `to_dict` and `from_dict` make copies and go to JSON and back.
    """

    input_size: int
    """Data channels; mask, query and Δ channels are added inside."""
    hidden_size: int = 32
    """H: width of the features."""
    state_size: int = 16
    """P: complex modes per layer (pairs count twice when `conjugate`)."""
    groups: int = 1
    """HiPPO blocks on the diagonal (the paper's ssm_b)."""
    depth: int = 4
    """Blocks."""
    rank: int | Literal["full", "diag"] = 8
    """Rank of the B and C projectors, or one full linear map, or a diagonal modulation."""
    variant: Variant = "tides"
    """What the input decides: nothing (S5), Re λ, B and C, or the step (Mamba_S)."""
    reparam: Literal["standard", "exp", "stable", "softplus"] = "exp"
    """How a decay rate is made of a number: θ, −e^θ, −1/(θ² + ½) or −log(1 + e^θ)."""
    discretisation: Literal["zoh", "bilinear", "dirac"] = "zoh"
    """The input is held constant, held and approximated to second order, or an impulse."""
    hold: Literal["following", "preceding"] = "following"
    """The interval that an observation drives: the one after it (the paper) or before it (the release)."""
    bidirectional: bool = False
    """A second pass in reversed time; such a model cannot stream."""
    reverse: Literal["exact", "release"] = "exact"
    """Gaps of the backward pass: those of reversed time, or the forward pass's own as in the release."""
    encoder_depth: int = 0
    """Residual GLU blocks in front of the first linear map (the paper's d_enc)."""
    decay_depth: int = 0
    """Residual GLU blocks in front of the Λ head (the paper's d_Λ)."""
    expand: float = 1.0
    """Inner width of the block's GLU as a multiple of the hidden size (the paper's ff_mult)."""
    dropout: float = 0.0
    """After the GELU and after the GLU of each block."""
    norm: Literal["batch", "layer", "rms"] = "batch"
    """The norm at the beginning of each block."""
    pool: Literal["mean", "last", "time"] = "mean"
    """How a series is summed up: all steps alike, the last one, or steps weighted by the gap before them."""
    summary: bool = False
    """Statistics of the raw series (count, mean, spread, slope, … of each channel) beside the pooled features."""
    projector_norm: bool = True
    """RMS norms behind the heads of Re λ, B and C."""
    projector_init: Literal["zeros", "random"] = "zeros"
    """Last weights of the heads: zero, so that the model begins as an S5, or normal with spread 0.01."""
    norm_start: Literal["preserve", "ones"] = "preserve"
    """Start of the projector norms: HiPPO is preserved, or weights of one as in the release."""
    conjugate: bool = False
    """Static parameters live on one half of the conjugate pairs."""
    clip: float | None = None
    """Re λ ≤ −clip."""
    step_init: tuple[float, float] = (1e-3, 1e-1)
    """Range of the log-uniform start of the learned time scales."""
    mask_channels: bool | Literal["auto"] = "auto"
    """Observation flags as extra input channels; `auto`: on in a forecaster, else off, and missing values raise."""
    query_flag: bool = True
    """Query rows of a forecaster in `steps` mode carry a flag channel."""
    first_gap: float | Literal["median", "start"] = "median"
    """Gap before the first observation: the training median, a number, or the time since 0 (`start`)."""
    time_scale: float | Literal["median"] = "median"
    """Gaps are divided by it: the training median gap, or a number."""
    padding: Literal["exclude", "include"] = "exclude"
    """Whether padded steps stay out of states, statistics and pooling, or enter them as in the release."""
    decay_vectors: bool = False
    """Weight decay on one-dimensional parameters (skip, norm weights) as in the release."""
    compat: Literal["release"] | None = None
    """`release` resolves every point on which the authors' code differs; contradicting it explicitly raises."""

    def __post_init__(self) -> None:
        check_types(self)
        positive = ("input_size", "hidden_size", "state_size", "groups", "depth")
        require(self, positive, lambda value: value >= 1, "an integer ≥ 1")
        require(self, ("encoder_depth", "decay_depth"), lambda value: value >= 0, "an integer ≥ 0")
        require(self, ("dropout",), lambda value: 0 <= value < 1, "a probability in [0, 1)")
        require(self, ("clip",), lambda value: value is None or value >= 0, "None or a number ≥ 0")
        require(self, ("rank",), lambda value: isinstance(value, str) or value >= 1, "an integer ≥ 1, 'full' or 'diag'")
        require(self, ("step_init",), lambda value: 0 < value[0] <= value[1], "(low, high) with 0 < low ≤ high")
        require(self, ("first_gap",), lambda value: isinstance(value, str) or value >= 0, "a policy or a number ≥ 0")
        require(self, ("time_scale",), lambda value: isinstance(value, str) or value > 0, "'median' or a number > 0")
        smallest = 0.0 if self.compat == "release" else 1e-9
        require(self, ("expand",), lambda value: value >= smallest, "a number > 0 (0 only with compat='release')")
        if self.bidirectional and self.reverse == "release" and self.hold == "following":
            raise ConfigError("reverse: 'release' re-uses the forward pass's intervals, which needs hold='preceding'")
        divisor = 2 * self.groups if self.conjugate else self.groups
        require(self, ("state_size",), lambda value: value % divisor == 0, f"a multiple of {divisor} (groups, halves)")

    @classmethod
    def preset(cls, name: str, **fields: Any) -> Self:
        """`paper`: the behaviour that produced the published numbers; `recommended`: ours."""
        presets: dict[str, dict[str, Any]] = {"paper": {"compat": "release"}, "recommended": {}}
        if name not in presets:
            raise ConfigError(f"preset: found {name!r}, wanted one of {', '.join(presets)}")
        return cls(**{**presets[name], **fields})

    @classmethod
    def from_dict(cls, mapping: Mapping[str, Any]) -> Self:
        """The strict inverse of `to_dict` (lists are read as tuples, as JSON and TOML have no others)."""
        if not isinstance(mapping, Mapping):
            raise ConfigError(f"config: found {mapping!r}, wanted a mapping from field names to values")
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in mapping.items()}
        return cls(**fields)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in vars(self).items()}

    def replace(self, **fields: Any) -> Self:
        """A copy with some fields changed, checked again; what `compat` had resolved is resolved anew."""
        resolved = _pinned(self.compat, self.variant)
        kept = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in resolved and getattr(self, field.name) != field.default
        }
        return type(self)(**{**kept, **fields})

    @property
    def selective_decay(self) -> bool:
        return self.variant in ("tides", "tides-lambda", "tides-full")

    @property
    def selective_mixes(self) -> bool:
        return self.variant in ("tides", "tides-bc", "tides-full", "mamba-s")

    @property
    def halved(self) -> bool:
        """All parameters are static and live on one half of the conjugate pairs, so the output is 2·Re(C s)."""
        return self.conjugate and self.variant == "s5"

    @property
    def modes(self) -> int:
        """Modes that a layer's state holds."""
        return self.state_size // 2 if self.halved else self.state_size

    @property
    def ssm_spec(self) -> SSMSpec:
        """The layer's share of these choices."""
        return SSMSpec(
            reparam=self.reparam,
            discretisation=self.discretisation,
            hold=self.hold,
            bidirectional=self.bidirectional,
            reverse=self.reverse,
            clip=self.clip,
            conjugate=self.halved,
        )


def _pinned(compat: Any, variant: Any) -> dict[str, Any]:
    """The fields that `compat` resolves, with their values."""
    if compat != "release":
        return {}
    return _RELEASE | (_RELEASE_MAMBA_S if variant == "mamba-s" else {})


def _resolving(initialise: Any) -> Any:
    """Let `compat` fill in its fields before the dataclass's own constructor sees them."""

    @functools.wraps(initialise)
    def __init__(self: TIDESConfig, **fields: Any) -> None:
        check_names(TIDESConfig, fields)
        if "input_size" not in fields:
            raise ConfigError("input_size: missing; it is the number of data channels")
        pinned = _pinned(fields.get("compat"), fields.get("variant"))
        for name, value in pinned.items():
            if name in fields and fields[name] != value:
                raise ConfigError(f"{name}: found {fields[name]!r}, but compat='release' means {value!r}")
        initialise(self, **(fields | pinned))

    return __init__


TIDESConfig.__init__ = _resolving(TIDESConfig.__init__)  # type: ignore[method-assign]
