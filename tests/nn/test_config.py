"""The configuration: strict, resolved by `compat`, and the same after a trip through JSON."""

import inspect
import json
from typing import Any

import pytest

from tests.nn.models import VARIANTS
from tides.errors import ConfigError
from tides.nn import TIDESConfig


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("preset", ["paper", "recommended"])
def test_round_trip_through_json(preset: str, variant: str) -> None:
    config = TIDESConfig.preset(preset, input_size=3, variant=variant, rank="full", clip=1e-4, dropout=0.1)
    again = TIDESConfig.from_dict(json.loads(json.dumps(config.to_dict())))
    assert again == config
    assert again.replace() == config


def test_editors_are_told_the_fields() -> None:
    told = inspect.signature(TIDESConfig).parameters
    assert list(told) == list(TIDESConfig(input_size=1).to_dict())
    assert told["state_size"].default == TIDESConfig(input_size=1).state_size


def test_defaults() -> None:
    config = TIDESConfig(input_size=3)
    assert (config.variant, config.reparam, config.discretisation, config.hold) == ("tides", "exp", "zoh", "following")
    assert (config.norm, config.pool, config.projector_norm, config.projector_init) == ("batch", "mean", True, "zeros")
    assert (config.step_init, config.mask_channels, config.compat) == ((1e-3, 1e-1), "auto", None)
    assert (config.first_gap, config.time_scale, config.reverse, config.padding) == (
        "median",
        "median",
        "exact",
        "exclude",
    )


def test_compat_resolves_every_point_of_the_release() -> None:
    config = TIDESConfig(input_size=3, compat="release")
    wanted = {
        "hold": "preceding",
        "reverse": "release",
        "norm_start": "ones",
        "padding": "include",
        "mask_channels": False,
        "query_flag": False,
        "first_gap": "start",
        "time_scale": 1.0,
        "decay_vectors": True,
        "step_init": (1e-3, 1e-1),
    }
    assert {name: getattr(config, name) for name in wanted} == wanted
    assert TIDESConfig(input_size=3, compat="release", variant="mamba-s").step_init == (1.0, 1.0)
    assert TIDESConfig.preset("paper", input_size=3) == config
    assert TIDESConfig.preset("recommended", input_size=3) == TIDESConfig(input_size=3)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hold", "following"),
        ("reverse", "exact"),
        ("norm_start", "preserve"),
        ("padding", "exclude"),
        ("mask_channels", True),
        ("query_flag", True),
        ("first_gap", "median"),
        ("time_scale", "median"),
        ("decay_vectors", False),
    ],
)
def test_an_explicit_contradiction_of_compat_raises(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^{field}: found {value!r}.*compat='release'"):
        TIDESConfig(input_size=3, compat="release", **{field: value})


def test_an_explicit_agreement_with_compat_is_fine() -> None:
    config = TIDESConfig(input_size=3, compat="release", hold="preceding", time_scale=1)
    assert config == TIDESConfig(input_size=3, compat="release")


def test_replace_resolves_compat_anew() -> None:
    paper = TIDESConfig.preset("paper", input_size=3, depth=2)
    mamba = paper.replace(variant="mamba-s")
    assert mamba.step_init == (1.0, 1.0)
    assert mamba.depth == 2
    assert mamba.replace(variant="tides") == paper
    assert TIDESConfig(input_size=3, depth=2).replace(compat="release") == paper
    with pytest.raises(ConfigError, match="hold"):
        paper.replace(hold="following")


@pytest.mark.parametrize(
    ("name", "nearest"), [("hiden_size", "hidden_size"), ("discretization", "discretisation"), ("norms", "norm")]
)
def test_an_unknown_field_names_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{name}: unknown field.*'{nearest}'"):
        TIDESConfig.from_dict({"input_size": 3, name: 1})


def test_an_unknown_field_far_from_all_is_named_without_a_hint() -> None:
    with pytest.raises(ConfigError, match=r"^qqqq: unknown field of TIDESConfig$"):
        TIDESConfig(input_size=3, qqqq=1)


def test_a_missing_input_size_is_named() -> None:
    with pytest.raises(ConfigError, match="input_size: missing"):
        TIDESConfig()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("input_size", 0),
        ("input_size", 2.0),
        ("hidden_size", "32"),
        ("state_size", True),
        ("groups", 0),
        ("groups", 3),
        ("depth", 0),
        ("rank", 0),
        ("rank", "half"),
        ("rank", 2.5),
        ("variant", "mamba"),
        ("reparam", "none"),
        ("discretisation", "euler"),
        ("hold", "before"),
        ("bidirectional", 1),
        ("reverse", "flip"),
        ("encoder_depth", -1),
        ("decay_depth", -1),
        ("expand", 0.0),
        ("expand", -1.0),
        ("expand", float("inf")),
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("dropout", "0.1"),
        ("norm", "group"),
        ("pool", "max"),
        ("projector_norm", None),
        ("projector_init", "ones"),
        ("clip", -1.0),
        ("clip", float("nan")),
        ("step_init", (0.1, 0.01)),
        ("step_init", (0.0, 0.1)),
        ("step_init", (0.1,)),
        ("step_init", 0.1),
        ("mask_channels", "yes"),
        ("first_gap", -1.0),
        ("first_gap", "mean"),
        ("time_scale", 0.0),
        ("time_scale", float("inf")),
        ("compat", "paper"),
    ],
)
def test_a_bad_value_names_the_field_and_what_was_found(field: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        TIDESConfig(**{"input_size": 3, field: value})
    message = str(caught.value)
    # A state that cannot be divided is named by its own size.
    assert message.startswith(("state_size", field)) if field == "groups" else message.startswith(f"{field}: found")


def test_conjugate_halves_need_even_blocks() -> None:
    with pytest.raises(ConfigError, match="state_size: found 6, wanted a multiple of 4"):
        TIDESConfig(input_size=3, state_size=6, groups=2, conjugate=True)


def test_whole_numbers_stand_for_real_ones() -> None:
    config = TIDESConfig(input_size=3, expand=2, dropout=0, clip=0, time_scale=3)
    assert (config.expand, config.dropout, config.clip, config.time_scale) == (2.0, 0.0, 0.0, 3.0)
    assert all(isinstance(getattr(config, name), float) for name in ("expand", "dropout", "clip", "time_scale"))


def test_an_unknown_preset_is_named() -> None:
    with pytest.raises(ConfigError, match="preset: found 'papre', wanted one of paper, recommended"):
        TIDESConfig.preset("papre", input_size=3)


def test_a_config_cannot_be_changed() -> None:
    config = TIDESConfig(input_size=3)
    with pytest.raises(AttributeError):
        config.depth = 7  # type: ignore[misc]


def test_from_dict_wants_a_mapping() -> None:
    with pytest.raises(ConfigError, match=r"config: found \[1\], wanted a mapping"):
        TIDESConfig.from_dict([1])  # type: ignore[arg-type]
