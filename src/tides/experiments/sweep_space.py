"""What a sweep may choose from: typed parameters, the paper's two search spaces, and spaces from a TOML table.

Names are the dotted paths of an experiment's settings; `configuration.lr` is the `lr` of a data set's row in the
`configuration` tables of `uea`.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from tides.errors import ConfigError

Value = bool | int | float | str
Settings = dict[str, Any]


@dataclass(frozen=True)
class Choice:
    """One of a few values, all equally likely."""

    values: tuple[Value, ...]

    def holds(self, value: Any) -> bool:
        return value in self.values

    def __str__(self) -> str:
        return "{" + ", ".join(map(str, self.values)) + "}"


@dataclass(frozen=True)
class Whole:
    """low, low + step, …, high; `log` draws the logarithm uniformly, with step 1."""

    low: int
    high: int
    step: int = 1
    log: bool = False

    def holds(self, value: Any) -> bool:
        return bool(self.low <= value <= self.high and (value - self.low) % self.step == 0)

    def __str__(self) -> str:
        return f"{{{self.low}, {self.low + self.step}, …, {self.high}}}"


@dataclass(frozen=True)
class Real:
    """A number between `low` and `high`; `log` draws its logarithm uniformly."""

    low: float
    high: float
    log: bool = False

    def holds(self, value: Any) -> bool:
        return bool(self.low <= value <= self.high)

    def __str__(self) -> str:
        return f"[{self.low:g}, {self.high:g}]"


Parameter = Choice | Whole | Real


@dataclass(frozen=True)
class Space:
    """Parameters by name, and how what was drawn becomes settings of the experiment."""

    parameters: Mapping[str, Parameter]
    settings: Callable[[Settings], Settings] = dict

    def outside(self, drawn: Mapping[str, Any]) -> list[str]:
        """The parts of a configuration that this space cannot draw, in words; unknown names are ignored."""
        return [
            f"{name}: {drawn[name]!r} lies outside {parameter}"
            for name, parameter in self.parameters.items()
            if name in drawn and not parameter.holds(drawn[name])
        ]

    def hold(self, values: Mapping[str, Value]) -> "Space":
        """The same space with only one value for these of its parameters; it may lie outside their range."""
        held = {name: Choice((value,)) for name, value in values.items()}
        return replace(self, parameters={**self.parameters, **held})

    def example(self) -> Settings:
        """Settings of the kind that can be drawn."""
        values = {name: p.values[0] if isinstance(p, Choice) else p.low for name, p in self.parameters.items()}
        return self.settings(values)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for the record."""
        return {name: {"kind": type(p).__name__.lower(), **_plain(p)} for name, p in self.parameters.items()}


def parse_space(table: Any) -> Space:
    """A space from TOML: a list is a choice; {low, high} of integers counts, of other numbers is an interval."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"space: found {table!r}, wanted a table of parameters")
    if not table:
        raise ConfigError("space: found nothing, wanted at least one parameter")
    return Space({name: _parameter(name, entry) for name, entry in table.items()})


def _plain(parameter: Parameter) -> dict[str, Any]:
    # Storages know a study by this text, so that it says nothing new about what is drawn as ever.
    plain = asdict(parameter)
    return {k: v for k, v in plain.items() if k != "log" or v} if isinstance(parameter, Whole) else plain


def _parameter(name: str, entry: Any) -> Parameter:
    if isinstance(entry, list) and entry and all(isinstance(value, bool | int | float | str) for value in entry):
        return Choice(tuple(entry))
    if isinstance(entry, dict) and {"low", "high"} <= set(entry) <= {"low", "high", "step", "log"}:
        low, high, step, log = entry["low"], entry["high"], entry.get("step"), entry.get("log", False)
        numbers = [value for value in (low, high, step) if value is not None]
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in numbers) and low < high:
            whole = all(isinstance(value, int) for value in numbers)
            possible = isinstance(log, bool) and (not log or (low > 0 and step is None))
            if possible and whole and (step is None or step > 0):
                return Whole(low, high, step or 1, log)
            if possible and not whole and step is None:
                return Real(float(low), float(high), log)
    raise ConfigError(
        f"space.{name}: found {entry!r}, wanted a list of values, {{low = 1, high = 4, step = 1}}, or "
        "{low = 1e-4, high = 1e-2, log = true}"
    )


_CLIP = 1e-4


def _uea_settings(drawn: Settings) -> Settings:
    """The release counts the state per group in pairs: P = 2 · ssm_b · ssm_mult; its table of results agrees."""
    found = {name: value for name, value in drawn.items() if name != "configuration.state_multiple"}
    found["configuration.state_size"] = 2 * drawn["configuration.groups"] * drawn["configuration.state_multiple"]
    return found


def _physiome_settings(drawn: Settings) -> Settings:
    """Without clip_eigs the settings have no `clip` at all; 0 would still keep Re λ ≤ 0."""
    return {name: value for name, value in drawn.items() if name != "model.clip" or value}


UEA = Space(
    {
        "configuration.lr": Real(1e-6, 1e-3, log=True),
        "configuration.weight_decay": Choice((0.0, 1e-3, 1e-2, 1e-1)),
        "configuration.hidden_size": Choice((8, 16, 32, 64)),
        "configuration.depth": Choice((1, 2, 4, 6, 8)),
        "configuration.groups": Choice((2, 4, 8)),
        "configuration.state_multiple": Choice((1, 2, 4)),
        "configuration.discretisation": Choice(("zoh", "bilinear")),
        "configuration.dropout": Choice((0.0, 0.05, 0.1, 0.15, 0.2)),
        "configuration.reparam": Choice(("standard", "stable", "exp")),
        "configuration.bidirectional": Choice((True, False)),
        "configuration.encoder_depth": Choice((0, 1, 2)),
        "configuration.decay_depth": Choice((0, 1, 2)),
        "configuration.rank": Choice((4, 8, 16)),
        "configuration.batch_size": Choice((5, 10, 20)),
        "configuration.epochs": Choice((200, 400)),
        "configuration.clip": Choice((0.0, _CLIP)),
    },
    _uea_settings,
)
"""The paper's space for UEA. The published learning rate of EigenWorms, 1.56e-3, lies outside it."""

PHYSIOME = Space(
    {
        "train.lr": Real(1e-6, 1e-3, log=True),
        "train.lr_factor": Real(1.0, 350.0, log=True),
        "train.weight_decay": Real(1e-6, 1e-1, log=True),
        "train.warmup_epochs": Choice((1, 5, 10)),
        "train.batch_size": Whole(16, 128, 16),
        "model.dropout": Choice((0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)),
        "model.hidden_size": Whole(16, 192, 4),
        "model.depth": Whole(2, 16),
        "model.encoder_depth": Choice((0, 1, 2)),
        "model.expand": Choice((0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)),
        "model.bidirectional": Choice((True, False)),
        "model.state_size": Whole(2, 50, 2),
        "model.rank": Whole(1, 48),
        "model.decay_depth": Choice((0, 1, 2)),
        "model.reparam": Choice(("standard", "stable", "exp", "softplus")),
        "model.discretisation": Choice(("zoh", "bilinear")),
        "model.clip": Choice((0.0, _CLIP)),
        "model.projector_init": Choice(("zeros", "random")),
    },
    _physiome_settings,
)
"""The paper's space for Physiome-ODE."""

PAPER_SPACES = {"uea": UEA, "physiome": PHYSIOME}
